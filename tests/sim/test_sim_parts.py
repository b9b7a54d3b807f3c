"""Single parts of the product on virtual time, thousands of short schedules a second, and their rules taken out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mqcore import clock
from mqcore.broker import client_housekeeping
from mqcore.broker import queue_locks as locks_of_broker
from mqcore.broker.client_housekeeping import SCAN_INTERVAL_S, ClientHousekeeping
from mqcore.broker.config_file import ConfigFile
from mqcore.broker.consumers import ClientChannelInfo, ConsumerManager
from mqcore.broker.ports import InnerMessage, PutStatus
from mqcore.broker.producers import ProducerManager
from mqcore.broker.queue_locks import QueueLocks
from mqcore.broker.services.delay_levels import ScheduleMessageService
from mqcore.broker.statistics import BrokerStatsManager
from mqcore.broker.subscription_conflicts import SubscriptionConflicts
from mqcore.client.consume.workers import Workers
from mqcore.client.model import process_queue
from mqcore.client.model.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from mqcore.client.model.rebalance import STRATEGIES, allocate
from mqcore.client.model.selectors import Rotation
from mqcore.client.produce.fault_strategy import FaultStrategy, not_available_duration_ms
from mqcore.client.session.tasks import Periodic
from mqcore.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.message_id import HostAddress
from tests.sim.brokers import SimStore
from tests.sim.loop import VirtualLoop, run
from tests.sim.schedules import Player, seeds_until_found
from tests.unit.broker_ports import MemoryChannel, MemoryCounters

QUEUE = MessageQueue("T", "broker-a", 0)
FOUND_WITHIN = 2000
SECONDS = 0.15
EPOCH_S = 1_700_000_000.0


@dataclass
class Hand:
    """A clock that is moved by hand."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def on_a_clock(play: Callable[[random.Random, Hand], None]) -> Callable[[int], None]:
    def play_one(seed: int) -> None:
        hand = Hand()
        with clock.stand_in(hand, EPOCH_S):
            play(random.Random(seed), hand)

    return play_one


def on_a_loop(play: Callable[[random.Random], Any]) -> Callable[[int], None]:
    def play_one(seed: int) -> None:
        loop = VirtualLoop(seed)
        with clock.stand_in(loop.time, EPOCH_S):
            run(loop, play(random.Random(seed)))

    return play_one


# An orderly queue has one owner.


def lock_schedule(chance: random.Random, hand: Hand) -> None:
    """Three members lock, renew, unlock and fall silent: no two of them may rely on the queue at once."""
    broker = QueueLocks(clock.now_ms)
    members = {name: ProcessQueue[Any](QUEUE) for name in ("a", "b", "c")}
    for _ in range(25):
        hand.now_s += chance.choice((0.1, 5.0, 15.0, 29.0, 31.0))
        name, held = chance.choice(list(members.items()))
        if chance.random() < 0.2 and held.locked:
            broker.unlock("g", name, [QUEUE])
            held.locked = False
        else:
            held.locked = QUEUE in broker.lock("g", name, [QUEUE])
            if held.locked:
                held.last_lock_s = clock.now_s()
        relying = [name for name, held in members.items() if held.locked and not held.lock_expired()]
        assert len(relying) <= 1, relying


LOCKS = "25 times lock, unlock or silence of 3 members"


def test_no_two_members_rely_on_one_lock(player: Player) -> None:
    player.play("queue locks", LOCKS, on_a_clock(lock_schedule), seconds=SECONDS)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [(process_queue, "LOCK_LIVE_MAX_S", 61.0), (locks_of_broker, "LOCK_LIVE_TIME_MAX_MS", 29_000)],
    ids=["a member that believes too long", "a broker that forgets too soon"],
)
def test_a_lock_that_two_rely_on_is_found(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any) -> None:
    monkeypatch.setattr(owner, name, value)
    assert seeds_until_found(on_a_clock(lock_schedule), limit=FOUND_WITHIN)


# What is committed of a queue.


@dataclass(frozen=True)
class Held:
    queue_offset: int
    body_size: int = 10


def process_queue_schedule(chance: random.Random, hand: Hand) -> None:
    """Pulls come, handlers end in any order: the commit is never beyond the first unfinished, and never goes back."""
    held: ProcessQueue[Held] = ProcessQueue(QUEUE)
    open_: list[Held] = []
    pulled = committed = 0
    for _ in range(30):
        if chance.random() < 0.4:
            # Filtered messages leave gaps.
            fresh = [Held(pulled + at) for at in range(chance.randint(1, 4)) if chance.random() < 0.8]
            pulled += 4
            if fresh:
                held.put(fresh)
                held.pulled_to = pulled
                open_ += fresh
        elif open_:
            done = chance.sample(open_, chance.randint(1, min(3, len(open_))))
            open_ = [one for one in open_ if one not in done]
            offset = held.remove(done)
            first = min((one.queue_offset for one in open_), default=held.pulled_to)
            assert offset == first
            assert offset >= committed
            committed = offset
        assert held.count == len(open_)
        assert held.size == sum(one.body_size for one in open_)


