"""What clients wrote into the trace topic about one message, read back: who sent it when, and who consumed it how.

The fields are those that ``mqcore.client.telemetry.trace`` writes. Records of other clients have fewer fields at the
end, or more, which are passed over. Source: RocketMQ client/trace/TraceDataEncoder.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from mqcore.admin.output import time_text
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.telemetry.trace import ABSENT, FIELD_SEPARATOR, RECORD_SEPARATOR, TraceKind

FIELDS: Final = {
    TraceKind.PUB: (
        *("kind", "time", "region", "group", "topic", "msgId", "tags", "keys", "host", "bodySize", "costMs", "type"),
        *("offsetMsgId", "success"),
    ),
    TraceKind.SUB_BEFORE: ("kind", "time", "region", "group", "requestId", "msgId", "retryTimes", "keys"),
    TraceKind.SUB_AFTER: ("kind", "requestId", "msgId", "costMs", "success", "keys", "code", "time", "group"),
    TraceKind.END_TRANSACTION: (
        *("kind", "time", "region", "group", "topic", "msgId", "tags", "keys", "host", "type", "transactionId"),
        *("state", "fromCheck"),
    ),
}
"""What stands where in a record, by kind."""


@dataclass(slots=True)
class Step:
    """Something that happened to the message. *cost_ms* is how long it took, None where nobody said."""

    what: str
    time_ms: int
    group: str
    client: str = ""
    cost_ms: int | None = None
    success: bool | None = None
    retry_times: int | None = None
    note: str = ""

    def record(self) -> dict[str, Any]:
        return {
            "time": time_text(self.time_ms),
            "what": self.what,
            "group": self.group,
            "client": self.client,
            "costMs": self.cost_ms,
            "success": self.success,
            "retryTimes": self.retry_times,
            "note": self.note,
        }


def parse_records(bodies: Iterable[tuple[bytes, str]]) -> Iterator[dict[str, str]]:
    """Give the fields of all records by name; what is no record of a known kind is passed over.

    With each body comes who sent it, which becomes the field ``client``.
    """
    for body, client in bodies:
        for text in body.decode("utf-8", "replace").split(RECORD_SEPARATOR):
            values = text.split(FIELD_SEPARATOR)
            if values[0] in {kind.value for kind in FIELDS}:
                names = FIELDS[TraceKind(values[0])]
                found = {name: "" if value == ABSENT else value for name, value in zip(names, values, strict=False)}
                yield found | {"client": client}


def steps_of(records: Iterable[dict[str, str]], msg_id: str) -> list[Step]:
    """Return what happened to *msg_id*, in order; a record that came twice counts once."""
    mine = [dict(row) for row in {tuple(row.items()): row for row in records}.values() if _is_of(row, msg_id)]
    begun = {row["requestId"]: row for row in mine if row["kind"] == TraceKind.SUB_BEFORE}
    ended = {row["requestId"]: row for row in mine if row["kind"] == TraceKind.SUB_AFTER}
    steps = [_sent(row) for row in mine if row["kind"] == TraceKind.PUB]
    steps += [_transaction(row) for row in mine if row["kind"] == TraceKind.END_TRANSACTION]
    steps += [_consumed(begun.get(name, {}), ended.get(name, {})) for name in dict.fromkeys([*begun, *ended])]
    return sorted(steps, key=lambda step: step.time_ms)


def _is_of(row: dict[str, str], msg_id: str) -> bool:
    ids = [*row.get("msgId", "").split(","), *row.get("offsetMsgId", "").split(",")]  # of a batch: all of them
    return msg_id in ids


def _number(text: str | None) -> int:
    return int(text) if text and text.lstrip("-").isdecimal() else 0


def _sent(row: dict[str, str]) -> Step:
    note = f"to {row.get('topic', '')} at {row.get('host', '')}, {row.get('bodySize', '?')} bytes"
    return Step(
        "sent",
        _number(row.get("time")),
        row.get("group", ""),
        row.get("client", ""),
        _number(row.get("costMs")),
        row.get("success") == "true" if row.get("success") else None,
        note=note,
    )


def _transaction(row: dict[str, str]) -> Step:
    state = row.get("state", "")
    asked = " after a check" if row.get("fromCheck") == "true" else ""
    return Step(
        "ended transaction", _number(row.get("time")), row.get("group", ""), row.get("client", ""), note=state + asked
    )


def _consumed(before: dict[str, str], after: dict[str, str]) -> Step:
    """One delivery, of which the begin, the end, or both are known."""
    code = after.get("code", "")
    known = code.isdecimal() and int(code) in set(ConsumeCode)
    note = ConsumeCode(int(code)).name if known else "no end is known: it runs, or its client died" if not after else ""
    return Step(
        "consumed",
        _number(before.get("time") or after.get("time")),
        before.get("group") or after.get("group", ""),
        before.get("client") or after.get("client", ""),
        _number(after.get("costMs")) if after else None,
        after.get("success") == "true" if after else None,
        _number(before.get("retryTimes")) if before else None,
        note,
    )
