"""Answers of request-reply in a send worker: pushed to askers that it knows, kept, and answered by their word."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_rig import Log, shared_segment
from test_fast_send_loop import DEADLINE_S, FILE_SIZE, LINK, LoopRig, heart_beat, running

from mqcore import layout
from mqcore.codes import RemotingFlag, RequestCode, ResponseCode, SerializeType
from mqcore.protocol import headers
from mqcore.protocol.command import FrameSplitter, RemotingCommand
from mqcore.protocol.properties import decode_properties
from mqcore.store.log.record import Record
from tests.waiting import wait_until

TOPIC = b"orders"
ASKER = "192.0.2.1@asker"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
TEXT = f"CORRELATION_ID\x01id-1\x02REPLY_TO_CLIENT\x01{ASKER}\x02MSG_TYPE\x01reply\x02TTL\x013000\x02WAIT\x01true"
BODY = b"an answer"
ANSWER = {
    "producer_group": "answerers", "topic": TOPIC.decode(), "default_topic": "TBW102", "default_topic_queue_nums": 4,
    "queue_id": 1, "sys_flag": 1, "born_timestamp": 1_700_000_000_000, "flag": 9, "properties": TEXT,
    "reconsume_times": 2, "unit_mode": False,
}  # fmt: skip
SMALL_TIMEOUT_MS = 200


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with shared_segment() as segment:
        yield Log(tmp_path, segment, FILE_SIZE)


@pytest.fixture
def loop(log: Log) -> Iterator[LoopRig]:
    with running(log) as rig:
        yield rig


class Peer:
    """A client of the loop; ``introduce`` tells its id."""

    def __init__(self, loop: LoopRig, **options: Any) -> None:
        self.loop = loop
        self.socket = loop.connect(**options)
        self._splitter = FrameSplitter()
        self._frames: list[RemotingCommand] = []

    def introduce(self) -> int:
        self.socket.sendall(heart_beat(1).encode())
        identity = self.loop.introduced(self.socket)
        self.loop.told()
        return identity

    def take_answers(self, name: str = ASKER) -> int:
        """Have the loop push answers to *name* here; the connection's id."""
        identity = self.introduce()
        self.loop.tell(LINK["ASKER"], identity, name.encode())
        self._wait_until_told(identity)
        return identity

    def _wait_until_told(self, identity: int) -> None:
        self.loop.tell(LINK["FRAME"], identity, heart_beat(77).encode())
        assert self.next().opaque == 77

    def forget_answers(self, identity: int) -> None:
        self.loop.tell(LINK["ASKER"], identity)
        self._wait_until_told(identity)

    def next(self) -> RemotingCommand:
        while not self._frames:
            data = self.socket.recv(65536)
            assert data, "the loop has closed the connection"
            self._frames += [RemotingCommand.decode(payload) for payload in self._splitter.feed(data)]
        return self._frames.pop(0)

    def say(self, push: RemotingCommand, code: int = ResponseCode.SUCCESS, remark: str | None = None) -> None:
        self.socket.sendall(push.reply(code, remark).encode())

    def answer(self, opaque: int = 5, code: int = RequestCode.SEND_REPLY_MESSAGE_V2, **changes: Any) -> RemotingCommand:
        request = reply_request(opaque, code, **changes)
        self.socket.sendall(request.encode())
        return request


def kept(log: Log) -> list[Record]:
    """What has been stored; a log without a message has no file."""
    return log.check() if log.end else []


def reply_request(
    opaque: int, code: int = RequestCode.SEND_REPLY_MESSAGE_V2, body: bytes = BODY, **changes: Any
) -> RemotingCommand:
    return RemotingCommand(code, opaque, ext_fields=headers.encode_request(code, **ANSWER | changes), body=body)


@pytest.fixture
def asker(loop: LoopRig) -> Iterator[Peer]:
    peer = Peer(loop)
    peer.take_answers()
    yield peer
    peer.socket.close()