def orderly_schedule(chance: random.Random, hand: Hand) -> None:
    """Messages are handed out in order; what is put back comes again first; a commit is behind what was handed out."""
    held: ProcessQueue[Held] = ProcessQueue(QUEUE)
    pulled = done = 0
    for _ in range(30):
        step = chance.random()
        if step < 0.4:
            fresh = [Held(pulled + at) for at in range(chance.randint(1, 4))]
            pulled += len(fresh)
            held.put(fresh)
        else:
            taken = held.take(chance.randint(1, 3))
            assert [one.queue_offset for one in taken] == list(range(done, done + len(taken)))
            if not taken:
                assert held.commit() == NOTHING_TO_COMMIT
            elif step < 0.6:
                held.put_back(taken)
            else:
                done += len(taken)
                assert held.commit() == done
        assert held.count == pulled - done


PULLS = "30 pulls and ends of handlers"


def test_a_commit_is_never_beyond_an_unfinished_message_and_never_goes_back(player: Player) -> None:
    player.play("process queues", PULLS, on_a_clock(process_queue_schedule), seconds=SECONDS)
    player.play("orderly process queues", PULLS, on_a_clock(orderly_schedule), seconds=SECONDS)


def test_a_commit_behind_an_unfinished_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ProcessQueue.remove

    def remove(held: ProcessQueue[Held], messages: list[Held]) -> int:
        original(held, messages)
        return messages[-1].queue_offset + 1

    monkeypatch.setattr(ProcessQueue, "remove", remove)
    assert seeds_until_found(on_a_clock(process_queue_schedule), limit=FOUND_WITHIN)


# Division of queues.


def division_schedule(chance: random.Random, hand: Hand) -> None:
    """Members come and go: after each change every queue has one owner, and members that stay differ by one at most."""
    queues = [
        MessageQueue("T", f"broker-{broker}", queue_id)
        for broker in "abc"[: chance.randint(1, 3)]
        for queue_id in range(chance.randint(1, 4))
    ]
    strategy = chance.choice(list(STRATEGIES))
    members: set[str] = {"10.0.0.1@m0"}
    for number in range(1, 8):
        if chance.random() < 0.6 or len(members) < 2:
            members.add(f"10.0.0.{chance.randint(1, 200)}@m{number}")
        else:
            members.remove(chance.choice(sorted(members)))
        views = {member: chance.sample(sorted(members), len(members)) for member in members}  # told in any order
        parts = {member: allocate(STRATEGIES[strategy], member, queues, views[member]) for member in members}
        assert sorted(queue for part in parts.values() for queue in part) == sorted(queues)
        if strategy != "CONSISTENT_HASH":
            sizes = [len(part) for part in parts.values()]
            assert max(sizes) - min(sizes) <= 1


def test_every_queue_has_one_owner_after_each_join_and_leave(player: Player) -> None:
    player.play("divisions", "7 joins and leaves", on_a_clock(division_schedule), seconds=SECONDS)


def test_members_that_sort_differently_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcore.client.model.rebalance.java_order", lambda text: 0)
    assert seeds_until_found(on_a_clock(division_schedule), limit=FOUND_WITHIN)


# Members that fall silent.


def silence_schedule(chance: random.Random, hand: Hand) -> None:
    """Heart-beats come or do not: after each look who was silent for over 120 s is out, and nobody else."""
    consumers = ConsumerManager(
        clock.now_ms, lambda *_: 0, lambda: True, SubscriptionConflicts(clock.now_ms, lambda: 90_000)
    )
    housekeeping = ClientHousekeeping(consumers, ProducerManager(clock.now_ms))
    channels = [MemoryChannel(port=port) for port in range(3)]
    heard_s: dict[int, float] = {}
    for _ in range(20):
        for channel in channels:
            if chance.random() < 0.15:
                info = ClientChannelInfo(channel, f"m{channel.remote_port}", 0, 0, clock.now_ms())
                consumers.register(
                    "g", info, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, [], False,
                )  # fmt: skip
                heard_s[channel.channel_id] = hand.now_s
        hand.now_s += SCAN_INTERVAL_S
        housekeeping.scan()
        heard_s = {channel: time_s for channel, time_s in heard_s.items() if hand.now_s - time_s <= 120}
        group = consumers.groups.get("g")
        assert set(group.channels if group is not None else ()) == set(heard_s)


