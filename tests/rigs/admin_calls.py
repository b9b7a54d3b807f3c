"""Single calls of Apache's admin client and pull consumer, as monitors make them, in a process of interop.Calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .maven import calls_class_path
from .mqadmin import JVM_OPTIONS, TIMED_OUT, TRIES_MAX
from .normal import normalised
from .process import Child

CALL_DEADLINE_S: Final = 120.0
MEASURED: Final = frozenset(
    {
        "tps",
        "consumeTps",
        "avgpt",
        "lastPullTimestamp",
        "lastConsumeTimestamp",
        "lastLockTimestamp",
        "delayTime",
        "spentTimeMills",
        "pullRT",
        "pullTPS",
        "consumeRT",
        "consumeOKTPS",
        "consumeFailedTPS",
        "consumeTimestamp",
    }
)
"""Names of figures that say how long something took, or how much a second, or when a client was made."""


class JavaCalls:
    """One process that makes one call after the other. A context manager."""

    def __init__(self, version: str, directory: Path) -> None:
        class_path = calls_class_path(version)
        command = ["java", *JVM_OPTIONS, f"-Duser.home={directory}", "-cp", class_path, "interop.Calls"]
        self._child = Child(command, log=directory / f"calls-{version}.out", talks=True, directory=directory)

    def call(self, name_server: str, target: str, method: str, arguments: Sequence[object]) -> dict[str, Any]:
        """Return ``value``, or ``thrown`` with ``code`` and ``message``; again if it has not heard in time."""
        for _ in range(TRIES_MAX):
            self._child.tell("\t".join([name_server, target, method, json.dumps(arguments)]))
            answer = self._child.read_event("answered", CALL_DEADLINE_S)
            if TIMED_OUT.search(answer.get("thrown", "")) is None:
                break
        if "value" in answer:
            answer["value"] = json.loads(answer["value"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child.kill()


COMMANDS: Final = {
    "fetchBrokerRuntimeStats": "brokerStatus",
    "getBrokerConfig": "getBrokerConfig",
    "getConsumerRunningInfo": "consumerStatus",
}
"""Methods whose answers have what that command of mqadmin prints: line by line, and with the same to be blanked."""

DAY_AND_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:\d{3}")


def lines_of(method: str, answer: dict[str, Any]) -> list[str]:
    """Return what was answered, a line for each value, without what two brokers in one state may say differently."""
    if "thrown" in answer:
        text = f"{answer['thrown']} {answer.get('code')}\n{answer['message']}"
    elif method == "fetchBrokerRuntimeStats":
        text = "\n".join(f"{name} : {value}" for name, value in sorted(answer["value"]["table"].items()))
    elif method == "getBrokerConfig":
        text = "\n".join(f"{name} = {value}" for name, value in answer["value"].items())
    else:
        text = DAY_AND_TIME.sub("<time>", "\n".join(_lines(answer["value"], "")))
    return normalised(COMMANDS.get(method, method), text)


def _lines(value: object, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in sorted(value.items()):
            yield from _lines("<n>" if name in MEASURED else member, f"{place}.{name}")
    elif isinstance(value, list):
        # Sets of Java's come in an order of their own.
        for member in sorted(value, key=lambda found: json.dumps(found, sort_keys=True)):
            yield from _lines(member, f"{place}[]")
    else:
        yield f"{place or '.'} = {value}"
