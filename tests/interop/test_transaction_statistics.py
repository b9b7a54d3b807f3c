"""What operators see of transactions: mqadmin and the statistics say of our broker what they say of Apache's.

Both brokers get the same transactions, one of which stays open and is put again every second. How often that happens
follows from the time that passes, so such sums are compared in their form.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from mqcore.codes import SysFlag
from mqcore.protocol.names import TRANS_CONSUMER_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.compat import apache_requests as requests
from tests.rigs import ApacheServer, Mqadmin, MqcoreBroker, RunningBroker, normalised, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

TOPIC = "Orders"
RULES = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000", "transactionCheckMax": "1000"}
LISTS = (("topicList", "-c"), ("statsAll",))
VIEW_BROKER_STATS_DATA = 315
DEADLINE_S = 120.0
HALVES = {b"committed": SysFlag.TRANSACTION_COMMIT, b"rolled back": SysFlag.TRANSACTION_ROLLBACK, b"open": None}


@dataclass
class Scene:
    broker: RunningBroker
    before: list[list[str]] = field(default_factory=list)
    after: list[list[str]] = field(default_factory=list)

    def printed(self, mqadmin: Mqadmin) -> list[list[str]]:
        """The lines of each list, without rates: of a topic with a commit there is one, as from RocketMQ 5.0 on."""
        outputs = mqadmin.run_all(self.broker.name_server, LISTS)
        texts = [normalised(output.command[0], output.text) for output in outputs]
        return [sorted(re.sub(r" [\d.]+$", "", line) for line in lines) for lines in texts]

    def minute_of(self, name: str, key: str) -> dict[str, Any] | None:
        """What a statistic says of the last minute, None if there is none."""
        fields = {"statsName": name, "statsKey": key}
        answer = wire.call(self.broker.broker_address, VIEW_BROKER_STATS_DATA, fields)
        found: dict[str, Any] | None = answer.json()["statsMinute"] if answer.code == wire.SUCCESS else None
        return found

    def sum_of(self, name: str, key: str) -> int:
        return int((self.minute_of(name, key) or {"sum": 0})["sum"])

    def play(self) -> None:
        for number, (body, outcome) in enumerate(HALVES.items()):
            unique = f"7F00000100002A9F00000000000000{number:02d}"
            properties = {"TRAN_MSG": "true", "PGROUP": requests.PRODUCER_GROUP, "UNIQ_KEY": unique, "WAIT": "true"}
            now = time.time_ns() // 1_000_000
            prepared = int(SysFlag.TRANSACTION_PREPARED)
            half = requests.send(self.broker.broker_address, TOPIC, 0, body, now, properties, sys_flag=prepared)
            if outcome is not None:
                ended = requests.end_transaction(self.broker.broker_address, half, unique, int(outcome))
                assert ended.code == wire.SUCCESS

    def has_read_halves(self) -> bool:
        """The samples of ten seconds show that the ends were read, and the open half more than once."""
        return self.sum_of(*OPS_READ) == 2 and self.sum_of(*HALVES_READ) > 3


HALF_KEY, OP_KEY = (f"{topic}@{TRANS_CONSUMER_GROUP}" for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC))
HALVES_READ, OPS_READ = ("GROUP_GET_NUMS", HALF_KEY), ("GROUP_GET_NUMS", OP_KEY)


def has_half_topic(broker: RunningBroker) -> bool:
    return wire.has_route(broker.name_server, TRANS_HALF_TOPIC)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory, mqadmin_4_9_8: Mqadmin) -> Iterator[tuple[Scene, Scene]]:
    """Our broker and Apache's, before and after the transactions."""
    with ExitStack() as stack, ThreadPoolExecutor() as both:
        directory = tmp_path_factory.mktemp("transactions")
        brokers = [
            stack.enter_context(MqcoreBroker(directory / "ours", RULES)),
            stack.enter_context(ApacheServer("4.9.8", directory / "apache", RULES)),
        ]
        pair = [Scene(broker) for broker in brokers]
        for scene in pair:
            wire.create_topic(scene.broker.broker_address, TOPIC, queues=1)
            wait_until(
                lambda s=scene: has_half_topic(s.broker), DEADLINE_S, f"the half topic of {type(scene.broker).__name__}"
            )
        for scene, printed in zip(pair, both.map(lambda one: one.printed(mqadmin_4_9_8), pair), strict=True):
            scene.before = printed
        for scene in pair:
            scene.play()
        for scene in pair:
            wait_until(scene.has_read_halves, DEADLINE_S, f"{HALVES_READ} of {type(scene.broker).__name__}")
        for scene, printed in zip(pair, both.map(lambda one: one.printed(mqadmin_4_9_8), pair), strict=True):
            scene.after = printed
        yield pair[0], pair[1]


def test_mqadmin_lists_the_half_topic_before_and_after_the_first_transaction(scenes: tuple[Scene, Scene]) -> None:
    ours, referee = scenes
    assert ours.before == referee.before
    assert ours.after == referee.after
    for printed, groups in ((ours.before, []), (ours.after, [TRANS_CONSUMER_GROUP])):
        assert ["DefaultCluster", TRANS_HALF_TOPIC, *groups] in [line.split() for line in printed[0]]
        assert any(line.startswith(TRANS_HALF_TOPIC) for line in printed[1])


def test_half_messages_are_counted_as_puts_of_their_topic_and_op_messages_are_not(scenes: tuple[Scene, Scene]) -> None:
    ours, referee = scenes
    for scene in scenes:
        assert scene.sum_of("TOPIC_PUT_NUMS", TRANS_HALF_TOPIC) == len(HALVES)
        assert scene.minute_of("TOPIC_PUT_NUMS", TRANS_OP_HALF_TOPIC) is None
    sizes = [scene.sum_of("TOPIC_PUT_SIZE", TRANS_HALF_TOPIC) for scene in scenes]
    assert sizes[0] == sizes[1]
    # A committed message is a put of its topic here and from RocketMQ 5.0 on.
    assert ours.sum_of("BROKER_PUT_NUMS", "DefaultCluster") == len(HALVES) + 1
    assert referee.sum_of("BROKER_PUT_NUMS", "DefaultCluster") == len(HALVES)


def test_reads_of_half_and_op_messages_are_counted_for_their_group_and_for_the_broker(
    scenes: tuple[Scene, Scene],
) -> None:
    for scene in scenes:
        halves, size = (scene.minute_of(name, HALF_KEY) for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE"))
        assert halves is not None
        assert size is not None
        assert (halves["avgpt"], halves["sum"] > 3, size["sum"] > 200 * halves["sum"]) == (1.0, True, True)
        assert scene.sum_of("BROKER_GET_NUMS", "DefaultCluster") > 3
        broker = scene.minute_of("BROKER_GET_NUMS", "DefaultCluster")
        assert broker is not None
        assert broker["avgpt"] == 0.0
        for name in ("GROUP_GET_LATENCY", "QUEUE_GET_NUMS"):
            assert scene.minute_of(name, f"0@{HALF_KEY}") is None
    sizes = [scene.sum_of("GROUP_GET_SIZE", OP_KEY) for scene in scenes]
    # The unique key of Apache's op messages makes no difference to what was found: two, which say of two ends.
    assert all(size > 200 for size in sizes)


def test_what_is_read_of_transactions_is_in_the_totals_of_the_runtime_table(scenes: tuple[Scene, Scene]) -> None:
    for scene in scenes:
        table = wire.call(scene.broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
        assert int(table["msgGetTotalTodayNow"]) > 3
