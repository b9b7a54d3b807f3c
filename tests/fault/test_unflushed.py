"""Under SYNC_FLUSH nobody reads what a power cut could still take back: where the flush stands still, so do readers."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.codes import RequestCode, ResponseCode, SysFlag
from mqcore.protocol import headers
from mqcore.protocol.bodies import HeartbeatData, ProducerData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import decode_offset_message_id
from tests.fault.rig import DEADLINE_S, SYNC_FLUSH, attach_segment, find_worker, start_broker
from tests.fault.talker import (
    Talker,
    max_offset_request,
    pull_request,
    pulled,
    send_request,
    view_request,
)
from tests.fault.test_kill_transactions import GROUP, RULES, half_request
from tests.rigs import wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Unflushed"
KEY = "the-key"
FLUSH_TIMEOUT_MS = 5_000
STORED = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT)

LOOKS_S = 1.5


@contextlib.contextmanager
def standing_still(process: psutil.Process) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def query(key: str) -> RemotingCommand:
    now = time.time_ns() // 1_000_000
    return RemotingCommand(
        RequestCode.QUERY_MESSAGE,
        ext_fields=headers.encode_request(
            RequestCode.QUERY_MESSAGE, topic=TOPIC, key=key, max_num=32, begin_timestamp=0, end_timestamp=now + 60_000
        ),
    )


def test_what_is_not_flushed_is_not_read(tmp_path: Path) -> None:
    with start_broker(tmp_path, SYNC_FLUSH | {"syncFlushTimeout": str(FLUSH_TIMEOUT_MS)}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        segment = attach_segment(broker)
        with Talker(broker.broker_address) as producer, Talker(broker.broker_address) as reader:
            # A disk that is busy with other things may take longer than the time-out; read it is when it has done.
            assert producer.call(send_request(TOPIC, 0, b"flushed")).code in STORED
            wait_until(lambda: pulled(reader.call(pull_request(TOPIC, 0, 0))), DEADLINE_S, "the first message is read")
            with standing_still(find_worker(broker, "flush")):
                late = producer.call(send_request(TOPIC, 0, b"not yet", keys=KEY))
                assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
                assert late.ext_fields is not None
                physical_offset = decode_offset_message_id(late.ext_fields["msgId"]).physical_offset
                assert segment.get("wrote_offset") > physical_offset
                until = time.monotonic() + LOOKS_S
                while time.monotonic() < until:
                    assert reader.call(pull_request(TOPIC, 0, 1)).code == ResponseCode.PULL_NOT_FOUND
                    assert [m.body for m in pulled(reader.call(pull_request(TOPIC, 0, 0)))] == [b"flushed"]
                    assert reader.call(max_offset_request(TOPIC, 0)).ext_fields == {"offset": "1"}
                    assert reader.call(view_request(physical_offset)).code == ResponseCode.SYSTEM_ERROR
                    assert reader.call(query(KEY)).code == ResponseCode.QUERY_NOT_FOUND
                reader.send([pull_request(TOPIC, 0, 1, suspend_ms=30_000)])
                wait_until(lambda: segment.waiting_pulls() == 1, describe="a pull is held")
                assert segment.get("flushed_offset") <= physical_offset
            (message,) = pulled(reader.receive())
            assert message.body == b"not yet"
            assert segment.get("flushed_offset") > physical_offset
            assert reader.call(view_request(physical_offset)).code == ResponseCode.SUCCESS
            # The index comes behind the consume queue.
            wait_until(lambda: reader.call(query(KEY)).code == ResponseCode.SUCCESS, DEADLINE_S, "the key is found")
        broker.stop()


def test_an_answer_waits_for_the_flush(tmp_path: Path) -> None:
    with start_broker(tmp_path, SYNC_FLUSH) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        with Talker(broker.broker_address) as producer:
            assert producer.call(send_request(TOPIC, 0, b"flushed")).code == ResponseCode.SUCCESS
            with standing_still(find_worker(broker, "flush")):
                producer.send([send_request(TOPIC, 0, b"waits")])
                with pytest.raises(TimeoutError):
                    producer.receive(LOOKS_S)
            response = producer.receive()
        assert response.code == ResponseCode.SUCCESS
        assert response.ext_fields is not None
        assert response.ext_fields["queueOffset"] == "1"
        broker.stop()


def test_the_answer_about_a_half_message_that_is_not_flushed_counts(tmp_path: Path) -> None:
    with start_broker(tmp_path, SYNC_FLUSH | RULES) as broker:
        wire.create_topic(broker.broker_address, TOPIC)
        segment = attach_segment(broker)
        with Talker(broker.broker_address) as producer:
            beat = HeartbeatData("asked", [ProducerData(GROUP)], []).encode()
            assert producer.call(RemotingCommand(RequestCode.HEART_BEAT, body=beat)).code == ResponseCode.SUCCESS
            half = half_request(TOPIC, b"half")
            assert half.ext_fields is not None
            half.ext_fields["i"] += "\x02DELAY\x011"  # so that the broker process ends it, and not a send worker
            assert producer.call(half).code == ResponseCode.SUCCESS
            with standing_still(find_worker(broker, "flush")):
                question = producer.receive(DEADLINE_S)
                while copy_offset(question) < segment.get("flushed_offset"):
                    question = producer.receive(DEADLINE_S)
                end, written = answer_to(question), segment.get("wrote_offset")
                producer.send([end])
                wait_until(lambda: segment.get("wrote_offset") > written, DEADLINE_S, "the message is stored")
            response = producer.receive()
            while not response.is_response:
                response = producer.receive()
        assert response.code == ResponseCode.SUCCESS
        broker.stop()


def copy_offset(question: RemotingCommand) -> int:
    assert question.code == RequestCode.CHECK_TRANSACTION_STATE
    assert question.ext_fields is not None
    return int(question.ext_fields["commitLogOffset"])


def answer_to(question: RemotingCommand) -> RemotingCommand:
    assert question.ext_fields is not None
    fields = headers.encode_request(
        RequestCode.END_TRANSACTION, producer_group=GROUP, msg_id="half", from_transaction_check=True,
        commit_or_rollback=int(SysFlag.TRANSACTION_COMMIT), commit_log_offset=copy_offset(question),
        tran_state_table_offset=int(question.ext_fields["tranStateTableOffset"]),
    )  # fmt: skip
    return RemotingCommand(RequestCode.END_TRANSACTION, ext_fields=fields)
