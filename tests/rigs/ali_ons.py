"""The npm client ali-ons, by the driver in tests/interop/node.

Its packages are installed once, in the versions of the lock file, into tests/interop/node/node_modules.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from .maven import build_lock, content_hash, run_build
from .process import Child
from .reports import ReceivedMessage, read_received, read_sent
from .talkers import Produced, Talker, arguments, await_event

PROJECT = Path(__file__).resolve().parent.parent / "interop" / "node"
PRODUCE_DEADLINE_S = 240.0


def missing_tools() -> str:
    """The reason why nothing of Node can run here, empty if it can."""
    absent = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def install() -> None:
    """Install the packages, unless those of this lock file are there."""
    modules = PROJECT / "node_modules"
    wanted = content_hash(PROJECT / "package.json", PROJECT / "package-lock.json")
    with build_lock(PROJECT / "target"):
        stamp = modules / ".installed"
        if not stamp.is_file() or stamp.read_text() != wanted:
            run_build(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=PROJECT)
            stamp.write_text(wanted)


class AliOns:
    """The client ali-ons. *directory* takes logs and reports."""

    def __init__(self, directory: Path) -> None:
        install()
        self.directory = directory
        self._runs = itertools.count(1)

    def _start(self, command: str, options: dict[str, object]) -> tuple[Child, Path]:
        self.directory.mkdir(parents=True, exist_ok=True)
        stem = f"ali-ons-{command}-{next(self._runs)}"
        report = self.directory / f"{stem}.tsv"
        child = Child(
            ["node", PROJECT / "driver.js", command, *arguments({**options, "report": report})],
            log=self.directory / f"{stem}.log",
            env={"HOME": str(self.directory)},
            talks=True,
        )
        return child, report

    def produce(self, name_server: str, topic: str, corpus: Path, **options: object) -> Produced:
        """Send a corpus, wait for all answers. Options: group, tags, count, in_flight, key_prefix ("N" by default)."""
        child, report = self._start(
            "produce", {"name_server": name_server, "topic": topic, "corpus": corpus, **options}
        )
        with child:
            event = await_event(child, "produced", PRODUCE_DEADLINE_S)
            child.wait()
        return Produced(event["messages"], event["accepted"], event["failures"], event["seconds"], read_sent(report))

    def consumer(self, name_server: str, topic: str, group: str, **options: object) -> AliOnsConsumer:
        """A started consumer. Options: tags; refuse: keys, joined by commas, which it wants to have again once."""
        child, report = self._start("consume", {"name_server": name_server, "topic": topic, "group": group, **options})
        return AliOnsConsumer(child, report)


class AliOnsConsumer(Talker):
    """A running consumer."""

    def __init__(self, child: Child, report: Path) -> None:
        super().__init__(child, report)
        self.client_id: str = await_event(child, "ready")["client"]

    def count(self) -> int:
        """Deliveries so far, repeated ones included."""
        return int(self.ask("count")["deliveries"])

    def stop(self) -> list[ReceivedMessage]:
        """Close the consumer (it commits its offsets) and give its deliveries in their order."""
        self.child.tell("stop")
        await_event(self.child, "stopped")
        self.child.wait()
        return read_received(self._report)
