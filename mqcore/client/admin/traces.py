"""What became of a message: the records of producers and consumers in the trace topic, as a line of time.

Only clients that trace tell of themselves, half a second later or so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mqcore.client.admin import Admin
from mqcore.client.admin.messages import QUERY_MAX
from mqcore.client.errors import NoRouteError
from mqcore.client.telemetry.trace import TraceKind
from mqcore.client.telemetry.trace_reading import TraceEvent, decode_trace
from mqcore.protocol.names import TRACE_TOPIC


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One thing that happened to a message: it began at *begin_ms* and took *cost_ms* (None: it has no end yet).

    *retry_times* is how often the message had been consumed before, None where nobody said.
    """

    title: str
    group: str
    begin_ms: int
    cost_ms: int | None
    success: bool | None
    event: TraceEvent
    retry_times: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of one message, or of all that have a key, in the order in which they began."""

    steps: Sequence[TraceStep]
    truncated: bool = False

    @property
    def begin_ms(self) -> int:
        return min((step.begin_ms for step in self.steps), default=0)

    @property
    def span_ms(self) -> int:
        """From the begin of the first step to the end of the last."""
        return max((step.begin_ms + (step.cost_ms or 0) for step in self.steps), default=0) - self.begin_ms


async def trace_of(
    admin: Admin, msg_id: str, topic: str = TRACE_TOPIC, *, begin: datetime | int = 0, end: datetime | int | None = None
) -> Trace:
    """Return what is known of the message *msg_id* (or of those with that key); empty when nobody traced it.

    *begin* and *end* are when traces were stored. ``truncated``: there may be more of them than one query gives.
    """
    try:
        found = await admin.query_by_key(topic, msg_id, max_messages=QUERY_MAX, begin=begin, end=end)
    except NoRouteError:
        return Trace(())
    events = [event for ext in found for event in decode_trace(ext.body.decode("utf-8", "replace"), str(ext.born_host))]
    # A trace message has the records of many.
    return Trace(steps_of(event for event in events if event.is_about(msg_id)), found.truncated)


def steps_of(events: Iterable[TraceEvent]) -> list[TraceStep]:
    """Join what belongs together, the begin and the end of each consumption; a record that came twice counts once."""
    befores: dict[tuple[str, tuple[str, ...]], TraceEvent] = {}
    afters: dict[tuple[str, tuple[str, ...]], TraceEvent] = {}
    steps = []
    for event in dict.fromkeys(events):
        match event.kind:
            case TraceKind.PUB:
                steps.append(TraceStep("sent", event.group, event.time_ms, event.cost_ms, event.success, event))
            case TraceKind.END_TRANSACTION:
                title = f"transaction {event.transaction_state.lower()}"
                steps.append(TraceStep(title, event.group, event.time_ms, 0, None, event))
            case TraceKind.SUB_BEFORE:
                befores[event.request_id, event.msg_ids] = event
            case TraceKind.SUB_AFTER:
                afters[event.request_id, event.msg_ids] = event
    steps += [_consumed(before, afters.pop(key, None)) for key, before in befores.items()]
    steps += [_consumed(None, after) for after in afters.values()]
    return sorted(steps, key=lambda step: step.begin_ms)


def _consumed(before: TraceEvent | None, after: TraceEvent | None) -> TraceStep:
    event = after or before
    assert event is not None  # one of them was found
    begin_ms = before.time_ms if before is not None else event.time_ms - (event.cost_ms or 0)
    retry = f", attempt {before.retry_times + 1}" if before is not None and before.retry_times else ""
    group = (before.group if before is not None else "") or event.group
    cost_ms, success = (None, None) if after is None else (after.cost_ms, after.success)
    retry_times = None if before is None else before.retry_times
    return TraceStep(f"consumed{retry}", group, begin_ms, cost_ms, success, event, retry_times)