def test_silent_members_are_out_after_120_s_and_no_others(player: Player) -> None:
    player.play("silences", "200 s of heart-beats of 3 members", on_a_clock(silence_schedule), seconds=SECONDS)


@pytest.mark.parametrize("age_ms", [110_000, 130_000])
def test_another_age_is_found(monkeypatch: pytest.MonkeyPatch, age_ms: int) -> None:
    monkeypatch.setattr(client_housekeeping, "CHANNEL_EXPIRED_MS", age_ms)
    assert seeds_until_found(on_a_clock(silence_schedule), limit=FOUND_WITHIN)


# Brokers that are avoided.


def avoidance_schedule(chance: random.Random, hand: Hand) -> None:
    """Sends end fast, slowly or badly: nobody is chosen whom the table keeps out while another one is free."""
    names = ["broker-a", "broker-b", "broker-c"][: chance.randint(2, 3)]
    rotation = Rotation([MessageQueue("T", name, queue_id) for name in names for queue_id in range(2)])
    strategy = FaultStrategy(enabled=True)
    free_at_s = dict.fromkeys(names, 0.0)
    for _ in range(20):
        hand.now_s += chance.choice((0.01, 5.0, 29.0, 120.0))
        chosen = strategy.select(rotation).broker_name
        free = [name for name, time_s in free_at_s.items() if time_s <= hand.now_s + 1e-6]
        assert chosen in free or not free, (chosen, free_at_s, hand.now_s)
        latency_ms = chance.choice((1, 60, 600, 1500, 20_000))
        failed = chance.random() < 0.2
        strategy.update(chosen, latency_ms, isolate=failed)
        free_at_s[chosen] = hand.now_s + not_available_duration_ms(30_000 if failed else latency_ms) / 1000


def test_a_broker_that_is_avoided_is_not_chosen_while_another_is_free(player: Player) -> None:
    player.play("fault avoidance", "20 sends to 2 or 3 brokers", on_a_clock(avoidance_schedule), seconds=SECONDS)


def test_a_choice_that_forgets_failures_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcore.client.produce.fault_strategy.ISOLATION_LATENCY_MS", 0)
    assert seeds_until_found(on_a_clock(avoidance_schedule), limit=FOUND_WITHIN)


# Tasks.


async def workers_schedule(chance: random.Random) -> None:
    """Items come while the limit changes: each is done once, begun in order, and never more at once than the limit."""
    began: list[int] = []
    ended: list[int] = []
    limit = allowed = chance.randint(1, 4)

    async def work(item: int) -> None:
        began.append(item)
        assert len(began) - len(ended) <= allowed
        if chance.random() < 0.7:
            await asyncio.sleep(chance.choice((0.001, 0.01)))
        ended.append(item)
        if chance.random() < 0.1:
            raise RuntimeError("one that fails")

    workers: Workers[int] = Workers("simulated", work, limit)
    count = 0
    for _ in range(8):
        fresh = range(count, count + chance.randint(0, 4))
        count += len(fresh)
        workers.put(fresh)
        if chance.random() < 0.3:
            limit = chance.randint(1, 4)
            allowed = max(allowed, limit)  # those under way end as they would have
            workers.set_limit(limit)
        await asyncio.sleep(chance.choice((0, 0.002, 0.02)))
    await asyncio.sleep(1)
    assert began == list(range(count))
    assert sorted(ended) == began
    await workers.close(1)


def test_workers_do_each_item_once_in_order_and_keep_to_their_limit(player: Player, quietly: None) -> None:
    player.play("workers", "up to 32 items in 8 portions", on_a_loop(workers_schedule), seconds=SECONDS)


def test_workers_that_count_wrongly_are_found(monkeypatch: pytest.MonkeyPatch, quietly: None) -> None:
    async def live(workers: Workers[int]) -> None:
        workers._starting -= 1
        while workers._line and not workers._closed:
            item = workers._line.popleft()
            workers._start()
            await workers._do(item)
        await asyncio.sleep(0)  # what the comment there warns of
        workers._alive -= 1

    monkeypatch.setattr(Workers, "_live", live)
    assert seeds_until_found(on_a_loop(workers_schedule), limit=FOUND_WITHIN)


