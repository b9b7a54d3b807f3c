"""Answers of request-reply find who asked, or say who did not get them: over send workers, deaths, and bad askers."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.bodies import HeartbeatData, ProducerData
from mqcore.protocol.command import RemotingCommand
from tests.fault.rig import DEADLINE_S, start_broker, worker_kind
from tests.fault.talker import Talker
from tests.rigs import MqcoreBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
MIB = 1 << 20
PUSHED_AT_ONCE = 8
DEAF_ANSWERS = 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    """Two send workers, so that an asker may be at another one than the answerer."""
    properties = {
        "bindAddress": "127.0.0.1", "sendWorkerNums": "2", "connectionWriteBufferBytes": str(8 * MIB),
        "workerRestartBackoffMillis": "1",
    }  # fmt: skip
    with start_broker(tmp_path_factory.mktemp("replies"), properties) as running:
        yield running


class Asker(Talker):
    """A producer that asks, by the client id *name*."""

    def __init__(self, broker: MqcoreBroker, name: str, **options: int) -> None:
        super().__init__(broker.broker_address, receive_buffer_size=options.get("receive_buffer_size"))
        self.name = name
        beat = HeartbeatData(name, [ProducerData("askers")], []).encode()
        assert self.call(RemotingCommand(RequestCode.HEART_BEAT, body=beat)).code == ResponseCode.SUCCESS

    def take(self, code: int = ResponseCode.SUCCESS) -> bytes:
        push = self.receive()
        assert push.code == PUSH
        self.socket.sendall(push.reply(code, "so it is").encode())
        return push.body


def reply_to(name: str, body: bytes) -> RemotingCommand:
    code = RequestCode.SEND_REPLY_MESSAGE_V2
    fields = headers.encode_request(
        code, producer_group="answerers", topic=REPLY_TOPIC, default_topic="TBW102", default_topic_queue_nums=1,
        queue_id=0, sys_flag=0, born_timestamp=1_700_000_000_000, flag=0,
        properties=f"CORRELATION_ID\x01id\x02REPLY_TO_CLIENT\x01{name}\x02TTL\x013000\x02MSG_TYPE\x01reply",
        reconsume_times=0, unit_mode=False,
    )  # fmt: skip
    return RemotingCommand(code, ext_fields=fields, body=body)


def answer(answerer: Talker, asker: Asker, body: bytes, says: int = ResponseCode.SUCCESS) -> RemotingCommand:
    """One answer, taken or refused; what the answerer hears."""
    answerer.send([reply_to(asker.name, body)])
    assert asker.take(says) == body
    return answerer.receive()


def send_workers(broker: MqcoreBroker) -> list[psutil.Process]:
    found = []
    for process in broker.workers():
        with contextlib.suppress(psutil.Error, ValueError):  # it is dying, or not a worker yet
            if process.status() != psutil.STATUS_ZOMBIE and worker_kind(process) == "send":
                found.append(process)
    return found


def memory_bytes(workers: list[psutil.Process]) -> int:
    """What is theirs alone: the log that they map is not."""
    return sum(worker.memory_full_info().uss for worker in workers)


def failed(name: str) -> tuple[int, str]:
    return ResponseCode.SYSTEM_ERROR, f"push reply message to {name}fail."


def not_found(name: str) -> tuple[int, str]:
    return ResponseCode.SYSTEM_ERROR, f"push reply message fail, channel of <{name}> not found."


def test_answers_find_askers_at_every_send_worker(broker: MqcoreBroker) -> None:
    """The first goes over the broker process, the next ones do not, where asker and answerer are at one worker."""
    with contextlib.ExitStack() as stack:
        askers = [stack.enter_context(Asker(broker, f"a@{number}")) for number in range(PUSHED_AT_ONCE)]
        answerers = [stack.enter_context(Talker(broker.broker_address)) for _ in range(4)]
        for turn in range(3):
            for asker in askers:
                for answerer in answerers:
                    told = answer(answerer, asker, f"{turn} {asker.name}".encode())
                    assert (told.code, (told.ext_fields or {})["queueId"]) == (ResponseCode.SUCCESS, "0")
        for asker in askers:
            told = answer(answerers[0], asker, b"x", ResponseCode.SYSTEM_ERROR)
            assert (told.code, told.remark) == failed(asker.name)


def test_answers_go_to_the_newest_connection_of_their_asker(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as answerer, Asker(broker, "moves") as first:
        for number in range(3):
            answer(answerer, first, b"%d" % number)
        with Asker(broker, "moves") as second:
            for number in range(3):
                answer(answerer, second, b"%d" % number)
        wait_until(
            lambda: (
                (told := answerer.call(reply_to("moves", b"x"))).remark == not_found("moves")[1]
                and told.code == ResponseCode.SYSTEM_ERROR
            ),
            DEADLINE_S,
            "the newest is gone, and RocketMQ knows no older one",
        )


def test_an_asker_that_says_good_bye_gets_no_more_answers(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as answerer, Asker(broker, "leaves") as asker:
        answer(answerer, asker, b"1")
        answer(answerer, asker, b"2")
        fields = {"clientID": asker.name, "producerGroup": "askers"}
        bye = RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=fields)
        assert asker.call(bye).code == ResponseCode.SUCCESS
        told = answerer.call(reply_to(asker.name, b"3"))
        assert (told.code, told.remark) == not_found(asker.name)


def test_an_asker_that_is_gone_fails_what_it_has_not_taken_at_once(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address, timeout_s=8.0) as answerer:
        asker = Asker(broker, "goes")
        answer(answerer, asker, b"first")
        answerer.send([reply_to(asker.name, b"%d" % number) for number in range(PUSHED_AT_ONCE)])
        asker.receive()
        asker.close()
        # Without the ten seconds for which an asker may think.
        told = [answerer.receive() for _ in range(PUSHED_AT_ONCE)]
        assert {(reply.code, reply.remark) for reply in told} <= {failed("goes"), not_found("goes")}


@pytest.mark.parametrize("size", [1 * MIB, 4 * MIB, 4 * MIB + 1, 6 * MIB])
def test_large_answers_arrive_whole(broker: MqcoreBroker, size: int) -> None:
    """Also one that is too large to be kept: that it is not is no reason not to push it."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with Talker(broker.broker_address) as answerer, Asker(broker, f"large {size}") as asker:
        for _ in range(2):
            told = answer(answerer, asker, body)
            is_kept = size <= 4 * MIB
            assert (told.code, (told.ext_fields or {})["msgId"] != "0") == (ResponseCode.SUCCESS, is_kept)


