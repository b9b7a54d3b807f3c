"""What became of a message: what our own encoder, golden against Java's, wrote into traces, read back and joined."""

from __future__ import annotations

import pytest

from mqcore.admin.trace_command import note_of
from mqcore.client.admin.traces import TraceStep, steps_of
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.telemetry.trace import TraceBean, TraceContext, TraceKind, encode_trace
from mqcore.client.telemetry.trace_reading import decode_trace

BEAN = TraceBean(topic="T", msg_id="ID1", tags="a", keys="k", store_host="h:1", body_length=17, offset_msg_id="OFF")


def record(kind: TraceKind, time_ms: int, bean: TraceBean = BEAN, **values: object) -> str:
    context = TraceContext(kind=kind, group="G", beans=(bean,), timestamp_ms=time_ms, **values)  # type: ignore[arg-type]
    return encode_trace(context)


def steps(text: str, name: str = "ID1") -> list[TraceStep]:
    return steps_of(event for event in decode_trace(text, "c:1") if event.is_about(name))


@pytest.mark.parametrize("kind", TraceKind)
def test_every_kind_that_is_written_is_read(kind: TraceKind) -> None:
    (event,) = decode_trace(record(kind, 5), "c:1")
    assert (event.kind, event.time_ms, event.group, event.msg_ids, event.client) == (kind, 5, "G", ("ID1",), "c:1")


def test_what_happened_to_a_message_is_told_in_order_and_once() -> None:
    found = steps(
        record(TraceKind.SUB_AFTER, 40, request_id="R1", cost_ms=9, context_code=ConsumeCode.FAILED, success=False)
        + record(TraceKind.SUB_BEFORE, 30, request_id="R1")
        + record(TraceKind.SUB_BEFORE, 50, request_id="R2")
        + record(TraceKind.PUB, 10, cost_ms=3) * 2
        + record(TraceKind.PUB, 11, TraceBean(topic="T", msg_id="OTHER"))
        + "\ufffd nonsense \x02 Pub"
    )
    assert [(step.title, step.begin_ms, step.cost_ms, step.success, step.event.client) for step in found] == [
        ("sent", 10, 3, True, "c:1"),
        ("consumed", 30, 9, False, "c:1"),
        ("consumed", 50, None, None, "c:1"),
    ]
    assert [note_of(step) for step in found] == [
        "to T at h:1, 17 bytes", "FAILED", "no end is known: it runs, or its client died",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["ID1", "OFF", "k"])
def test_a_message_is_found_by_either_id_and_by_its_key(name: str) -> None:
    assert [step.title for step in steps(record(TraceKind.PUB, 10), name)] == ["sent"]


def test_a_batch_is_found_by_each_of_its_ids() -> None:
    assert len(steps(record(TraceKind.PUB, 10, TraceBean(topic="T", msg_id="A,B")), "B")) == 1


def test_records_of_old_clients_have_fewer_fields() -> None:
    (step,) = steps("SubAfter\x01R\x01ID1\x019\x01true\x01k\x02")
    assert (step.title, step.cost_ms, step.success, step.group, step.event.client) == ("consumed", 9, True, "", "c:1")
