"""Half messages and the ends of transactions, by the send worker and by the broker process: both do the same."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broker_ports import START_MS, BrokerRig
from fast_rig import Log, shared_segment
from test_fast_send_loop import FILE_SIZE, LINK, SYNC_TIMEOUT_MS, LoopRig, replies

from mqcore import layout
from mqcore.broker.ports import PutStatus
from mqcore.codes import RequestCode, ResponseCode, SysFlag
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from mqcore.protocol.properties import decode_properties
from tests.waiting import wait_until

TOPIC = "orders"
COMMIT, ROLLBACK = int(SysFlag.TRANSACTION_COMMIT), int(SysFlag.TRANSACTION_ROLLBACK)
PROPERTIES = "WAIT\x01true\x02KEYS\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01U"
NOT_SET = "not set any response code"


@dataclass(frozen=True)
class Stored:
    """A record of the log, without what is another in each run."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    prepared: int


@dataclass(frozen=True)
class Sent:
    """What a producer knows of its half message."""

    queue_offset: int
    physical_offset: int
    queue_id: int


class FastBroker:
    """The loop of a send worker; the broker process is not there, and what is asked of it is refused."""

    def __init__(self, log: Log, **changes: Any) -> None:
        self.log = log
        self.loop = LoopRig(log, **changes)
        for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
            log.segment.publish_topic(topic.encode(), 6, 1, 1, False, False)
        self.client = self.loop.connect()
        self._opaques = itertools.count(1)

    def close(self) -> None:
        self.client.close()
        self.loop.close()

    def ask(self, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        request = RemotingCommand(code, next(self._opaques), ext_fields=ext, body=body)
        self.client.sendall(request.encode())
        return replies(self.client, 1)[0]

    def tell(self, code: RequestCode, ext: dict[str, str]) -> None:
        """Send what is not answered, and wait until it has been handled."""
        units = self.loop.word("units")
        self.client.sendall(RemotingCommand(code, 0, ext_fields=ext).encode())
        wait_until(lambda: self.loop.word("units") > units, describe="the frame is handled")
        # Whatever it appends is there with the answer to what comes behind it.
        self.ask(RequestCode.SEND_MESSAGE_V2, send_fields("KEYS\x01marker"), b"marker")

    def records(self) -> list[Stored]:
        return [
            Stored(
                record.topic.decode(), record.queue_id, record.queue_offset, record.body,
                decode_properties(record.properties.decode()), record.flag, record.sys_flag,
                record.prepared_transaction_offset,
            )
            for record in self.log.check()
            if record.body != b"marker"
        ]  # fmt: skip


class PlainBroker:
    """The broker process, which does everything by itself."""

    def __init__(self, root: Path) -> None:
        self._runner = asyncio.Runner()
        self.rig = BrokerRig(root, brokerClusterName="c")
        self._runner.run(self.rig.create_topic(TOPIC))

    def close(self) -> None:
        self._runner.close()

    def ask(self, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        return self._runner.run(self.rig.ask(code, ext, body))

    def tell(self, code: RequestCode, ext: dict[str, str]) -> None:
        assert self._runner.run(self.rig.tell(code, ext)) is None

    def records(self) -> list[Stored]:
        found = []
        for (topic, queue_id), units in self.rig.store.queues.items():
            for message in self.rig.store.messages(topic, queue_id):
                found.append(
                    (message.physical_offset, Stored(
                        topic, queue_id, message.queue_offset, message.body, dict(message.properties), message.flag,
                        message.sys_flag, message.prepared_transaction_offset,
                    ))
                )  # fmt: skip
            assert len(units) == len(self.rig.store.messages(topic, queue_id))
        return [stored for _, stored in sorted(found, key=lambda pair: pair[0])]


Broker = FastBroker | PlainBroker


@pytest.fixture(params=["send worker", "broker process"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with contextlib.ExitStack() as stack:
        if request.param == "broker process":
            plain = PlainBroker(tmp_path)
            stack.callback(plain.close)
            yield plain
            return
        log = Log(tmp_path, stack.enter_context(shared_segment()), FILE_SIZE)
        fast = FastBroker(log)
        stack.callback(fast.close)
        yield fast


def send_fields(properties: str = PROPERTIES, **changes: str) -> dict[str, str]:
    return {
        "a": "producers", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": str(int(SysFlag.TRANSACTION_PREPARED)),
        "g": str(START_MS), "h": "5", "i": properties, "j": "0", "k": "false", "m": "false", **changes,
    }  # fmt: skip


def send_half(broker: Broker, properties: str = PROPERTIES, body: bytes = b"body", **changes: str) -> Sent:
    reply = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields(properties, **changes), body)
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert reply.ext_fields is not None
    return Sent(
        int(reply.ext_fields["queueOffset"]), int(reply.ext_fields["msgId"][-16:], 16), int(reply.ext_fields["queueId"])
    )


def end_fields(half: Sent, outcome: int = COMMIT, **changes: object) -> dict[str, str]:
    fields = {
        "producerGroup": "producers", "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical_offset, "commitOrRollback": outcome, "msgId": "U", "transactionId": "U",
        "fromTransactionCheck": "false",
    }  # fmt: skip
    return {name: str(value) for name, value in (fields | changes).items() if value is not None}


def end(broker: Broker, half: Sent, outcome: int = COMMIT, **changes: object) -> tuple[int, str | None]:
    reply = broker.ask(RequestCode.END_TRANSACTION, end_fields(half, outcome, **changes))
    assert not reply.ext_fields
    return reply.code, reply.remark


HALF_PROPERTIES = decode_properties(PROPERTIES) | {"CLUSTER": "c", "REAL_TOPIC": TOPIC, "REAL_QID": "1"}


def half_record(queue_offset: int = 0, body: bytes = b"body", **properties: str) -> Stored:
    return Stored(TRANS_HALF_TOPIC, 0, queue_offset, body, HALF_PROPERTIES | properties, 5, 0, 0)


def op_record(half_offset: int, queue_offset: int) -> Stored:
    properties = {"WAIT": "true", "TAGS": "d"}
    return Stored(TRANS_OP_HALF_TOPIC, 0, queue_offset, str(half_offset).encode(), properties, 0, 0, 0)


# Both ------------------------------------------------------------------------------------------------------------


def test_a_half_message_waits_in_the_half_topic_and_says_where_it_belongs(broker: Broker) -> None:
    first = send_half(broker)
    second = send_half(broker, body=b"other", e="3")
    assert broker.records() == [half_record(), half_record(1, b"other", REAL_QID="3")]
    # The answer names the queue that was asked for, and the place among the half messages.
    assert (first.queue_id, first.queue_offset) == (1, 0)
    assert (second.queue_id, second.queue_offset) == (3, 1)


@pytest.mark.parametrize("word", ["TRUE", "True", "true"])
def test_java_s_true_makes_a_half_message(broker: Broker, word: str) -> None:
    send_half(broker, f"TRAN_MSG\x01{word}\x02PGROUP\x01p")
    assert broker.records()[0].topic == TRANS_HALF_TOPIC


@pytest.mark.parametrize("word", ["false", "yes", "1", "tru", "truee"])
def test_anything_else_is_an_ordinary_message(broker: Broker, word: str) -> None:
    send_half(broker, f"TRAN_MSG\x01{word}\x02PGROUP\x01p", f="0")
    assert [(stored.topic, stored.queue_id) for stored in broker.records()] == [(TOPIC, 1)]


def test_a_half_message_without_wait_has_none_afterwards(broker: Broker) -> None:
    send_half(broker, "TRAN_MSG\x01true\x02PGROUP\x01p")
    assert "WAIT" not in broker.records()[0].properties


def test_what_a_client_says_of_the_real_place_does_not_count(broker: Broker) -> None:
    half = send_half(broker, f"REAL_TOPIC\x01secret\x02REAL_QID\x0177\x02{PROPERTIES}")
    assert broker.records()[0].properties == HALF_PROPERTIES
    end(broker, half)
    assert (TOPIC, 1) in {(stored.topic, stored.queue_id) for stored in broker.records()}


def test_a_committed_message_lies_in_its_queue_and_its_half_is_done_with(broker: Broker) -> None:
    send_half(broker, body=b"earlier")
    half = send_half(broker)
    assert end(broker, half) == (ResponseCode.SUCCESS, None)
    # The stored text still has what the half had, as RocketMQ's.
    message = Stored(TOPIC, 1, 0, b"body", HALF_PROPERTIES, 5, COMMIT, half.physical_offset)
    assert broker.records() == [half_record(0, b"earlier"), half_record(1), message, op_record(1, 0)]


def test_a_rolled_back_message_is_only_done_with(broker: Broker) -> None:
    half = send_half(broker)
    assert end(broker, half, ROLLBACK) == (ResponseCode.SUCCESS, NOT_SET)
    assert broker.records() == [half_record(), op_record(0, 0)]


def test_an_undecided_end_is_not_answered_and_changes_nothing(broker: Broker) -> None:
    half = send_half(broker)
    broker.tell(RequestCode.END_TRANSACTION, end_fields(half, 0))
    assert broker.records() == [half_record()]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producerGroup": "others"}, "The producer group wrong"),
        ({"producerGroup": "producer"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
    ],
)
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_an_end_that_contradicts_its_half_message_is_refused(
    broker: Broker, outcome: int, changes: dict[str, object], remark: str
) -> None:
    half = send_half(broker)
    assert end(broker, half, outcome, **changes) == (ResponseCode.SYSTEM_ERROR, remark)
    assert broker.records() == [half_record()]


def test_a_compressed_message_stays_compressed(broker: Broker) -> None:
    flags = int(SysFlag.TRANSACTION_PREPARED | SysFlag.COMPRESSED)
    half = send_half(broker, body=zlib.compress(b"body"), f=str(flags))
    end(broker, half)
    found = [stored.sys_flag for stored in broker.records()[:2]]
    assert found == [int(SysFlag.COMPRESSED), int(SysFlag.COMPRESSED | SysFlag.TRANSACTION_COMMIT)]


def test_who_ends_twice_is_obeyed_twice(broker: Broker) -> None:
    # As in RocketMQ: an end is not looked for among those that came before.
    half = send_half(broker)
    assert end(broker, half) == end(broker, half)
    assert [stored.body for stored in broker.records() if stored.topic == TOPIC] == [b"body"] * 2


# The broker process ------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[PlainBroker]:
    made = PlainBroker(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("offset", [-1, 1, 1 << 40])
def test_an_end_without_its_half_message_is_refused(plain: PlainBroker, offset: int) -> None:
    half = send_half(plain)
    assert end(plain, half, commitLogOffset=offset) == (
        ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed",
    )  # fmt: skip


@pytest.mark.parametrize("outcome", [-1, 4, 99])
def test_an_end_that_is_none_of_the_three_is_refused_by_name(plain: PlainBroker, outcome: int) -> None:
    half = send_half(plain)
    code, remark = end(plain, half, outcome)
    assert code == ResponseCode.SYSTEM_ERROR
    assert f"commitOrRollback: got {outcome}, wanted 0 (not decided), 8 (commit) or 12 (rollback)" in str(remark)
    assert plain.records() == [half_record()]


def test_an_ordinary_message_is_nobody_s_half(plain: PlainBroker) -> None:
    sent = send_half(plain, "PGROUP\x01producers", f="0")
    assert end(plain, sent)[1] == "Find prepared transaction message failed"


def test_a_delayed_transaction_is_delayed_when_it_is_committed(plain: PlainBroker) -> None:
    half = send_half(plain, f"{PROPERTIES}\x02DELAY\x012")
    assert end(plain, half) == (ResponseCode.SUCCESS, None)
    topics = [(stored.topic, stored.queue_id) for stored in plain.records()]
    assert topics == [(TRANS_HALF_TOPIC, 0), ("SCHEDULE_TOPIC_XXXX", 1), (TRANS_OP_HALF_TOPIC, 0)]
    delayed = plain.records()[1]
    assert "TRAN_MSG" not in delayed.properties
    assert (delayed.properties["REAL_TOPIC"], delayed.properties["REAL_QID"]) == (TOPIC, "1")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (PutStatus.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL),
        (PutStatus.OS_PAGECACHE_BUSY, ResponseCode.SYSTEM_ERROR),
    ],
)
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_an_end_that_cannot_be_stored_is_refused(
    plain: PlainBroker, outcome: int, status: PutStatus, code: ResponseCode
) -> None:
    half = send_half(plain)
    plain.rig.store.outcome = status
    assert end(plain, half, outcome)[0] == code
    assert plain.records() == [half_record()]


def test_half_messages_are_refused_where_the_setting_says_so(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, rejectTransactionMessage="true", brokerIP1="192.0.2.1")
    reply = asyncio.run(rig.send("TBW102", i=PROPERTIES))
    assert (reply.code, reply.remark) == (
        ResponseCode.NO_PERMISSION, "the broker[192.0.2.1] sending transaction message is forbidden",
    )  # fmt: skip


def test_the_half_topic_is_made_when_it_is_needed(plain: PlainBroker) -> None:
    find = plain.rig.broker.topics.find
    assert find(TRANS_HALF_TOPIC) is None
    send_half(plain)
    config = find(TRANS_HALF_TOPIC)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert find(TRANS_OP_HALF_TOPIC) is None


# The send worker ----------------------------------------------------------------------------------------------------


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[FastBroker]:
    with shared_segment() as segment:
        made = FastBroker(Log(tmp_path, segment, FILE_SIZE))
        yield made
        made.close()


def asked_the_broker_process(fast: FastBroker, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> bool:
    request = RemotingCommand(code, 99, ext_fields=ext, body=body)
    fast.client.sendall(request.encode())
    while True:
        kind, _, payload = fast.loop.told()
        if kind == LINK["REQUEST"]:
            return payload == request.encode()[4:]


def test_the_send_worker_leaves_what_is_rare_to_the_broker_process(fast: FastBroker) -> None:
    half = send_half(fast)
    delayed = f"{PROPERTIES}\x02DELAY\x012"
    assert asked_the_broker_process(fast, RequestCode.SEND_MESSAGE_V2, send_fields(delayed), b"body")
    for changes in (
        {"commitLogOffset": 1}, {"commitLogOffset": -1}, {"commitLogOffset": 1 << 40}, {"msgId": None},
        {"producerGroup": None}, {"commitLogOffset": "x"},
    ):  # fmt: skip
        assert asked_the_broker_process(fast, RequestCode.END_TRANSACTION, end_fields(half, **changes)), changes
    fast.log.segment.publish_topic(TOPIC.encode(), 4, 4, 4, False, False)
    assert asked_the_broker_process(fast, RequestCode.END_TRANSACTION, end_fields(half))
    assert fast.records() == [half_record()]


@pytest.mark.parametrize("outcome", [-1, 4, 99])
def test_an_end_that_is_none_of_the_three_is_for_the_broker_process(fast: FastBroker, outcome: int) -> None:
    assert asked_the_broker_process(fast, RequestCode.END_TRANSACTION, end_fields(send_half(fast), outcome))


def test_a_half_message_that_has_left_memory_is_for_the_broker_process(fast: FastBroker) -> None:
    half = send_half(fast)
    fast.log.segment.set("cold_end", 1)
    assert asked_the_broker_process(fast, RequestCode.END_TRANSACTION, end_fields(half))


def test_a_slave_s_send_worker_ends_nothing(fast: FastBroker) -> None:
    half = send_half(fast)
    fast.log.segment.set("store_flags", layout.constants("StoreFlag")["SLAVE"])
    for outcome in (0, COMMIT, ROLLBACK):
        assert asked_the_broker_process(fast, RequestCode.END_TRANSACTION, end_fields(half, outcome))


def test_a_slave_refuses_the_end_of_a_transaction(plain: PlainBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    half = send_half(plain)
    monkeypatch.setattr(type(plain.rig.broker), "is_slave", True)
    for outcome in (0, COMMIT, ROLLBACK):
        assert end(plain, half, outcome) == (ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SET)
    assert plain.records() == [half_record()]


def test_no_half_message_is_taken_where_the_setting_forbids_it(fast: FastBroker) -> None:
    fast.loop.change(refuses_halves=True)
    assert asked_the_broker_process(fast, RequestCode.SEND_MESSAGE_V2, send_fields(), b"body")
    fast.loop.change(refuses_halves=False)
    send_half(fast)


def test_a_oneway_end_is_carried_out_and_not_answered(fast: FastBroker) -> None:
    half = send_half(fast)
    request = RemotingCommand(RequestCode.END_TRANSACTION, 5, flag=2, ext_fields=end_fields(half))
    wrong = RemotingCommand(RequestCode.END_TRANSACTION, 6, flag=2, ext_fields=end_fields(half, producerGroup="x"))
    fast.client.sendall(wrong.encode() + request.encode())
    # The next answer is that of the next request.
    send_half(fast)
    assert [stored.topic for stored in fast.records()] == [
        TRANS_HALF_TOPIC,
        TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_HALF_TOPIC,
    ]


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_the_answer_to_an_end_waits_for_the_flush(tmp_path: Path, outcome: int) -> None:
    with shared_segment() as segment, contextlib.ExitStack() as stack:
        log = Log(tmp_path, segment, FILE_SIZE)
        fast = FastBroker(log, waits_for_flush=True, wakes_flush=True, sync_timeout_ms=SYNC_TIMEOUT_MS)
        stack.callback(fast.close)
        first = send_half(fast, PROPERTIES.replace("WAIT\x01true", "WAIT\x01false"))
        request = RemotingCommand(RequestCode.END_TRANSACTION, 5, ext_fields=end_fields(first, outcome))
        fast.client.sendall(request.encode())
        wait_until(lambda: fast.loop.word("parked") == 1, describe="the answer waits")
        end_of_both = log.end
        # The message alone is not enough where the op message behind it is not on disk.
        segment.set("flushed_offset", end_of_both - 1)
        fast.loop.wake()
        turns = fast.loop.word("turns")
        wait_until(lambda: fast.loop.word("turns") > turns + 1, describe="a turn")
        assert fast.loop.word("parked") == 1
        segment.set("flushed_offset", end_of_both)
        fast.loop.wake()
        (reply,) = replies(fast.client, 1)
        assert (reply.code, reply.remark) == (0, NOT_SET if outcome == ROLLBACK else None)
