"""Frames and fields that no honest client sends: a clear code or a closed connection, and nobody else is disturbed."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.processors.table import TABLE
from mqcore.codes import RequestCode, ResponseCode, SerializeType
from mqcore.errors import StoreError
from mqcore.layout import GROUP_CAPACITY
from mqcore.protocol import headers
from mqcore.protocol.command import FRAME_SIZE_MAX, RemotingCommand
from tests.fault.history import wait_for_acks
from tests.fault.rig import DEADLINE_S, SMALL_FILES, attach_segment, seeded, seeds, start_broker
from tests.fault.talker import Talker, max_offset_request, pull_request, pulled, send_request
from tests.integration.bad_frames import IMPOSSIBLE_FRAMES, RUBBISH, broken_headers, changed
from tests.integration.bystander import Peaceful, peaceful_broker
from tests.rigs import wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Target"
VICTIM = "Victim"  # of requests at random, some of which delete topics
MAX_MESSAGE_SIZE = 65_536  # of the broker, see SMALL_FILES
FUZZED_FRAMES = 300
FUZZED_FRAMES_SLOW = 30_000
RANDOM_CONNECTIONS = 60
ANSWER_S = CLOSED_S = DEADLINE_S
# Only the creation of a topic and a retry look at these, so a producer that leaves them out is served, as in RocketMQ.
UNUSED_BY_SENDS = {"producerGroup", "defaultTopic", "defaultTopicQueueNums", "maxReconsumeTimes", "a", "c", "d", "l"}
REPLY_CODES = {RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
SEND_CODES = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, *REPLY_CODES}

SEND = send_request(TOPIC, 0, b"a body").encode()
SEND_BINARY = send_request(TOPIC, 0, b"a body", serialize_type=SerializeType.ROCKETMQ).encode()
PULL = pull_request(TOPIC, 0, 0).encode()


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peaceful]:
    for running in peaceful_broker(tmp_path_factory.mktemp("bad-input"), deleted=frozenset({VICTIM})):
        wire.create_topic(running.address, TOPIC, queues=1)
        yield running


@pytest.fixture(autouse=True)
def others_go_on(peaceful: Peaceful) -> Iterator[None]:
    with peaceful.undisturbed():
        yield


def is_answered(peaceful: Peaceful) -> bool:
    with Talker(peaceful.address) as talker:
        return talker.call(max_offset_request(TOPIC, 0)).code == ResponseCode.SUCCESS


def end_of(peaceful: Peaceful) -> int:
    """The end of the queue, with everything in it that has been stored before: the queue follows the log."""
    wait_until(lambda: wire.is_dispatched(peaceful.address), DEADLINE_S, "everything is dispatched")
    return wire.max_offset(peaceful.address, TOPIC, 0)


# Frames ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", IMPOSSIBLE_FRAMES)
def test_an_impossible_frame_closes_its_connection_without_an_answer(peaceful: Peaceful, data: bytes) -> None:
    with Talker(peaceful.address) as talker:
        talker.socket.sendall(data)
        with pytest.raises(ConnectionError):
            talker.receive(CLOSED_S)


def test_the_largest_frame_is_taken(peaceful: Peaceful) -> None:
    command = send_request(TOPIC, 0, b"")
    command.body = bytes(FRAME_SIZE_MAX - len(command.encode()) - 16)
    with Talker(peaceful.address) as talker:
        response = talker.call(command)
    assert response.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("whole", [SEND, SEND_BINARY, PULL], ids=["json send", "binary send", "pull"])
def test_a_frame_cut_at_any_byte_does_nothing(peaceful: Peaceful, whole: bytes) -> None:
    end = end_of(peaceful)
    connections = []
    for cut in range(len(whole)):
        talker = Talker(peaceful.address)
        talker.socket.sendall(whole[:cut])
        connections.append(talker)
    assert is_answered(peaceful)
    for talker in connections:
        talker.socket.shutdown(socket.SHUT_WR)
        assert talker.is_closed_by_peer(CLOSED_S)
        talker.close()
    assert end_of(peaceful) == end


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_a_frame_split_at_any_byte_is_the_same_frame(peaceful: Peaceful, serialize_type: SerializeType) -> None:
    command = send_request(TOPIC, 0, b"split", serialize_type=serialize_type)
    whole = command.encode()
    first = end_of(peaceful)
    with Talker(peaceful.address) as talker:
        for cut in range(1, len(whole)):
            talker.socket.sendall(whole[:cut])
            # An answer to something else comes only after the first part has been read on its own.
            assert is_answered(peaceful)
            talker.socket.sendall(whole[cut:])
            response = talker.receive()
            assert (response.code, response.serialize_type) == (ResponseCode.SUCCESS, serialize_type)
            assert response.ext_fields is not None
            assert response.ext_fields["queueOffset"] == str(first + cut - 1)


def test_bytes_that_come_one_at_a_time_stay_with_their_connection(peaceful: Peaceful) -> None:
    """Several connections dribble frames at the same time; every body is stored as it was sent, once."""
    bodies = [f"dribble {number} ".encode() * 5 for number in range(20)]
    first = end_of(peaceful)
    talkers = [Talker(peaceful.address) for _ in bodies]
    frames = [send_request(TOPIC, 0, body).encode() for body in bodies]
    for at in range(max(map(len, frames))):
        for talker, data in zip(talkers, frames, strict=True):
            talker.socket.sendall(data[at : at + 1])
    offsets = {}
    for talker, body in zip(talkers, bodies, strict=True):
        response = talker.receive()
        assert response.code == ResponseCode.SUCCESS
        assert response.ext_fields is not None
        offsets[int(response.ext_fields["queueOffset"])] = body
        talker.close()
    assert sorted(offsets) == list(range(first, first + len(bodies)))
    assert end_of(peaceful) == first + len(bodies)
    with Talker(peaceful.address) as talker:
        for offset, body in offsets.items():
            assert pulled(talker.call(pull_request(TOPIC, 0, offset, count=1)))[0].body == body


def test_random_bytes_end_with_a_closed_connection_or_nothing(peaceful: Peaceful) -> None:
    rng = seeded(seeds(1)[0])
    for _ in range(RANDOM_CONNECTIONS):
        with Talker(peaceful.address) as talker:
            talker.socket.sendall(rng.randbytes(rng.randrange(1, 5000)))
            talker.socket.shutdown(socket.SHUT_WR)
            assert talker.is_closed_by_peer(CLOSED_S)


def fuzz(peaceful: Peaceful, rng: random.Random, count: int) -> None:
    """Send good frames with some bytes changed. Each gets an answer, a closed connection, or waits for more bytes."""
    samples = [SEND, SEND_BINARY, PULL, max_offset_request(TOPIC, 0).encode()]
    fields = {"topic": VICTIM, "queueId": "0"}
    samples += [RemotingCommand(code, ext_fields=fields, body=b"{}").encode() for code in TABLE]
    for _ in range(count):
        data = changed(rng.choice(samples), rng)
        with Talker(peaceful.address) as talker:
            talker.socket.sendall(data)
            talker.socket.shutdown(socket.SHUT_WR)
            assert talker.is_closed_by_peer(ANSWER_S), data


def test_changed_frames_are_answered_or_closed(peaceful: Peaceful) -> None:
    fuzz(peaceful, seeded(seeds(1)[0]), FUZZED_FRAMES)


@pytest.mark.slow
def test_many_changed_frames_are_answered_or_closed(peaceful: Peaceful) -> None:
    fuzz(peaceful, seeded(seeds(1)[0]), FUZZED_FRAMES_SLOW)


# Codes and fields -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, -1, 13, 100, 4711, 2**31 - 1])
@pytest.mark.parametrize("flag", [0, 2], ids=["request", "oneway"])
def test_an_unknown_code_is_told_so_even_if_nobody_asked_for_an_answer(
    peaceful: Peaceful, code: int, flag: int
) -> None:
    with Talker(peaceful.address) as talker:
        response = talker.call(RemotingCommand(code, flag=flag))
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert response.remark == f" request type {code} not supported"


def test_a_response_to_nothing_is_dropped(peaceful: Peaceful) -> None:
    with Talker(peaceful.address) as talker:
        talker.send([RemotingCommand(code, flag=1, body=b"x" * 100) for code in (0, 1, RequestCode.SEND_MESSAGE_V2)])
        assert talker.call(max_offset_request(TOPIC, 0)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", sorted(set(TABLE) & set(headers.REQUEST_HEADERS)))
def test_a_broken_header_is_an_error_and_not_silence(peaceful: Peaceful, code: int) -> None:
    end = end_of(peaceful)
    with Talker(peaceful.address) as talker:
        for what, ext_fields in broken_headers(code, UNUSED_BY_SENDS if code in SEND_CODES else frozenset()):
            response = talker.call(RemotingCommand(code, ext_fields=ext_fields, body=b"x"), ANSWER_S)
            assert response.code != ResponseCode.SUCCESS, what
            assert response.remark, what
    assert end_of(peaceful) == end


@pytest.mark.parametrize("code", sorted(TABLE))
def test_a_body_of_rubbish_gets_an_answer(peaceful: Peaceful, code: int) -> None:
    with Talker(peaceful.address) as talker:
        for body in RUBBISH:
            for ext_fields in (None, {"topic": VICTIM, "group": "g", "consumerGroup": "g", "queueId": "0"}):
                talker.call(RemotingCommand(code, ext_fields=ext_fields, body=body), ANSWER_S)


@pytest.mark.parametrize("group", ["g" * 256, "g" * 40_000, "a/b", "ünder"])
def test_a_pull_by_an_impossible_group_is_refused(peaceful: Peaceful, group: str) -> None:
    with Talker(peaceful.address) as talker:
        response = talker.call(pull_request(TOPIC, 0, 0, group=group), ANSWER_S)
    assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def fill_group_board(segment: SharedSegment) -> None:
    for number in range(GROUP_CAPACITY):
        segment.offset_row(f"group{number}".encode(), TOPIC.encode(), 0, True)


def test_a_pull_by_one_group_too_many_is_answered(tmp_path: Path) -> None:
    with start_broker(tmp_path, SMALL_FILES) as broker, Talker(broker.broker_address) as talker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        assert talker.call(pull_request(TOPIC, 0, 0, group="first")).code == ResponseCode.PULL_NOT_FOUND
        segment = attach_segment(broker)
        with pytest.raises(StoreError, match="group board"):
            fill_group_board(segment)
        assert talker.call(pull_request(TOPIC, 0, 0, group="last"), ANSWER_S).code == ResponseCode.SYSTEM_BUSY
        assert talker.call(pull_request(TOPIC, 0, 0, group="first")).code == ResponseCode.PULL_NOT_FOUND
        broker.stop()


# Topics and sizes -----------------------------------------------------------------------------------------------------

ILLEGAL_TOPICS = [
    "../../escape", "a/b", "/etc/passwd", ".", "..", "a.b", "a b", " ", "", "a\0b", "ünder", "\\x", "$HOME", "a" * 128,
    "a" * 5000,
]  # fmt: skip


def directories(peaceful: Peaceful) -> set[Path]:
    """Those beside and in the store, but for the queues of the well-behaved client, which come with its messages."""
    found = {Path(path) for path, _, _ in os.walk(peaceful.broker.store_dir.parent)}
    return {path for path in found if peaceful.history.topic not in path.parts}


@pytest.mark.parametrize("topic", ILLEGAL_TOPICS)
def test_an_illegal_topic_is_refused_and_leaves_no_trace(peaceful: Peaceful, topic: str) -> None:
    wait_for_acks(peaceful.history, 1, DEADLINE_S)
    wait_until(lambda: wire.is_dispatched(peaceful.address), DEADLINE_S, "what others have sent is dispatched")
    before = directories(peaceful)
    with Talker(peaceful.address) as talker:
        assert talker.call(send_request(topic, 0, b"x")).code == ResponseCode.SYSTEM_ERROR
        assert talker.call(pull_request(topic, 0, 0)).code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR)
    answer = wire.call(
        peaceful.address,
        wire.UPDATE_AND_CREATE_TOPIC,
        {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
         "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
    )  # fmt: skip
    assert answer.code == ResponseCode.SYSTEM_ERROR
    wait_until(lambda: wire.is_dispatched(peaceful.address), DEADLINE_S, "everything is dispatched")
    assert directories(peaceful) <= before
    assert not Path("/etc/passwd/0").exists()


@pytest.mark.parametrize("queue_id", [1, 8, 2**31 - 1])
def test_a_queue_that_is_not_there_is_refused(peaceful: Peaceful, queue_id: int) -> None:
    with Talker(peaceful.address) as talker:
        assert talker.call(send_request(TOPIC, queue_id, b"x")).code == ResponseCode.SYSTEM_ERROR
        assert talker.call(pull_request(TOPIC, queue_id, 0)).code == ResponseCode.SYSTEM_ERROR


def test_a_body_at_the_limit_is_taken_and_one_above_is_not(peaceful: Peaceful) -> None:
    with Talker(peaceful.address) as talker:
        taken = talker.call(send_request(TOPIC, 0, bytes(MAX_MESSAGE_SIZE)))
        assert taken.code == ResponseCode.SUCCESS
        assert taken.ext_fields is not None
        end = int(taken.ext_fields["queueOffset"]) + 1
        assert end_of(peaceful) == end
        for size in (MAX_MESSAGE_SIZE + 1, 2 * MAX_MESSAGE_SIZE, 4 << 20):
            response = talker.call(send_request(TOPIC, 0, bytes(size)))
            assert response.code == ResponseCode.MESSAGE_ILLEGAL
            assert f"msg body length limit {MAX_MESSAGE_SIZE}B" in (response.remark or "")
        assert talker.call(send_request(TOPIC, 0, b"x", keys="k" * 33_000)).code == ResponseCode.MESSAGE_ILLEGAL
    assert end_of(peaceful) == end


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\0" * 20, struct.pack(">iiiii", 1 << 30, 0, 0, 0, 1 << 30), struct.pack(">iiiii", 40, 0, 0, 0, -1),
     struct.pack(">iiiii", 22, 0, 0, 0, 0) + b"\x7f\xff", struct.pack(">iiiii", -1, -1, -1, -1, 0) + b"\0\0x"],
)  # fmt: skip
def test_a_batch_of_lying_lengths_is_refused_whole(peaceful: Peaceful, body: bytes) -> None:
    end = end_of(peaceful)
    with Talker(peaceful.address) as talker:
        command = send_request(TOPIC, 0, body, code=RequestCode.SEND_BATCH_MESSAGE, is_batch=True)
        assert talker.call(command).code == ResponseCode.MESSAGE_ILLEGAL
    assert end_of(peaceful) == end
