"""Trace records read back: what ``trace`` writes, and what Apache's clients write. Source: TraceDataEncoder.java.

Records are other people's bytes: one that is not understood is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mqcore.client.model.messages import MessageKind
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.telemetry.trace import ABSENT, FIELD_SEPARATOR, RECORD_SEPARATOR, TraceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One record, about the messages *msg_ids* (of a batch several). *time_ms* is 0 where it says none.

    Of a SUB_AFTER the group and the time are those of its SUB_BEFORE in older clients' records: empty here.
    *cost_ms* is what the send or the handler took; *success* is None where a record says neither. *client* is who says
    all this, host and port.
    """

    kind: TraceKind
    msg_ids: tuple[str, ...]
    time_ms: int = 0
    group: str = ""
    topic: str = ""
    tag: str = ""
    keys: str = ""
    store_host: str = ""
    body_size: int | None = None
    cost_ms: int | None = None
    message_kind: MessageKind | None = None
    success: bool | None = None
    request_id: str = ""
    retry_times: int = 0
    context_code: ConsumeCode | None = None
    transaction_state: str = ""
    was_checked: bool = False
    """The broker had to ask how the transaction ends."""
    offset_msg_ids: tuple[str, ...] = ()
    client: str = ""

    def is_about(self, name: str) -> bool:
        """Whether *name* is an id of either kind, or a key, of its messages."""
        return name in self.msg_ids or name in self.offset_msg_ids or name in self.keys.split()


def decode_trace(text: str, client: str = "") -> list[TraceEvent]:
    """Return the events in the body of a trace message that *client* has sent, in their order."""
    return [replace(event, client=client) for event in _events(text)]


def _events(text: str) -> Iterator[TraceEvent]:
    for record in text.split(RECORD_SEPARATOR):
        fields = ["" if value == ABSENT else value for value in record.strip("\n").split(FIELD_SEPARATOR)]
        try:
            yield _event(TraceKind(fields[0]), fields)
        except (ValueError, IndexError):
            continue  # an empty rest, a kind of a later release, or damage


def _event(kind: TraceKind, fields: Sequence[str]) -> TraceEvent:
    match kind:
        case TraceKind.PUB:
            return TraceEvent(
                kind=kind, time_ms=int(fields[1]), group=fields[3], topic=fields[4], msg_ids=_ids(fields[5]),
                tag=fields[6], keys=fields[7], store_host=fields[8], body_size=int(fields[9]), cost_ms=int(fields[10]),
                message_kind=MessageKind(int(fields[11])), success=_after(fields, 13, fields[-1]) == "true",
                offset_msg_ids=_ids(fields[12]) if len(fields) > 13 else (),
            )  # fmt: skip
        case TraceKind.SUB_BEFORE:
            return TraceEvent(
                kind=kind, time_ms=int(fields[1]), group=fields[3], request_id=fields[4], msg_ids=_ids(fields[5]),
                retry_times=int(fields[6]), keys=_after(fields, 7),
            )  # fmt: skip
        case TraceKind.SUB_AFTER:
            code = ConsumeCode(int(fields[6])) if len(fields) > 6 else None
            return TraceEvent(
                kind=kind, request_id=fields[1], msg_ids=_ids(fields[2]), cost_ms=int(fields[3]),
                success=fields[4] == "true", keys=_after(fields, 5), context_code=code,
                time_ms=int(_after(fields, 7) or 0), group=_after(fields, 8),
            )  # fmt: skip
        case TraceKind.END_TRANSACTION:
            return TraceEvent(
                kind=kind, time_ms=int(fields[1]), group=fields[3], topic=fields[4], msg_ids=_ids(fields[5]),
                tag=fields[6], keys=fields[7], store_host=fields[8], message_kind=MessageKind(int(fields[9])),
                transaction_state=fields[11], was_checked=_after(fields, 12) == "true",
            )  # fmt: skip


def _ids(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _after(fields: Sequence[str], at: int, default: str = "") -> str:
    """Return the field *at*, which older releases do not write."""
    return fields[at] if len(fields) > at else default
