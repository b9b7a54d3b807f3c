"""Prometheus and its promtool for the tests: those that are installed, else those of Debian's package, unpacked."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any, Final

from tests.waiting import wait_until

from .maven import BUILT, build_lock
from .ports import free_port
from .process import Child

PACKAGE: Final = "prometheus"
UNPACKED: Final = BUILT / "prometheus"
PROGRAMS: Final = ("prometheus", "promtool")
START_DEADLINE_S: Final = 60.0
CONFIGURATION: Final = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: rocketmq
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def missing_tools() -> str:
    """The reason why Prometheus cannot run here, empty if it can."""
    if all(path_of(name) is not None for name in PROGRAMS):
        return ""
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(PROGRAMS)}, and {', '.join(missing)}"
    return _unpack()


def path_of(name: str) -> Path | None:
    """Where one of PROGRAMS is."""
    installed = shutil.which(name)
    if installed is not None:
        return Path(installed)
    unpacked = UNPACKED / "usr/bin" / name
    return unpacked if unpacked.is_file() else None


def _unpack() -> str:
    """Get Debian's package and unpack it; the reason why that cannot be done, empty if it was."""
    with build_lock(UNPACKED):
        if path_of("prometheus") is not None:
            return ""
        fetched = subprocess.run(
            ["apt-get", "download", PACKAGE], cwd=UNPACKED, capture_output=True, text=True, check=False
        )
        packages = sorted(UNPACKED.glob(f"{PACKAGE}_*.deb"))
        if fetched.returncode != 0 or not packages:
            return f"no {PACKAGE}, and apt-get download {PACKAGE} says: {fetched.stderr.strip()[-200:]}"
        subprocess.run(["dpkg-deb", "-x", packages[-1], UNPACKED], check=True)
    return ""


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool; what it says, and whether it found something wrong."""
    program = path_of("promtool")
    assert program is not None
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


class Prometheus:
    """A server that scrapes one broker each second. A context manager."""

    def __init__(self, directory: Path, metrics_port: int) -> None:
        program = path_of("prometheus")
        assert program is not None
        self.port = free_port()
        configuration = directory / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(port=metrics_port))
        self._child = Child(
            [
                program, f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            log=directory / "prometheus.log",
        )  # fmt: skip

    def __enter__(self) -> Prometheus:
        wait_until(self._is_ready, START_DEADLINE_S, "Prometheus serves")
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()

    def _is_ready(self) -> bool:
        if not self._child.is_alive:
            raise self._child.error("has ended")
        try:
            return self._get("/-/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def find(self, query: str) -> list[dict[str, Any]]:
        """The series of now that *query* gives."""
        status, body = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        answer = json.loads(body)
        assert status == 200, f"{query}: {answer}"
        return list(answer["data"]["result"])

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
