"""What mqcore trace reads out of trace messages: what our own encoder, golden against Java's, wrote into them."""

from __future__ import annotations

import pytest

from mqcore.admin.trace_records import FIELDS, parse_records, steps_of
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.telemetry.trace import TraceBean, TraceContext, TraceKind, encode_trace

BEAN = TraceBean(topic="T", msg_id="ID1", tags="a", keys="k", store_host="h:1", body_length=17, offset_msg_id="OFF")


def record(kind: TraceKind, time_ms: int, bean: TraceBean = BEAN, **values: object) -> bytes:
    context = TraceContext(kind=kind, group="G", beans=(bean,), timestamp_ms=time_ms, **values)  # type: ignore[arg-type]
    return encode_trace(context).encode()


@pytest.mark.parametrize("kind", TraceKind)
def test_every_field_that_is_written_is_read(kind: TraceKind) -> None:
    (row,) = parse_records([(record(kind, 5), "c:1")])
    assert list(row) == [*FIELDS[kind], "client"]
    assert (row["kind"], row["time"], row["group"], row["msgId"]) == (kind, "5", "G", "ID1")


def test_what_happened_to_a_message_is_told_in_order_and_once() -> None:
    bodies = [
        record(TraceKind.SUB_AFTER, 40, request_id="R1", cost_ms=9, context_code=ConsumeCode.FAILED, success=False),
        record(TraceKind.SUB_BEFORE, 30, request_id="R1") + record(TraceKind.SUB_BEFORE, 50, request_id="R2"),
        record(TraceKind.PUB, 10, cost_ms=3) * 2,
        record(TraceKind.PUB, 11, TraceBean(topic="T", msg_id="OTHER")),
        b"\xff nonsense \x02 Pub",
    ]
    steps = steps_of(parse_records((body, "c:1") for body in bodies), "ID1")
    assert [(step.what, step.time_ms, step.cost_ms, step.success) for step in steps] == [
        ("sent", 10, 3, True),
        ("consumed", 30, 9, False),
        ("consumed", 50, None, None),
    ]
    assert steps[1].note == "FAILED"
    assert "it runs, or its client died" in steps[2].note
    assert [step.what for step in steps_of(parse_records([(bodies[2], "")]), "OFF")] == ["sent"]


def test_a_batch_is_found_by_each_of_its_ids() -> None:
    body = record(TraceKind.PUB, 10, TraceBean(topic="T", msg_id="A,B"))
    assert len(steps_of(parse_records([(body, "")]), "B")) == 1


def test_records_of_old_clients_have_fewer_fields() -> None:
    body = b"SubAfter\x01R\x01ID1\x019\x01true\x01k\x02"
    (step,) = steps_of(parse_records([(body, "c:1")]), "ID1")
    assert (step.what, step.cost_ms, step.success, step.group, step.client) == ("consumed", 9, True, "", "c:1")
