"""Drivers of clients in other languages than Java: commands that produce, consume, and report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from .process import Child
from .reports import ReceivedMessage, read_received, read_sent
from .talkers import Produced, Talker, arguments, await_event

PRODUCE_DEADLINE_S = 240.0


class Driver:
    """The driver that *command* starts. *directory* takes logs and reports, and is its home."""

    def __init__(self, command: Sequence[str | Path], directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._runs = itertools.count(1)

    def _start(self, order: str, options: dict[str, object]) -> tuple[Child, Path]:
        self._directory.mkdir(parents=True, exist_ok=True)
        stem = f"{order}-{next(self._runs)}"
        report = self._directory / f"{stem}.tsv"
        child = Child(
            [*self._command, order, *arguments({**options, "report": report})],
            log=self._directory / f"{stem}.log",
            env={"HOME": str(self._directory)},
            talks=True,
        )
        return child, report

    def produce(self, name_server: str, topic: str, corpus: Path, **options: object) -> Produced:
        """Send a corpus and wait for all answers. Options for all: group, tags, count; see the driver for its own."""
        child, report = self._start(
            "produce", {"name_server": name_server, "topic": topic, "corpus": corpus, **options}
        )
        with child:
            event = await_event(child, "produced", PRODUCE_DEADLINE_S)
            child.wait()
        return Produced(event["messages"], event["accepted"], event["failures"], event["seconds"], read_sent(report))

    def consumer(self, name_server: str, topic: str, group: str, **options: object) -> DrivenConsumer:
        """A started consumer. Options for all: tags; refuse: keys, joined by commas, that it wants to have again."""
        child, report = self._start("consume", {"name_server": name_server, "topic": topic, "group": group, **options})
        return DrivenConsumer(child, report)


class DrivenConsumer(Talker):
    """A running consumer."""

    def __init__(self, child: Child, report: Path) -> None:
        super().__init__(child, report)
        await_event(child, "ready")

    def count(self) -> int:
        """Deliveries so far, repeated ones included."""
        return int(self.ask("count")["deliveries"])

    def stop(self) -> list[ReceivedMessage]:
        """Close the consumer (it commits its offsets) and give its deliveries in their order."""
        self.child.tell("stop")
        await_event(self.child, "stopped")
        self.child.wait()
        return read_received(self._report)
