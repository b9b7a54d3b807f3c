"""A broker with a little workload on it, and what mqadmin prints about it, step by step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.bodies import HeartbeatData, ProducerData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.names import TRANS_HALF_TOPIC
from tests.fault.talker import Talker
from tests.interop.mqadmin_script import OFFLINE_GROUP, ONLINE_GROUP, SENDERS, TOPIC, Step
from tests.rigs import Corpus, JavaConsumer, JavaDriver, Mqadmin, RunningBroker, normalised, wire
from tests.rigs.deliveries import sent_by_key
from tests.rigs.mqadmin import Session
from tests.waiting import wait_until

QUEUES = 4
MESSAGES = 20
DEADLINE_S = 120.0
PROPERTIES = {"traceTopicEnable": "true", "transactionCheckInterval": "1000"}
"""Of both brokers: traces are kept, and the topics of transactions are there soon, which RocketMQ makes with its first
check."""
NO_FILES: Mapping[str, str] = MappingProxyType({})
SENDER = "127.0.0.1@sender"
LAST_TOPIC = "broker-a"
"""What sendMsgStatus and clusterRT send to."""


@dataclass
class Scene:
    """A broker with the workload on it, and what mqadmin printed, by the name of the step."""

    broker: RunningBroker
    consumer: JavaConsumer
    sender: Talker
    words: dict[str, str]
    printed: dict[str, list[str]] = field(default_factory=dict)

    def play(self, session: Session, steps: Iterable[Step]) -> None:
        """Take *steps* in their order."""
        for step in steps:
            # What is stored can be looked up a little later.
            wait_until(lambda: wire.is_dispatched(self.broker.broker_address), DEADLINE_S, "all is dispatched")
            greet(self.sender)
            if step.command == "statsAll":
                wait_until(self.is_committed, DEADLINE_S, "the consumer has committed what it was given")
            if step.awaits_statistics:
                wait_until(lambda: has_statistics(self.broker.broker_address), DEADLINE_S, "the statistics are made up")
            words = {**self.words, "directory": str(session.directory)}
            told = [word.format(**words) for word in step.words]
            text = session.run(*told, within_s=step.within_s).text
            self._learn(step, text)
            if step.writes:
                text += written_json(session.directory / step.writes)
            lines = normalised(step.command, text.replace(str(session.directory), "<directory>"))
            self.printed[step.name] = [line for line in lines if not re.fullmatch(step.passes_over, line)]

    def is_committed(self) -> bool:
        """Whether the consumer, which commits each few seconds, has committed all that there is."""
        address = self.broker.broker_address
        return all(
            wire.consumer_offset(address, ONLINE_GROUP, TOPIC, queue_id) == wire.max_offset(address, TOPIC, queue_id)
            for queue_id in range(QUEUES)
        )

    def _learn(self, step: Step, text: str) -> None:
        if step.learns is not None:
            word, pattern = step.learns
            found = re.search(pattern, text, re.MULTILINE)
            assert found is not None, f"{step.name} printed no {word}:\n{text}"
            self.words[word] = found[1]


def written_json(path: Path) -> str:
    """The JSON in the file, in an order of its own, or that there is none; the file goes."""
    if not path.exists():
        return "<no file>"
    text = json.dumps(json.loads(path.read_text()), sort_keys=True, indent=1)
    path.unlink()
    return text


def has_statistics(address: str) -> bool:
    """Whether the message that was sent last is in the statistics of its topic."""
    fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": LAST_TOPIC}
    answer = wire.call(address, RequestCode.VIEW_BROKER_STATS_DATA, fields)
    return answer.code == wire.SUCCESS and answer.json()["statsMinute"]["sum"] > 0


def set_up(broker: RunningBroker, java: JavaDriver, corpus: Corpus) -> Scene:
    """Give a broker the workload; the consumer and the sender stay online."""
    address = broker.broker_address
    # RocketMQ makes this topic with its first check of transactions. When another one is made meanwhile, Apache's
    # broker may tell its name server of that one alone, and of this one never: the table gets no newer version.
    wait_until(lambda: wire.has_route(broker.name_server, TRANS_HALF_TOPIC), DEADLINE_S, "the half topic is there")
    wire.create_topic(address, TOPIC, queues=QUEUES)
    # The last one is of mqadmin's own consumers, which may be gone before a broker has heard of them.
    for group in (ONLINE_GROUP, OFFLINE_GROUP, "TOOLS_CONSUMER"):
        create_group(address, group)
        wire.create_topic(address, f"%RETRY%{group}", queues=1)
    wait_until(lambda: wire.has_route(broker.name_server, TOPIC), describe="the topic has a route")
    for queue_id in range(QUEUES):
        # Of a group's first commits, when they come at once, Apache's 4.9 broker may forget all but one.
        wire.commit_offset(address, ONLINE_GROUP, TOPIC, queue_id, 0)
        wire.commit_offset(address, OFFLINE_GROUP, TOPIC, queue_id, queue_id)
    sent = java.produce(
        broker.name_server, TOPIC, corpus.path, count=MESSAGES, mode="sync", shards=QUEUES, tags="TagA,TagB"
    )
    message = sent_by_key(sent)["L5"]
    words = {"address": address, "offset_id": message.offset_message_id, "unique_id": message.message_id}
    return Scene(broker, java.consumer(broker.name_server, TOPIC, ONLINE_GROUP), online_sender(address), words)


def create_group(address: str, group: str) -> None:
    """A broker of release 5 keeps offsets of groups that it knows only."""
    body = json.dumps({"groupName": group, "retryQueueNums": 1, "retryMaxTimes": 16}).encode()
    assert wire.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == wire.SUCCESS


def online_sender(address: str) -> Talker:
    """A connection that the broker knows as a producer's."""
    talker = Talker(address)
    greet(talker)
    return talker


