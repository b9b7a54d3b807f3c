"""Questions and answers: between clients of all kinds, over two brokers, and beside Apache's broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from mqcore import aio
from mqcore.codes import MQVersion, RequestCode, ResponseCode, SysFlag
from mqcore.protocol import headers
from mqcore.protocol.bodies import HeartbeatData, ProducerData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.message_id import decode_offset_message_id
from mqcore.protocol.properties import decode_properties
from tests.fault.talker import Talker, view_request
from tests.rigs import ApacheServer, Corpus, GoClient, JavaDriver, MqcoreBroker, RunningBroker, make_topic, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 4
"""As many as the default topic has: Java's client takes that one's route when its name server answers late."""
QUESTIONS = 4
ROUNDS_MAX = 20
DEADLINE_S = 60.0

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


@asynccontextmanager
async def python_answerer(name_server: str, topic: str) -> AsyncIterator[None]:
    async with aio.Client(name_server) as mq, mq.producer(f"P_{topic}") as producer:

        async def handle(question: aio.ReceivedMessage) -> None:
            await producer.reply(question, b"re: " + question.body, timeout_s=DEADLINE_S)

        async with mq.consumer(f"G_{topic}", topic, handler=handle, from_where="earliest"):
            yield


@asynccontextmanager
async def driven_answerer(driver: JavaDriver | GoClient, name_server: str, topic: str) -> AsyncIterator[None]:
    child = await asyncio.to_thread(driver.answerer, name_server, topic, f"G_{topic}")
    with child:
        yield


@dataclass(frozen=True)
class Clients:
    """Whoever can ask and answer, by name."""

    drivers: dict[str, JavaDriver | GoClient]
    corpus: Corpus

    def answerer(self, name: str, name_server: str, topic: str) -> Any:
        if name == "python":
            return python_answerer(name_server, topic)
        return driven_answerer(self.drivers[name], name_server, topic)

    async def ask(self, name: str, name_server: str, topic: str) -> list[str]:
        """Ask with the first lines of the corpus, one after the other, and give the answers."""
        if name != "python":
            replies = await asyncio.to_thread(
                self.drivers[name].request, name_server, topic, self.corpus.path, count=QUESTIONS, timeout_ms=30_000
            )
            return [reply["body"] for reply in replies]
        async with aio.Client(name_server) as mq, mq.producer(f"A_{topic}") as producer:
            questions = [aio.Message(topic, line) for line in self.corpus.lines()[:QUESTIONS]]
            return [(await producer.request(question, DEADLINE_S)).body.decode() for question in questions]

    @property
    def wanted(self) -> list[str]:
        return ["re: " + line.decode() for line in self.corpus.lines()[:QUESTIONS]]


@pytest.fixture(scope="module")
def clients(java_4_9_8: JavaDriver, java_5_3_3: JavaDriver, go_client: GoClient, corpus: Corpus) -> Clients:
    return Clients({"java 4.9.8": java_4_9_8, "java 5.3.3": java_5_3_3, "go": go_client}, corpus)


PAIRS = [("python", "java 4.9.8"), ("java 4.9.8", "python"), ("java 5.3.3", "go"), ("go", "java 4.9.8")]
MORE_PAIRS = [("java 4.9.8", "java 5.3.3"), ("python", "go"), ("go", "python"), ("python", "python"), ("go", "go")]


@pytest.mark.parametrize("pairs", [PAIRS, pytest.param(MORE_PAIRS, marks=pytest.mark.slow)], ids=["some", "more"])
async def test_every_client_gets_the_answers_of_every_other(
    mq_broker: RunningBroker, clients: Clients, pairs: list[tuple[str, str]]
) -> None:
    async def exchange(number: int, asker: str, answerer: str) -> list[str]:
        topic = make_topic(mq_broker, f"Questions{number}of{len(pairs)}", QUEUES)
        async with clients.answerer(answerer, mq_broker.name_server, topic):
            return await clients.ask(asker, mq_broker.name_server, topic)

    # Side by side, as each pair waits for processes to start.
    answers = await asyncio.gather(*(exchange(number, *pair) for number, pair in enumerate(pairs)))
    assert dict(zip(pairs, answers, strict=True)) == dict.fromkeys(pairs, clients.wanted)


# Two brokers of one cluster.


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MqcoreBroker, MqcoreBroker]]:
    """Two brokers of mqcore behind the name server of the first."""
    directory = tmp_path_factory.mktemp("two")
    with MqcoreBroker(directory / "first") as first:
        elsewhere = {
            "brokerName": "broker-b",
            "namesrvAddr": first.name_server,
            "namesrvListenPort": first.properties["namesrvListenPort"],
        }
        with MqcoreBroker(directory / "second", elsewhere) as second:
            wait_until(lambda: brokers_of(first.name_server, REPLY_TOPIC) == 2, describe="two brokers with answers")
            yield first, second


def brokers_of(name_server: str, topic: str) -> int:
    answer = wire.call(name_server, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return len(answer.json()["brokerDatas"]) if answer.code == wire.SUCCESS else 0


@pytest.mark.parametrize(("asker", "answerer"), [("java 4.9.8", "python"), ("python", "java 4.9.8")])
async def test_answers_find_the_asker_over_two_brokers(
    two_brokers: tuple[MqcoreBroker, MqcoreBroker], clients: Clients, asker: str, answerer: str
) -> None:
    """The reply topic is on both, and takes turns: an answer may go to another broker than its question did."""
    topic = f"Questions_of_{asker[:4]}"
    for broker in two_brokers:
        wire.create_topic(broker.broker_address, topic, queues=QUEUES)
    name_server = two_brokers[0].name_server
    wait_until(lambda: brokers_of(name_server, topic) == 2, describe=f"both brokers in the route of {topic}")
    before = stored_answers(two_brokers)
    after, rounds = before, 0
    async with clients.answerer(answerer, name_server, topic):
        # Each of Java's threads takes turns by itself, from a random queue on: a few answers may all go to one broker.
        while not all(now > then for now, then in zip(after, before, strict=True)):
            assert rounds < ROUNDS_MAX, f"{after} answers beside {before}"
            assert await clients.ask(asker, name_server, topic) == clients.wanted
            after, rounds = stored_answers(two_brokers), rounds + 1
    # One that does not know the asker yet stores an answer and says so, and it goes to the other one as well.
    assert sum(after) - sum(before) >= rounds * QUESTIONS


def stored_answers(brokers: tuple[MqcoreBroker, MqcoreBroker]) -> list[int]:
    for broker in brokers:
        wait_until(lambda broker=broker: wire.is_dispatched(broker.broker_address), describe="answers dispatched")
    return [wire.max_offset(broker.broker_address, REPLY_TOPIC, 0) for broker in brokers]


@pytest.mark.parametrize(("asker", "answerer"), [("java 4.9.8", "python"), ("python", "java 4.9.8")])
async def test_an_answer_at_a_broker_that_does_not_know_the_asker_is_sent_to_another(
    two_brokers: tuple[MqcoreBroker, MqcoreBroker], clients: Clients, asker: str, answerer: str
) -> None:
    """The topic is on the first broker alone, so that its asker knows no other; the answerer tries until one does."""
    first, topic = two_brokers[0], f"Local_questions_of_{asker[:4]}"
    wire.create_topic(first.broker_address, topic, queues=QUEUES)
    async with clients.answerer(answerer, first.name_server, topic):
        assert await clients.ask(asker, first.name_server, topic) == clients.wanted


# Beside Apache's broker.

ASKER = "192.0.2.1@asker"
CORRELATED = f"CORRELATION_ID\x01id\x02REPLY_TO_CLIENT\x01{ASKER}\x02MSG_TYPE\x01reply\x02TTL\x013000"
CHANGING = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=PUSH_REPLY_TIME\x01)\d+")

# How the header differs from an ordinary answer's, and what the asker says to the push, None if there is none.
ANSWERS: dict[str, tuple[dict[str, Any], int | None]] = {
    "ordinary": ({}, 0),
    "compressed": ({"sys_flag": int(SysFlag.COMPRESSED), "flag": 3}, 0),
    "to any queue": ({"queue_id": -1, "reconsume_times": 4}, 0),
    "with properties of sends": ({"properties": CORRELATED + "\x02WAIT\x01true\x02TAGS\x01t\x02KEYS\x01k"}, 0),
    "delayed": ({"properties": CORRELATED + "\x02DELAY\x011"}, 0),
    "refused by its asker": ({}, 1),
    "to nobody": ({"properties": None}, None),
    "to who is not there": ({"properties": "REPLY_TO_CLIENT\x01gone"}, None),
    "to a queue that is not there": ({"queue_id": 7}, None),
    "to a topic that is made for it": ({"topic": "Made"}, 0),
    "to a topic that nobody may send to": ({"topic": "OFFSET_MOVED_EVENT"}, None),
    "to a topic that cannot be": ({"topic": "a b"}, None),
}


def reply_request(code: RequestCode, changes: dict[str, Any]) -> RemotingCommand:
    values = {
        "producer_group": "answerers", "topic": REPLY_TOPIC, "default_topic": "TBW102",
        "default_topic_queue_nums": 1, "queue_id": 0, "sys_flag": 0, "born_timestamp": 1_700_000_000_000, "flag": 0,
        "properties": CORRELATED, "reconsume_times": 0, "unit_mode": False,
    }  # fmt: skip
    fields = headers.encode_request(code, **values | changes)
    return RemotingCommand(code, ext_fields=fields, body=b"an answer", version=MQVersion.V4_9_8)


class Scene:
    """An asker and an answerer at one broker, and what they see."""

    def __init__(self, address: str) -> None:
        self.asker, self.answerer = Talker(address), Talker(address)
        heart_beat = HeartbeatData(ASKER, [ProducerData("askers")], []).encode()
        assert self.asker.call(RemotingCommand(RequestCode.HEART_BEAT, body=heart_beat)).code == 0

    def exchange(self, code: RequestCode, changes: dict[str, Any], says: int | None) -> dict[str, object]:
        """Send one answer; gives what was pushed, what the answerer was told, and what is stored."""
        self.answerer.send([reply_request(code, changes)])
        push = self._take(says) if says is not None else None
        told = self.answerer.receive()
        fields = dict(told.ext_fields or {})
        record = self._stored(fields.pop("msgId", ""))
        assert fields.pop("queueOffset", "0").isdecimal()
        return {"pushed": push, "told": (told.code, steady(told.remark or "")), "fields": fields, "stored": record}

    def _take(self, says: int) -> dict[str, object]:
        push = self.asker.receive()
        assert push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        self.asker.socket.sendall(push.reply(says, "says the asker").encode())
        fields = {name: steady(value) for name, value in (push.ext_fields or {}).items()}
        assert abs(int(fields.pop("storeTimestamp")) - int(push_time(push))) < 1000
        return {"fields": fields | {"properties": decode_properties(fields["properties"])}, "body": push.body}

    def _stored(self, message_id: str) -> dict[str, object] | None:
        if message_id in ("", "0"):
            return None
        response = self.answerer.call(view_request(decode_offset_message_id(message_id).physical_offset))
        assert response.code == ResponseCode.SUCCESS
        message = decode_message(response.body)
        return {
            "topic": message.topic, "queue": message.queue_id, "flag": message.flag, "sys_flag": message.sys_flag,
            "body": message.body, "born": message.born_timestamp, "times": message.reconsume_times,
            "properties": {name: value for name, value in message.properties.items() if name != "PUSH_REPLY_TIME"},
        }  # fmt: skip

    def close(self) -> None:
        self.asker.close()
        self.answerer.close()


def steady(text: str) -> str:
    return CHANGING.sub("#", text)


def push_time(push: RemotingCommand) -> str:
    return decode_properties((push.ext_fields or {})["properties"])["PUSH_REPLY_TIME"]


@pytest.fixture(scope="module")
def scenes(mq_broker: RunningBroker, shared_apache: ApacheServer) -> Iterator[tuple[Scene, Scene]]:
    pair = Scene(mq_broker.broker_address), Scene(shared_apache.broker_address)
    yield pair
    for scene in pair:
        scene.close()


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_treated_as_apaches_broker_treats_it(
    scenes: tuple[Scene, Scene], name: str, code: RequestCode
) -> None:
    ours, referee = (scene.exchange(code, *ANSWERS[name]) for scene in scenes)
    assert ours == referee