@pytest.fixture
def answerer(loop: LoopRig) -> Iterator[Peer]:
    peer = Peer(loop)
    yield peer
    peer.socket.close()


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.ROCKETMQ], ids=lambda kind: kind.name)
def test_an_answer_is_kept_pushed_and_answered_by_the_askers_word(
    log: Log, asker: Peer, answerer: Peer, code: int, kind: SerializeType
) -> None:
    request = reply_request(5, code)
    request.serialize_type = kind
    answerer.socket.sendall(request.encode())
    push = asker.next()
    assert (push.code, push.flag, push.serialize_type, push.body) == (PUSH, 0, SerializeType.JSON, BODY)
    assert push.opaque & layout.PUSH_NUMBER_BIT
    values = headers.decode_request(PUSH, push.ext_fields)
    properties = decode_properties(values.pop("properties"))
    assert properties == decode_properties(TEXT) | {"PUSH_REPLY_TIME": str(values["store_timestamp"])}
    ip, port = answerer.socket.getsockname()
    assert values == {name: value for name, value in ANSWER.items() if name != "properties"} | {
        "born_host": f"{ip}:{port}", "store_host": "127.0.0.1:10911", "store_timestamp": values["store_timestamp"],
    }  # fmt: skip
    asker.say(push)
    (record,) = kept(log)
    fields = {
        "queueId": "1", "TRACE_ON": "true", "MSG_REGION": "here", "queueOffset": "0",
        "msgId": f"7F00000100002A9F{record.physical_offset:016X}",
    }  # fmt: skip
    assert answerer.next() == request.reply(ext_fields=fields)
    assert (record.body, record.topic, record.queue_id, record.flag, record.sys_flag) == (BODY, TOPIC, 1, 9, 0)
    assert (record.properties, record.reconsume_times) == (TEXT.encode(), 2)
    assert (record.born_host.port, record.born_timestamp) == (port, ANSWER["born_timestamp"])


def test_answers_are_pushed_and_not_kept_where_that_is_switched_off(log: Log) -> None:
    with running(log, keeps_replies=False) as loop:
        asker, answerer = Peer(loop), Peer(loop)
        with asker.socket, answerer.socket:
            asker.take_answers()
            request = answerer.answer(queue_id=-1)
            push = asker.next()
            assert (push.ext_fields or {})["queueId"] == "-1"
            asker.say(push)
            told = answerer.next()
            fields = dict(told.ext_fields or {})
            assert int(fields.pop("queueId")) in range(4)
            assert fields == {"TRACE_ON": "true", "MSG_REGION": "here", "msgId": "0", "queueOffset": "0"}
            assert (told.code, told.opaque) == (ResponseCode.SUCCESS, request.opaque)
    assert kept(log) == []


def test_whether_answers_are_kept_may_change_while_the_loop_runs(
    loop: LoopRig, log: Log, asker: Peer, answerer: Peer
) -> None:
    for keeps, count in ((False, 0), (True, 1)):
        loop.change(keeps_replies=keeps)
        answerer.answer()
        asker.say(asker.next())
        answerer.next()
        assert len(kept(log)) == count


@pytest.mark.parametrize("keeps", [True, False])
def test_an_answer_that_is_refused_is_an_error_and_kept_all_the_same(log: Log, keeps: bool) -> None:
    with running(log, keeps_replies=keeps) as loop:
        asker, answerer = Peer(loop), Peer(loop)
        with asker.socket, answerer.socket:
            asker.take_answers()
            answerer.answer()
            asker.say(asker.next(), ResponseCode.SYSTEM_ERROR, 'why "not"\n')
            assert_not_taken(answerer.next(), is_kept=keeps)
    assert len(kept(log)) == keeps


def assert_not_taken(told: RemotingCommand, *, is_kept: bool) -> None:
    assert (told.code, told.remark) == (ResponseCode.SYSTEM_ERROR, f"push reply message to {ASKER}fail.")
    assert ({"msgId", "queueId", "queueOffset"} <= (told.ext_fields or {}).keys()) is is_kept


