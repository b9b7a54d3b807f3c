"""Deaths over SQL92 filters: each group gets what it wants, all of it and nothing else, in order and once.

A pull worker dies while it looks at messages, runs an expression or reads a filter bitmap, and a reput worker dies
while filters are registered and bitmaps are made. Whoever believed a bitmap that does not know his filter, or went on
behind a message that was only half looked at, would miss it without a word.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.properties import encode_properties
from tests.compat import apache_requests as requests
from tests.fault import stepping
from tests.fault.rig import (
    DEADLINE_S,
    SYNC_FLUSH,
    attach_segment,
    await_successor,
    find_worker,
    seeded,
    seeds,
    start_broker,
)
from tests.fault.stepping import Function, Stopped
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.fault.test_kill_points import begin_point
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(stepping.missing_breakpoints()), reason=stepping.missing_breakpoints()),
]

TOPIC = "Filtered"
EXT = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4004"}
BURST = 24
STEPS_MAX = 400
SLOW_ROUNDS = 15

LOOK = Function("mqcore._fast.pull.filtering", "filter_look")
RUN = Function("mqcore._fast.filter.program", "filter_run")
READ_BITMAP = Function("mqcore._fast.queues.reader", "ext_unit_at")
TAKE_FILTERS = Function("mqcore._fast.reput.bitmaps", "bitmaps_set")
MAKE_BITMAP = Function("mqcore._fast.reput.bitmaps", "make_bitmap")


class Group:
    """A consumer group with one member, who registers by heart-beats what it wants."""

    def __init__(self, name: str, expression: str, wants: Callable[[int], bool]) -> None:
        self.name = name
        self.wants = wants
        self.position = 0
        self.read: list[int] = []
        self._subscription = SubscriptionData.build(TOPIC, expression, "SQL92", sub_version=1)

    def register(self, talker: Talker) -> None:
        """Answered once the broker knows the filter, and has told its reput worker."""
        member = ConsumerData(self.name, subscription_data_set=[self._subscription])
        beat = HeartbeatData(f"member-of-{self.name}", [], [member]).encode()
        assert talker.call(RemotingCommand(RequestCode.HEART_BEAT, body=beat)).code == ResponseCode.SUCCESS

    def pull(self, suspend_ms: int = 0) -> RemotingCommand:
        return pull_request(
            TOPIC, 0, self.position, group=self.name, subscription=None, sub_version=0, suspend_ms=suspend_ms
        )

    def take(self, response: RemotingCommand) -> None:
        """Go on where the broker says, as clients do."""
        assert response.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), response.remark
        assert response.ext_fields is not None
        self.read += [int(message.body) for message in pulled(response)]
        self.position = int(response.ext_fields["nextBeginOffset"])

    def read_on(self, talker: Talker, end: int) -> None:
        """Read to *end* and hold what came against what it wants of all messages."""
        while self.position < end:
            self.take(talker.call(self.pull()))
        assert self.position == end
        assert self.read == [number for number in range(end) if self.wants(number)], self.name


class Prices:
    """Messages whose bodies are their numbers, and whose price is the last digit; all of one queue."""

    def __init__(self, broker: MqcoreBroker) -> None:
        self.broker = broker
        self.count = 0

    def send(self, talker: Talker, count: int = BURST) -> None:
        for number in range(self.count, self.count + count):
            command = send_request(TOPIC, 0, b"%d" % number)
            assert command.ext_fields is not None
            command.ext_fields["i"] = encode_properties({"price": str(number % 10)})
            assert talker.call(command).code == ResponseCode.SUCCESS
        self.count += count

    def await_dispatch(self) -> None:
        address = self.broker.broker_address
        wait_until(lambda: wire.max_offset(address, TOPIC, 0) == self.count, DEADLINE_S, "all is dispatched")

    def await_bitmaps(self, talker: Talker) -> None:
        """Send until a message has a bitmap: the reput worker knows filters of the topic, and the broker knows it."""

        def has_bitmap() -> bool:
            self.send(talker, 1)
            self.await_dispatch()
            (last,) = requests.queue_units(self.broker.broker_address, TOPIC, 0, 1, first=self.count - 1)
            return bool(last.get("bitMap"))

        wait_until(has_bitmap, DEADLINE_S, "bitmaps are made")


def make_groups() -> list[Group]:
    return [
        Group("Dear", "price > 5", lambda number: number % 10 > 5),
        Group("Odd", "price IN ('1', '3', '5', '7', '9')", lambda number: number % 2 == 1),
    ]


def first_prices(broker: MqcoreBroker) -> Prices:
    wire.create_topic(broker.broker_address, TOPIC, queues=1)
    return Prices(broker)


# The pull worker ---------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A call of a function while a burst is filtered, and how many there are at least."""

    function: Function
    calls: int


