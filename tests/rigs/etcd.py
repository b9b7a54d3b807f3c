"""etcd for the tests: the one that is installed, else the one of Debian's package, unpacked and not installed."""

from __future__ import annotations

import http.client
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.waiting import wait_until

from .certificates import Authority, Pair
from .maven import BUILT, build_lock
from .ports import free_port
from .process import Child

PACKAGE: Final = "etcd-server"
UNPACKED: Final = BUILT / "etcd"
START_DEADLINE_S: Final = 60.0


def missing_tools() -> str:
    """The reason why no etcd can run here, empty if one can."""
    if shutil.which("etcd") is not None or (UNPACKED / "usr/bin/etcd").is_file():
        return ""
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        return f"not installed: etcd, and {', '.join(missing)}"
    return _unpack()


def _unpack() -> str:
    """Get Debian's package and unpack it; the reason why that cannot be done, empty if it was."""
    with build_lock(UNPACKED):
        if (UNPACKED / "usr/bin/etcd").is_file():
            return ""
        fetched = subprocess.run(
            ["apt-get", "download", PACKAGE], cwd=UNPACKED, capture_output=True, text=True, check=False
        )
        packages = sorted(UNPACKED.glob(f"{PACKAGE}_*.deb"))
        if fetched.returncode != 0 or not packages:
            return f"no etcd, and apt-get download {PACKAGE} says: {fetched.stderr.strip()[-200:]}"
        subprocess.run(["dpkg-deb", "-x", packages[-1], UNPACKED], check=True)
    return ""


def program() -> Path:
    """The etcd that is there; see missing_tools()."""
    installed = shutil.which("etcd")
    return Path(installed) if installed is not None else UNPACKED / "usr/bin/etcd"


class Etcd:
    """A member of a cluster of etcd. A context manager; its data stay in *directory* over restarts."""

    def __init__(
        self,
        directory: Path,
        name: str = "a",
        pair: Pair | None = None,
        authority: Authority | None = None,
        *,
        host: str = "127.0.0.1",
    ) -> None:
        """It is reached at *host* by clients and by the other members."""
        self.directory = directory
        self.host = host
        self.name = name
        self.client_port = free_port()
        self.peer_port = free_port()
        self._pair, self._authority = pair, authority
        self._child: Child | None = None

    @property
    def client(self) -> str:
        """Where brokers find it."""
        return f"{self.host}:{self.client_port}"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def data(self) -> Path:
        """The directory that has everything it knows."""
        return self.directory / self.name

    @property
    def peer(self) -> str:
        return f"{self.name}=http://{self.host}:{self.peer_port}"

    def start(self, members: Sequence[str] = ()) -> None:
        """Start, as one of *members* (``peer`` of each); alone without."""
        scheme = "https" if self._pair is not None else "http"
        own = f"{scheme}://{self.host}:{self.client_port}"
        command: list[str | Path] = [
            program(), "--name", self.name, "--data-dir", self.data,
            "--listen-client-urls", own, "--advertise-client-urls", own,
            "--listen-peer-urls", f"http://{self.host}:{self.peer_port}",
            "--initial-advertise-peer-urls", f"http://{self.host}:{self.peer_port}",
            "--initial-cluster", ",".join(members) or self.peer, "--unsafe-no-fsync",
        ]  # fmt: skip
        if self._pair is not None and self._authority is not None:
            command += ["--cert-file", self._pair.certificate, "--key-file", self._pair.key]
            command += ["--trusted-ca-file", self._authority.certificate, "--client-cert-auth"]
        self._child = Child(command, log=self.directory / f"{self.name}.log")

    def await_ready(self) -> None:
        """Wait until it serves: only over plain HTTP."""
        wait_until(self._is_ready, START_DEADLINE_S, "etcd serves")

    def _is_ready(self) -> bool:
        assert self._child is not None
        if not self._child.is_alive:
            raise self._child.error("has ended")
        connection = http.client.HTTPConnection(self.host, self.client_port, timeout=2)
        try:
            connection.request("GET", "/health")
            return b"true" in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """End it at once."""
        assert self._child is not None
        self._child.kill()
        self._child = None

    def __enter__(self) -> Etcd:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self.kill()