def test_an_asker_that_goes_has_not_taken_what_was_pushed(log: Log, asker: Peer, answerer: Peer) -> None:
    for opaque in range(3):
        answerer.answer(opaque)
    pushes = [asker.next() for _ in range(3)]
    asker.say(pushes[1])
    assert answerer.next().opaque == 1
    asker.socket.close()
    for opaque in (0, 2):
        told = answerer.next()
        assert told.opaque == opaque
        assert_not_taken(told, is_kept=True)
    assert len(kept(log)) == 3


def test_an_asker_that_says_nothing_has_its_time(log: Log) -> None:
    with running(log, push_timeout_ms=SMALL_TIMEOUT_MS) as loop:
        asker, answerer = Peer(loop), Peer(loop)
        with asker.socket, answerer.socket:
            asker.take_answers()
            answerer.answer()
            push = asker.next()
            assert_not_taken(answerer.next(), is_kept=True)
            # Its word is too late, and is for nobody.
            asker.say(push)
            answerer.answer(6)
            asker.say(asker.next())
            assert answerer.next().opaque == 6


def test_an_answerer_that_goes_leaves_nothing_behind(loop: LoopRig, asker: Peer) -> None:
    first, second = Peer(loop), Peer(loop)
    first.answer()
    push = asker.next()
    first.socket.close()
    with second.socket:
        second.answer(6)
        late = asker.next()
        asker.say(push)
        asker.say(late)
        assert (second.next().opaque, loop.word("protocol_errors")) == (6, 0)


def test_the_word_of_another_connection_is_not_the_askers(loop: LoopRig, asker: Peer, answerer: Peer) -> None:
    other = Peer(loop)
    with other.socket:
        answerer.answer()
        push = asker.next()
        other.say(push, ResponseCode.SYSTEM_ERROR)
        other.introduce()
        asker.say(push)
        assert answerer.next().code == ResponseCode.SUCCESS


def test_the_broker_process_hands_back_a_word_that_could_not_be_read(loop: LoopRig, log: Log, answerer: Peer) -> None:
    asker = Peer(loop)
    with asker.socket:
        identity = asker.take_answers()
        answerer.answer()
        push = asker.next()
        odd = push.reply(remark="why").encode().replace(b'"remark":"why"', b'"remark":[["w"]]')
        asker.socket.sendall(odd)
        assert loop.told()[:2] == (LINK["REQUEST"], identity)
        word = RemotingCommand(ResponseCode.SUCCESS, push.opaque, flag=int(RemotingFlag.RESPONSE))
        loop.tell(LINK["INJECT"], identity, word.encode()[4:])
        assert answerer.next().code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"properties": None}, id="nobody is named"),
        pytest.param({"properties": "REPLY_TO_CLIENT\x01gone"}, id="who is not known here"),
        pytest.param({"properties": TEXT + "\x02DELAY\x013"}, id="delayed"),
        pytest.param({"properties": TEXT + "\x02TIMER_DELAY_MS\x013"}, id="with a timer"),
        pytest.param({"properties": TEXT + "\x02INNER_MULTI_DISPATCH\x01a,b"}, id="for further queues"),
        pytest.param({"properties": TEXT + "\x02long\x01" + "x" * 40_000}, id="with too long properties"),
        pytest.param({"topic": "unknown"}, id="to an unknown topic"),
        pytest.param({"queue_id": 4}, id="to a queue that is not there"),
        pytest.param({"body": b""}, id="empty"),
        pytest.param({"body": bytes(200_000)}, id="too large"),
        pytest.param({"producer_group": ""}, id="of no group"),
    ],
)
def test_what_is_unusual_is_left_to_the_broker_process(
    loop: LoopRig, log: Log, asker: Peer, answerer: Peer, changes: dict[str, Any]
) -> None:
    identity = answerer.introduce()
    request = answerer.answer(**changes)
    assert loop.told() == (LINK["REQUEST"], identity, request.encode()[4:])
    assert kept(log) == []


def test_a_oneway_answer_is_left_to_the_broker_process(loop: LoopRig, asker: Peer, answerer: Peer) -> None:
    identity = answerer.introduce()
    request = reply_request(5)
    request.flag = int(RemotingFlag.ONEWAY)
    answerer.socket.sendall(request.encode())
    assert loop.told()[:2] == (LINK["REQUEST"], identity)


