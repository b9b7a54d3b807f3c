"""The YAML files that say who may do what: where they lie, and what is in them.

``conf/plain_acl.yml`` under rocketmqHome, and every ``.yml`` and ``.yaml`` under ``conf/acl`` and its folders. The
default file is read last, as in RocketMQ; the others in the order of their names, where RocketMQ takes the directory's.
Source: RocketMQ acl/plain/PlainPermissionManager.java, srvutil/AclFileWatchService.java.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mqcore.errors import ConfigError
from mqcore.files import read_if_there, write_atomically

SUFFIXES: Final = (".yml", ".yaml")
MODE: Final = 0o600  # they hold secrets

Stamps = Mapping[Path, tuple[int, int, int]]


class AclFiles:
    """The files of one broker. Everything here waits for the disk."""

    def __init__(self, home: Path, default: str) -> None:
        """*default* is the path of the default file, from *home* on."""
        self.home = home
        self.default = home / default
        self.folder = home / "conf" / "acl"

    def prepare(self) -> None:
        """Make the default file, empty, if there is none: with it nobody is let in. Raises OSError."""
        self.default.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(self.default, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE))
        except FileExistsError:
            pass

    def paths(self) -> list[Path]:
        """All files that there are, the default one last."""
        found = sorted(path for path in self.folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        return [*(path for path in found if path != self.default), *([self.default] if self.default.is_file() else [])]

    def stamps(self) -> Stamps:
        """What tells a changed file from one that is as it was."""
        stamps = {}
        for path in self.paths():
            try:
                status = path.stat()
            except FileNotFoundError:  # it went meanwhile
                continue
            stamps[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return stamps

    def write(self, path: str, content: Mapping[str, Any]) -> None:
        """Put *content* into the file, durably; what it was before is kept beside it. Raises OSError."""
        text = load_yaml().safe_dump(dict(content), default_flow_style=False, sort_keys=False, allow_unicode=True)
        write_atomically(path, text.encode())

    def read_all(self) -> dict[str, Any]:
        """What is in each of them, by path. Raises ConfigError if one is no YAML, OSError if one cannot be read."""
        return {str(path): read_yaml(path) for path in self.paths()}


def read_yaml(path: Path) -> Any:
    """What is in *path*; None if there is nothing. Raises ConfigError with the line, and without its text; OSError."""
    yaml = load_yaml()
    try:
        return yaml.safe_load(read_if_there(path))
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}: got no YAML{line}, {error.problem}; wanted accounts as in RocketMQ") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: got no YAML ({type(error).__name__}), wanted accounts as in RocketMQ") from None


def load_yaml() -> Any:
    """PyYAML, which only a broker with ``aclEnable`` needs. Raises ConfigError if it is not installed."""
    try:
        import yaml
    except ImportError as error:
        raise ConfigError("aclEnable: got true, wanted PyYAML, which is not here: pip install 'mqcore[acl]'") from error
    return yaml
