"""Trace records are byte for byte those of client 4.9.8, and tracing never holds up what it traces."""

from __future__ import annotations

import pytest

from mqcore.client.model.messages import MessageKind
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.model.transaction import TransactionState
from mqcore.client.telemetry.trace import (
    DATA_SIZE_MAX,
    KEYS_SIZE_MAX,
    TraceBean,
    TraceContext,
    TraceKind,
    encode_trace,
    trace_keys,
    trace_messages,
    trace_topic_of,
)

FIRST = TraceBean(
    topic="T",
    msg_id="ID1",
    tags="a",
    keys="k1 k2",
    store_host="10.0.0.1:10911",
    body_length=17,
    offset_msg_id="OFF",
    message_kind=MessageKind.DELAY,
    retry_times=3,
    transaction_id="TX",
    transaction_state=TransactionState.UNKNOWN.java_name,
    from_transaction_check=True,
)
SECOND = TraceBean(topic="T", msg_id="ID2", keys=None)
BARE = TraceBean(topic="T", msg_id="ID1", store_host="10.0.0.1:10911", body_length=17, offset_msg_id="OFF")

# What TraceDataEncoder of client 4.9.8 made of the same two messages.
GOLDEN = {
    TraceKind.PUB: "Pub\x011700000000123\x01R\x01G\x01T\x01ID1\x01a\x01k1 k2\x0110.0.0.1:10911\x0117\x019\x013\x01OFF"
    "\x01false\x02",
    TraceKind.SUB_BEFORE: "SubBefore\x011700000000123\x01R\x01G\x01REQ\x01ID1\x013\x01k1 k2\x02"
    "SubBefore\x011700000000123\x01R\x01G\x01REQ\x01ID2\x010\x01null\x02",
    TraceKind.SUB_AFTER: "SubAfter\x01REQ\x01ID1\x019\x01false\x01k1 k2\x014\x011700000000123\x01G\x02"
    "SubAfter\x01REQ\x01ID2\x019\x01false\x01null\x014\x011700000000123\x01G\x02",
    TraceKind.END_TRANSACTION: "EndTransaction\x011700000000123\x01R\x01G\x01T\x01ID1\x01a\x01k1 k2\x0110.0.0.1:10911"
    "\x013\x01TX\x01UNKNOW\x01true\x02",
}
GOLDEN_SUB_AFTER_IN_THE_CLOUD = (
    "SubAfter\x01REQ\x01ID1\x019\x01false\x01k1 k2\x014\x01SubAfter\x01REQ\x01ID2\x019\x01false\x01null\x014\x01"
)
GOLDEN_BARE = (
    "Pub\x011700000000123\x01R\x01G\x01T\x01ID1\x01null\x01null\x0110.0.0.1:10911\x0117\x019\x010\x01OFF\x01true\x02"
)


def context(kind: TraceKind, *beans: TraceBean, success: bool = False) -> TraceContext:
    return TraceContext(
        kind=kind,
        group="G",
        beans=beans,
        timestamp_ms=1_700_000_000_123,
        region_id="R",
        cost_ms=9,
        success=success,
        request_id="REQ",
        context_code=ConsumeCode.FAILED,
    )


@pytest.mark.parametrize("kind", list(TraceKind))
def test_records_are_those_of_the_java_client(kind: TraceKind) -> None:
    assert encode_trace(context(kind, FIRST, SECOND)) == GOLDEN[kind]


def test_absent_values_are_written_as_java_writes_them() -> None:
    assert encode_trace(context(TraceKind.PUB, BARE, success=True)) == GOLDEN_BARE


@pytest.mark.parametrize("kind", list(TraceKind))
def test_in_the_cloud_a_record_of_consumption_ends_early(kind: TraceKind) -> None:
    wanted = GOLDEN_SUB_AFTER_IN_THE_CLOUD if kind is TraceKind.SUB_AFTER else GOLDEN[kind]
    assert encode_trace(context(kind, FIRST, SECOND), is_cloud=True) == wanted


def test_a_trace_is_found_by_ids_and_by_keys() -> None:
    assert trace_keys(context(TraceKind.PUB, FIRST, SECOND)) == ["ID1", "k1", "k2", "ID2"]


def test_traces_go_to_the_topic_of_their_channel() -> None:
    assert trace_topic_of("R", None, is_cloud=False) == "RMQ_SYS_TRACE_TOPIC"
    assert trace_topic_of("R", "Mine", is_cloud=False) == "Mine"
    assert trace_topic_of("R", "Mine", is_cloud=True) == "rmq_sys_TRACE_DATA_R"


def test_the_records_of_one_topic_share_a_message() -> None:
    other = TraceBean(topic="U", msg_id="ID3")
    contexts = [context(TraceKind.PUB, bean) for bean in (FIRST, other, BARE)]
    first, second = trace_messages(contexts)
    assert (first.topic, second.topic) == ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC")
    assert first.body.decode() == encode_trace(contexts[0]) + encode_trace(contexts[2])
    assert first.properties == {"KEYS": "ID1 k1 k2"}
    assert (second.body.decode(), second.properties) == (encode_trace(contexts[1]), {"KEYS": "ID3"})


def test_messages_stay_below_the_size_that_traces_may_have() -> None:
    contexts = [context(TraceKind.PUB, TraceBean(topic="T", msg_id=f"{at:032}")) for at in range(5_000)]
    messages = trace_messages(contexts)
    assert len(messages) > 1
    assert b"".join(message.body for message in messages) == "".join(map(encode_trace, contexts)).encode()
    for message in messages:
        assert len(message.body) <= DATA_SIZE_MAX + 1_000
        assert len(message.properties["KEYS"]) <= KEYS_SIZE_MAX
    assert " ".join(message.properties["KEYS"] for message in messages) == " ".join(f"{at:032}" for at in range(5_000))


def test_keys_that_no_message_could_carry_are_left_out() -> None:
    keys = " ".join(f"{at:08}" for at in range(4_000))
    (message,) = trace_messages([context(TraceKind.PUB, TraceBean(topic="T", msg_id="ID", keys=keys))])
    assert message.properties["KEYS"].startswith("ID 00000000 ")
    assert len(message.properties["KEYS"]) <= KEYS_SIZE_MAX