async def periodic_schedule(chance: random.Random) -> None:
    """Rounds take their time, fail and are woken: the next one comes its interval after an end, or when woken."""
    loop = asyncio.get_running_loop()
    begins: list[float] = []
    ends: list[float] = []
    wakes: list[float] = []

    async def action() -> None:
        begins.append(loop.time())
        try:
            if chance.random() < 0.5:
                await asyncio.sleep(chance.uniform(0, 2))
            if chance.random() < 0.2:
                raise RuntimeError("a failed round")
        finally:
            ends.append(loop.time())

    work = Periodic("simulated", action, first_s=3, every_s=10)
    work.start()
    for _ in range(6):
        await asyncio.sleep(chance.uniform(0, 25))
        if chance.random() < 0.5:
            wakes.append(loop.time())
            work.wake()
    await asyncio.sleep(25)
    await work.stop()
    due_s = 3.0
    for number, begin_s in enumerate(begins):
        before_s = ends[number - 1] if number else 0.0
        woken = [wake_s for wake_s in wakes if (begins[number - 1] if number else -1.0) < wake_s <= begin_s]
        expected_s = min([due_s, *(max(before_s, wake_s) for wake_s in woken)])
        assert expected_s - 0.001 <= begin_s <= expected_s + 0.003, (begin_s, expected_s)
        due_s = ends[number] + 10


def test_background_work_comes_in_its_interval_and_when_woken(player: Player, quietly: None) -> None:
    what = "about 100 s with rounds, failures and wakes"
    player.play("background work", what, on_a_loop(periodic_schedule), seconds=SECONDS)


def test_a_lost_wake_is_found(monkeypatch: pytest.MonkeyPatch, quietly: None) -> None:
    original = Periodic.wake

    def wake(work: Periodic) -> None:
        if not work.__dict__.setdefault("was_woken", False):
            original(work)
        work.__dict__["was_woken"] = True

    monkeypatch.setattr(Periodic, "wake", wake)
    assert seeds_until_found(on_a_loop(periodic_schedule), limit=FOUND_WITHIN)


# Delay levels.


@dataclass
class Refusing:
    """A store that refuses now and then."""

    store: SimStore
    chance: random.Random
    refused: int = field(default=0)

    async def put(self, message: InnerMessage) -> Any:
        is_refused = message.topic == "T" and self.chance.random() < 0.3
        self.refused += is_refused
        self.store.outcome = PutStatus.OS_PAGECACHE_BUSY if is_refused else PutStatus.PUT_OK
        return await self.store.put(message)

    async def put_batch(self, message: InnerMessage) -> Any:
        return await self.store.put_batch(message)

    async def put_pair(self, first: InnerMessage, second: InnerMessage) -> Any:
        return await self.store.put_pair(first, second)


LEVELS_MS = (1000, 5000, 10_000)
HERE = HostAddress("127.0.0.1", 10911)


def delay_schedule(path: Path) -> Callable[[random.Random], Any]:
    async def play(chance: random.Random) -> None:
        """Messages of three levels come at any time into a store that is busy at times: each leaves once, when due."""
        store = SimStore(LEVELS_MS)
        sink = Refusing(store, chance)
        statistics = BrokerStatsManager("C", False, MemoryCounters(), clock.now_ms)
        service = ScheduleMessageService(
            LEVELS_MS, ConfigFile(path), sink, store, statistics, HERE, clock.now_ms
        )  # fmt: skip
        service.start()
        due: list[tuple[int, int]] = []
        for number in range(5):
            await asyncio.sleep(chance.uniform(0, 6))
            level = chance.randint(1, 3)
            properties = {"DELAY": str(level)}
            message = InnerMessage("T", 0, b"%d" % number, 0, HERE, HERE, properties=properties)
            await service.put(service.rewrite(message))
            due.append((number, clock.now_ms() + LEVELS_MS[level - 1]))
        await asyncio.sleep(15)
        came = {int(message.body): message.store_timestamp for message in store.messages("T")}
        assert len(store.messages("T")) == len(due)
        for number, due_ms in due:
            # A message in front that was refused holds its level up, a tenth of a second each time.
            assert 0 <= came[number] - due_ms <= 1_110 + 101 * sink.refused, (came[number] - due_ms, sink.refused)
        await service.stop()

    return play


def test_delayed_messages_leave_once_and_when_they_are_due(player: Player, root: Path, quietly: None) -> None:
    play = on_a_loop(delay_schedule(root / "delayOffset.json"))
    player.play("delay levels", "5 messages, 3 levels, a busy store", play, seconds=2 * SECONDS)


def test_a_delivery_that_is_not_tried_again_is_found(
    monkeypatch: pytest.MonkeyPatch, root: Path, quietly: None
) -> None:
    original = ScheduleMessageService._deliver

    async def deliver(service: ScheduleMessageService, *arguments: Any) -> bool:
        await original(service, *arguments)
        return True

    monkeypatch.setattr(ScheduleMessageService, "_deliver", deliver)
    assert seeds_until_found(on_a_loop(delay_schedule(root / "delayOffset.json")), limit=FOUND_WITHIN)
