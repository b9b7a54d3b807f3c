"""Contexts: clusters by name, each with its name servers and how to be let in, in one file of the user.

The file is ``$XDG_CONFIG_HOME/mqcore/contexts.json`` (``~/.config`` where that is not set), or what MQCORE_CONTEXTS
names. Only its owner may read it (0600), as it may hold secrets, and it is replaced as a whole, so that a command that
is interrupted leaves the old one or the new one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import orjson

from mqcore.client.errors import NotFoundError
from mqcore.client.settings.classes import ClientSettings
from mqcore.client.settings.configuration import converted, nearest
from mqcore.errors import ConfigError

FILE_VARIABLE: Final = "MQCORE_CONTEXTS"
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
SHOWN_SECRET: Final = "***"
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-")

CONTEXT_SETTINGS: Final = tuple(row.name for row in fields(ClientSettings) if row.name != "namespace")
"""What of ClientSettings a context may say. Administration speaks of names as brokers have them: no namespace."""

SECRETS: Final = frozenset(row.name for row in fields(ClientSettings) if not row.repr)


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One cluster. *settings* are fields of ClientSettings."""

    name_servers: str
    description: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return what may be shown: no secret."""
        shown = {name: SHOWN_SECRET if name in SECRETS else value for name, value in self.settings.items()}
        return {"nameServers": self.name_servers, "description": self.description, "settings": shown}


@dataclass(slots=True)
class Contexts:
    """The content of the file at *path*."""

    path: Path
    current: str | None = None
    table: dict[str, ClusterContext] = field(default_factory=dict)

    def get(self, name: str) -> ClusterContext:
        """Return the context *name*; NotFoundError says which there are."""
        if name not in self.table:
            known = nearest(name, self.table) if self.table else "; there is none: see mqcore context add"
            raise NotFoundError(f"no context named {name!r} in {self.path}{known}")
        return self.table[name]

    def save(self) -> None:
        """Replace the file; ConfigError when it cannot be written."""
        rows = {
            name: {"name_servers": one.name_servers, "description": one.description, "settings": dict(one.settings)}
            for name, one in sorted(self.table.items())
        }
        data = orjson.dumps({"current": self.current, "contexts": rows}, option=orjson.OPT_INDENT_2) + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
            _replace(self.path, data)
        except OSError as error:
            raise ConfigError(f"contexts file {self.path}: {error.strerror}") from error


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # is 0600 from its first moment
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def contexts_path(environment: Mapping[str, str]) -> Path:
    """Return where contexts are."""
    if environment.get(FILE_VARIABLE):
        return Path(environment[FILE_VARIABLE])
    home = Path(environment.get("XDG_CONFIG_HOME") or "")  # which must be absolute, or is to be ignored
    base = home if home.is_absolute() else Path(environment.get("HOME") or Path.home()) / ".config"
    return base / "mqcore" / "contexts.json"


def load_contexts(environment: Mapping[str, str]) -> Contexts:
    """Return the contexts, none where there is no file; ConfigError names the file and what is wrong with it."""
    path = contexts_path(environment)
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return Contexts(path)
    except OSError as error:
        raise ConfigError(f"contexts file {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"contexts file {path}: {error}") from error
    try:
        return _read(path, content)
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"contexts file {path}: not as mqcore context writes it ({error!r})") from error


def _read(path: Path, content: Any) -> Contexts:
    found = Contexts(path, content.get("current"))
    for name, row in content["contexts"].items():
        settings = {key: setting(key, value, f"{path}, context {name}") for key, value in row["settings"].items()}
        found.table[name] = ClusterContext(row["name_servers"], row.get("description", ""), settings)
    return found


def setting(name: str, value: object, source: str) -> object:
    """Return *value* as the field *name* of ClientSettings has it; ConfigError names *source*."""
    if name not in CONTEXT_SETTINGS:
        raise ConfigError(f"{source}: unknown setting {name!r}{nearest(name, CONTEXT_SETTINGS)}")
    try:
        return converted(value, ClientSettings, name)
    except ValueError as error:
        raise ConfigError(f"{source}: setting {name}: {error}") from None


def check_name(name: str) -> None:
    """Raise ConfigError for what is no name of a context."""
    if not name or not NAME_CHARACTERS.issuperset(name):
        raise ConfigError(f"context name: got {name!r}, wanted letters, digits, and . _ @ -")


def is_open_to_others(path: Path) -> bool:
    """Whether others than its owner may read the file."""
    try:
        return bool(path.stat().st_mode & 0o077)
    except OSError:
        return False