POINTS = [Point(LOOK, BURST), Point(READ_BITMAP, BURST), Point(RUN, 8)]


def kill_while_filtering(prices: Prices, talker: Talker, group: Group, point: Point, rng: random.Random) -> None:
    """The pull worker dies with some messages of a pull looked at and others not, or with its answer under way."""
    is_held = rng.random() < 0.5
    segment, worker = attach_segment(prices.broker), find_worker(prices.broker, "pull")
    if is_held:
        # Woken, it goes on over what it does not want, of which its successor knows nothing.
        talker.send([group.pull(60_000)])
        wait_until(lambda: segment.waiting_pulls() == 1, DEADLINE_S, "the pull is held")
    with Talker(prices.broker.broker_address) as sender, Stopped(worker.pid) as stopped:
        prices.send(sender)
        prices.await_dispatch()
        if not is_held:
            talker.send([group.pull()])
        stopped.to_call(point.function, rng.randint(1, point.calls))
        stopped.step(rng.randrange(STEPS_MAX))
    response = talker.receive()
    assert response.ext_fields is not None
    if response.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        assert int(response.ext_fields["nextBeginOffset"]) == group.position
    group.take(response)
    await_successor(prices.broker, "pull", worker.pid)


def kill_pulls(tmp_path: Path, seed: int, rounds: int) -> None:
    rng = seeded(seed)
    with start_broker(tmp_path, SYNC_FLUSH | EXT) as broker:
        prices, groups = first_prices(broker), make_groups()
        for number, point in enumerate(POINTS * rounds):
            begin_point(broker, number)
            with Talker(broker.broker_address) as talker:
                for group in groups:
                    group.register(talker)
                prices.await_bitmaps(talker)
                for group in groups:
                    group.read_on(talker, prices.count)
                kill_while_filtering(prices, talker, rng.choice(groups), point, rng)
                for group in groups:
                    group.read_on(talker, prices.count)
        broker.stop()


def test_a_pull_worker_that_dies_while_it_filters_loses_and_skips_nothing(tmp_path: Path) -> None:
    kill_pulls(tmp_path, seeds(1)[0], 1)


@pytest.mark.slow
def test_a_pull_worker_may_die_many_times_while_it_filters(tmp_path: Path) -> None:
    kill_pulls(tmp_path, seeds(1)[0], SLOW_ROUNDS)


# The reput worker --------------------------------------------------------------------------------------------------


def new_group(number: int) -> Group:
    first = number % 8
    return Group(
        f"Range{number}", f"price BETWEEN {first} AND {first + 2}", lambda price: first <= price % 10 <= first + 2
    )


def kill_while_registered(prices: Prices, talker: Talker, group: Group, at: Function, rng: random.Random) -> None:
    """The reput worker dies over the filter of *group*, with messages before and behind it to be dispatched."""
    worker = find_worker(prices.broker, "reput")
    with Stopped(worker.pid) as stopped:
        prices.send(talker)
        group.register(talker)
        prices.send(talker)
        stopped.to_call(at, 1 if at is TAKE_FILTERS else rng.randint(1, BURST))
        stopped.step(rng.randrange(STEPS_MAX))
    prices.send(talker)
    await_successor(prices.broker, "reput", worker.pid)
    prices.send(talker)


def kill_reputs(tmp_path: Path, seed: int, rounds: int) -> None:
    rng = seeded(seed)
    with start_broker(tmp_path, SYNC_FLUSH | EXT) as broker:
        prices, groups = first_prices(broker), make_groups()
        for number, at in enumerate([TAKE_FILTERS, MAKE_BITMAP] * rounds):
            begin_point(broker, number)
            with Talker(broker.broker_address) as talker:
                for group in groups:
                    group.register(talker)
                prices.await_bitmaps(talker)
                groups.append(new_group(number))
                kill_while_registered(prices, talker, groups[-1], at, rng)
                prices.await_dispatch()
                for group in groups:
                    group.read_on(talker, prices.count)
                # Bitmaps that the successor makes have the new group, too.
                prices.await_bitmaps(talker)
                prices.send(talker)
                prices.await_dispatch()
                for group in groups:
                    group.read_on(talker, prices.count)
        broker.stop()


def test_a_reput_worker_that_dies_while_filters_are_registered_hides_no_message(tmp_path: Path) -> None:
    kill_reputs(tmp_path, seeds(1)[0], 1)


@pytest.mark.slow
def test_a_reput_worker_may_die_many_times_while_filters_are_registered(tmp_path: Path) -> None:
    kill_reputs(tmp_path, seeds(1)[0], SLOW_ROUNDS)