def greet(talker: Talker) -> None:
    """Who says nothing for two minutes is forgotten."""
    body = HeartbeatData(SENDER, [ProducerData(SENDERS)], []).encode()
    assert talker.call(RemotingCommand(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS


def settle(scene: Scene) -> None:
    """Wait until the consumer has consumed everything, and commit its offsets."""
    address = scene.broker.broker_address
    wait_until(lambda: scene.consumer.count() == MESSAGES, DEADLINE_S, "all messages consumed")
    wait_until(lambda: scene.consumer.retry_queues() == 1, DEADLINE_S, "the consumer has its retry queue")
    # The consumer does this as well, but not in its first ten seconds.
    for queue_id in range(QUEUES):
        wire.commit_offset(address, ONLINE_GROUP, TOPIC, queue_id, MESSAGES // QUEUES)
    wire.commit_offset(address, ONLINE_GROUP, f"%RETRY%{ONLINE_GROUP}", 0, 0)


@contextmanager
def scenes(
    brokers: Sequence[RunningBroker],
    java: JavaDriver,
    corpus: Corpus,
    mqadmin: Mqadmin,
    steps: Sequence[Step],
    files: Mapping[str, str] = NO_FILES,
) -> Iterator[list[Scene]]:
    """*brokers*, each with nothing on it so far, after the same workload and *steps*, which find *files*."""
    # Side by side: each step waits for a JVM, and some commands of release 5 sleep for seconds.
    with ExitStack() as running, ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda broker: set_up(broker, java, corpus), brokers))
        for scene in made:
            running.enter_context(scene.consumer)
            running.enter_context(scene.sender)
        list(pool.map(settle, made))
        sessions = [running.enter_context(mqadmin.session(scene.broker.name_server)) for scene in made]
        for session in sessions:
            for name, text in files.items():
                (session.directory / name).write_text(text)
        list(pool.map(lambda scene, session: scene.play(session, steps), made, sessions))
        yield made