def test_answers_that_wait_for_the_disk_are_left_to_the_broker_process(log: Log) -> None:
    with running(log, waits_for_flush=True) as loop:
        asker, answerer = Peer(loop), Peer(loop)
        with asker.socket, answerer.socket:
            asker.take_answers()
            identity = answerer.introduce()
            answerer.answer()
            assert loop.told()[:2] == (LINK["REQUEST"], identity)
            answerer.answer(properties=TEXT.replace("WAIT\x01true", "WAIT\x01false"))
            asker.say(asker.next())
            assert answerer.next().code == ResponseCode.SUCCESS


def test_a_client_that_is_forgotten_gets_nothing_from_here(loop: LoopRig, answerer: Peer) -> None:
    asker, other = Peer(loop), Peer(loop)
    with asker.socket, other.socket:
        identity = asker.take_answers()
        mine = answerer.introduce()
        asker.forget_answers(identity)
        answerer.answer()
        assert loop.told()[:2] == (LINK["REQUEST"], mine)
        # It has another connection, which takes its answers from now on; the first may be somebody else.
        other.take_answers()
        answerer.answer(6)
        other.say(other.next())
        assert answerer.next().opaque == 6
        loop.tell(LINK["ASKER"], identity, b"somebody else")
        asker.forget_answers(identity)
        answerer.answer(7)
        other.say(other.next())
        assert answerer.next().opaque == 7


def test_many_askers_are_told_apart(loop: LoopRig, answerer: Peer) -> None:
    peers = {f"192.0.2.1@{number}": Peer(loop) for number in range(50)}
    with contextlib.ExitStack() as stack:
        for name, peer in peers.items():
            stack.enter_context(peer.socket)
            peer.take_answers(name)
        for name, peer in list(peers.items())[::2]:
            peer.socket.close()
            del peers[name]
        for name, peer in peers.items():
            answerer.answer(properties=f"REPLY_TO_CLIENT\x01{name}", body=name.encode())
            push = peer.next()
            assert push.body == name.encode()
            peer.say(push)
            answerer.next()


def test_no_more_pushes_are_under_way_than_there_is_room_for(loop: LoopRig, asker: Peer, answerer: Peer) -> None:
    identity = answerer.introduce()
    loop.change(keeps_replies=False)
    frame = reply_request(5, body=b"x", properties=f"REPLY_TO_CLIENT\x01{ASKER}").encode()
    sent = 0
    while sent < layout.PUSHES_MAX:
        count = min(64, layout.PUSHES_MAX - sent)
        answerer.socket.sendall(frame * count)
        sent += count
        pushes = [asker.next() for _ in range(count)]
    answerer.socket.sendall(frame)
    assert loop.told()[:2] == (LINK["REQUEST"], identity)
    # One that has been taken makes room, when its place comes round again.
    asker.say(pushes[-1])
    assert answerer.next().code == ResponseCode.SUCCESS


def test_an_asker_that_reads_nothing_is_closed_and_its_answers_have_failed(log: Log) -> None:
    with running(log, write_buffer_max=1 << 18, keeps_replies=False) as loop:
        loop.limit_socket_buffers()
        asker, answerer = Peer(loop, receive_buffer_size=4096), Peer(loop)
        with asker.socket, answerer.socket:
            asker.take_answers()
            body, count = bytes(20_000), 60
            for opaque in range(count):
                answerer.answer(opaque, body=body)
            wait_until(lambda: loop.word("slow_readers") == 1, DEADLINE_S, "the asker is cut off")
            told = answerer.next()
            assert_not_taken(told, is_kept=False)


def test_a_loop_that_stops_lets_go_of_what_is_under_way(log: Log) -> None:
    with running(log) as loop:
        asker, answerer = Peer(loop), Peer(loop)
        with asker.socket, answerer.socket:
            asker.take_answers()
            for opaque in range(10):
                answerer.answer(opaque)
            asker.next()