def test_an_asker_that_reads_nothing_costs_bounded_memory_and_is_closed(broker: MqcoreBroker) -> None:
    workers = send_workers(broker)
    before = memory_bytes(workers)
    body = bytes(MIB)
    with (
        Talker(broker.broker_address) as answerer,
        Talker(broker.broker_address) as other,
        Asker(broker, "deaf", receive_buffer_size=4096) as deaf,
        Asker(broker, "good") as good,
    ):
        answer(answerer, deaf, b"first")
        answer(other, good, b"first")
        count = DEAF_ANSWERS
        for _ in range(count):
            answerer.send([reply_to(deaf.name, body)])
            # Others get theirs meanwhile.
            assert answer(other, good, b"x").code == ResponseCode.SUCCESS
        told = [answerer.receive() for _ in range(count)]
        assert {(reply.code, reply.remark) for reply in told} <= {failed("deaf"), not_found("deaf")}
        grown = memory_bytes(workers) - before
        assert grown < DEAF_ANSWERS * MIB // 2, f"grown by {grown >> 20} MiB"


def test_answers_go_on_after_the_death_of_a_send_worker(broker: MqcoreBroker) -> None:
    with Talker(broker.broker_address) as answerer, Asker(broker, "before") as asker:
        answer(answerer, asker, b"1")
        answerer.send([reply_to(asker.name, b"2")])
        asker.receive()
        dead = {worker.pid for worker in send_workers(broker)}
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: len({worker.pid for worker in send_workers(broker)} - dead) == len(dead),
            DEADLINE_S,
            "both have successors",
        )
    with Talker(broker.broker_address) as answerer, Asker(broker, "before") as asker:
        for number in range(3):
            assert answer(answerer, asker, b"%d" % number).code == ResponseCode.SUCCESS
