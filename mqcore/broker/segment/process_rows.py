"""Rows of the runtime table about the broker's processes and its answers' latencies, for those who ask for details.

A value is words ``name=number`` with blanks between. Counts are since the start of the broker or of the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqcore.broker.figures import ProcessFigures
from mqcore.broker.metrics.machine import ThreadCounts, cpu_things, resources_of
from mqcore.broker.ports.figures import FigureView
from mqcore.layout import constants

WORDS: Final = ("generation", "units", "bytes", "backlog", "parked", "connections", "refused")
"""Of a process's row."""

MS_PER_S: Final = 1000


class ProcessRows:
    """``process_NAME`` for each process and ``latency_KIND`` for each LatencyKind, its sum in us and its counts."""

    def __init__(self, figures: FigureView) -> None:
        self._figures = figures
        self._threads = ThreadCounts()

    def __call__(self) -> dict[str, str]:
        wanted = [process for process in self._figures.processes() if process.is_wanted]
        self._threads.keep({process.pid for process in wanted})
        rows = {f"process_{process.name}": self._row(process) for process in wanted}
        for kind in constants("LatencyKind"):
            sum_us, counts = self._figures.latency(kind)
            rows[f"latency_{kind}"] = f"sumUs={sum_us} counts={','.join(map(str, counts))}"
        return rows

    def _row(self, process: ProcessFigures) -> str:
        words: dict[str, object] = {"kind": process.kind, "state": process.state, "pid": process.pid}
        if process.pid:
            words |= self._resources(process)
        words |= {name: process.words[name] for name in WORDS}
        return " ".join(f"{name}={value}" for name, value in words.items())

    def _resources(self, process: ProcessFigures) -> Mapping[str, int]:
        found = resources_of(process)
        known = {"residentBytes": found["resident"], "blockedMs": _ms(found["block_wait_s"])} if found else {}
        spent = {f"{thing['mode']}Ms": _ms(thing["cpu_s"]) for thing in cpu_things(process)}
        return {**spent, "waitMs": _ms(self._threads.runqueue_wait_s(process.pid)), **known}  # type: ignore[dict-item]


def _ms(seconds: object) -> int:
    assert isinstance(seconds, int | float)
    return round(seconds * MS_PER_S)
