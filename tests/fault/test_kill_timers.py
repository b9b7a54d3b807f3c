"""Deaths over messages that wait for a time: each that was answered comes once, none before its time, none twice.

What was taken back in time does not come, whoever dies after the answer. Deaths come at random moments of mixed
traffic, and at each step of a message's way: in the timer log, in its slot's chain, out of the slot, into its queue,
back into the timer topic, and while the checkpoint is written.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mqcore.store.timer.log import decode
from tests.fault import stepping
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    GEOMETRY,
    KILLS_PER_LIFE,
    SYNC_FLUSH,
    attach_segment,
    await_successor,
    find_worker,
    kill_worker,
    new_history,
    seeded,
    seeds,
    start_broker,
)
from tests.fault.stepping import Stopped
from tests.fault.store_scan import scan_store
from tests.fault.talker import Talker
from tests.fault.timer_ledger import PRECISION_MS, RULES, WINDOW_MS, TimerLedger, now_ms
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TIMER_TOPIC = "rmq_sys_wheel_timer"
EVERYDAY_KILLS, SLOW_KILLS, SLOW_ROUNDS = 3, 12, 12
SLOW_POINTS = 15
STANDS = 10
UNIT_CHUNK = 12
INTENT_CHUNK = 40


def start(tmp_path: Path, flush: dict[str, str], seed: int) -> tuple[MqcoreBroker, TimerLedger]:
    broker = start_broker(tmp_path, flush | RULES)
    return broker, TimerLedger(broker, new_history(broker, "Timers", f"t{seed}"))


def finish(broker: MqcoreBroker, ledger: TimerLedger) -> None:
    ledger.settle()
    broker.stop()
    ledger.check_times(scan_store(broker.store_dir, GEOMETRY))


# At random moments -------------------------------------------------------------------------------------------------


def kill_at_random(tmp_path: Path, seed: int, kills: int) -> None:
    rng = seeded(seed)
    broker, ledger = start(tmp_path, rng.choice([SYNC_FLUSH, ASYNC_FLUSH]), seed)
    with broker:
        deaths = 0
        for number in range(kills):
            with ledger.under_way(rng):
                ledger.await_more(60)
                time.sleep(rng.uniform(0, 1.2))
                victim = "broker" if number == kills - 1 else rng.choice(["timer", "timer", "reput", "send", "broker"])
                if victim != "broker" and deaths < KILLS_PER_LIFE:
                    deaths += 1
                    kill_worker(broker, victim)
                    ledger.await_more(60)
                    continue
                broker.kill()
            deaths = 0
            time.sleep(rng.choice([0, 0, 1.5]))  # some are due while nobody lives
            broker.start_again()
        finish(broker, ledger)


def test_every_timer_message_comes_once_over_deaths_at_random_moments(tmp_path: Path) -> None:
    kill_at_random(tmp_path, seeds(1)[0], EVERYDAY_KILLS)


@pytest.mark.slow
def test_every_timer_message_comes_once_over_many_deaths(tmp_path: Path) -> None:
    for seed in seeds(SLOW_ROUNDS):
        kill_at_random(tmp_path / str(seed), seed, SLOW_KILLS)


# Over a pause --------------------------------------------------------------------------------------------------------


def stand_between_rolls(broker: MqcoreBroker, ledger: TimerLedger, rng: random.Random) -> bool:
    """Stop the worker when a message is rolled and what takes it back, a little younger, is not, until all is over due.

    False: this machine was too slow for that.
    """
    segment = attach_segment(broker)
    rolled = segment.get("timer_rolled")
    worker = find_worker(broker, "timer")
    with Talker(broker.broker_address) as talker:
        handles = ledger.send(talker, rng, [4 * WINDOW_MS])
        time.sleep(WINDOW_MS / 2000)
        for body, handle in handles.items():
            ledger.recall(talker, body, handle)
    wait_until(lambda: segment.get("timer_rolled") > rolled, DEADLINE_S, "the message is rolled")
    worker.send_signal(signal.SIGSTOP)
    try:
        time.sleep(max(0, max(ledger.due.values()) + 2 * PRECISION_MS - now_ms()) / 1000)
        return segment.get("timer_rolled") == rolled + 1 and not ledger.recalled.isdisjoint(handles)
    finally:
        worker.send_signal(signal.SIGCONT)


def test_what_was_taken_back_stays_so_when_it_is_rolled_after_it_was_due(tmp_path: Path) -> None:
    rng = seeded(seeds(1)[0])
    broker, ledger = start(tmp_path, ASYNC_FLUSH, seed=1)
    with broker:
        with Talker(broker.broker_address) as talker:
            ledger.send(talker, rng, [WINDOW_MS - PRECISION_MS])  # the first one that waits starts the worker
        assert any(stand_between_rolls(broker, ledger, rng) for _ in range(STANDS))
        finish(broker, ledger)


# At named points ---------------------------------------------------------------------------------------------------


class Scene:
    """The timer worker of a broker, and the messages that one death is about."""

    def __init__(self, broker: MqcoreBroker, ledger: TimerLedger, rng: random.Random) -> None:
        self.broker = broker
        self.ledger = ledger
        self.rng = rng
        self.segment = attach_segment(broker)
        self._due = now_ms()

    def send(self, delay_ms: int, count: int = 6) -> dict[bytes, str]:
        """Send messages that are due together."""
        with Talker(self.broker.broker_address) as talker:
            handles = self.ledger.send(talker, self.rng, [delay_ms] * count)
        # Those that are rolled leave their slot earlier.
        self._due = now_ms() + (delay_ms if delay_ms < WINDOW_MS else WINDOW_MS + PRECISION_MS)
        return handles

    def take_back(self, handles: dict[bytes, str]) -> None:
        """Ask every other of these back."""
        with Talker(self.broker.broker_address) as talker:
            for body, handle in list(handles.items())[::2]:
                self.ledger.recall(talker, body, handle, in_time_ms=0)

    def await_enqueued(self) -> None:
        """Wait until the wheel has what the topic has."""
        self.await_dispatched()
        wait_until(lambda: self.ledger.runtime("timerOffsetBehind") == 0, DEADLINE_S, "all are in the wheel")

    def await_dispatched(self) -> None:
        wait_until(lambda: wire.is_dispatched(self.broker.broker_address), DEADLINE_S, "all are in the timer's queue")

    def sleep_until_due(self, before_ms: int = 0) -> None:
        time.sleep(max(0, self._due - before_ms - now_ms()) / 1000)

    # Where it dies.

    def anywhere(self, stopped: Stopped, steps: int) -> None:
        stopped.step(self.rng.randrange(steps))

    def in_a_unit(self, stopped: Stopped, steps: int) -> None:
        """From the first byte of a unit on, over its slot's chain."""
        begun = self.unit_bytes()
        for _ in range(steps // UNIT_CHUNK):
            if self.unit_bytes() != begun:
                break
            stopped.step(UNIT_CHUNK)
        stopped.step(self.rng.randrange(200))

    def unit_bytes(self) -> bytes:
        """What stands behind the last unit of the newest file."""
        newest = max((self.broker.store_dir / "timerlog").iterdir(), default=None)
        data = b"" if newest is None else newest.read_bytes()
        at = 0
        while decode(data, at) is not None:
            at += 52
        return data[at : at + 52]

    def in_the_put_lock(self, stopped: Stopped, steps: int) -> None:
        """Between the intent to append and the end of it, or just behind."""
        for _ in range(steps // INTENT_CHUNK):
            if self.segment.get("intent_end"):
                break
            stopped.step(INTENT_CHUNK)
        stopped.step(self.rng.randrange(1500))

    def at_a_system_call(self, stopped: Stopped, steps: int) -> None:
        stopped.to_system_call(self.rng.randrange(steps))


def nothing(_: Scene) -> None:
    return None


def waits(delay_ms: int) -> Callable[[Scene], None]:
    """Some messages wait in the wheel."""

    def prepare(scene: Scene) -> None:
        scene.send(delay_ms)
        scene.await_enqueued()

    return prepare


def some_are_taken_back(scene: Scene) -> None:
    handles = scene.send(WINDOW_MS - PRECISION_MS)
    scene.take_back(handles)
    scene.await_enqueued()
    # What was due before the wheel had the recall, on a machine so slow, may have come.
    scene.ledger.recalled -= {body for body in handles if scene.ledger.due[body] <= now_ms()}


def some_come(scene: Scene) -> None:
    scene.send(500)
    scene.await_dispatched()


def some_come_and_are_taken_back(scene: Scene) -> None:
    # The worker stands still: nothing is due to it before it has seen the recalls.
    scene.take_back(scene.send(WINDOW_MS - PRECISION_MS))
    scene.await_dispatched()


def a_slot_begins(scene: Scene) -> None:
    scene.sleep_until_due(before_ms=PRECISION_MS)


def all_are_due(scene: Scene) -> None:
    scene.sleep_until_due()


class Point(NamedTuple):
    """What is done while the worker lives, what while it stands still, and how far it goes on before it dies."""

    before: Callable[[Scene], None]
    meanwhile: Callable[[Scene], None]
    move: Callable[[Scene, Stopped, int], None]
    steps: int
    thread: int = 0
    """0: the loop; 1: who writes the checkpoint."""


POINTS = {
    "unit appended": Point(nothing, some_come, Scene.in_a_unit, 20_000),
    "chained to the slot": Point(nothing, some_come, Scene.anywhere, 12_000),
    "slot opened": Point(waits(600), a_slot_begins, Scene.anywhere, 6_000),
    "delivered": Point(waits(600), all_are_due, Scene.in_the_put_lock, 20_000),
    "out of the slot": Point(waits(600), all_are_due, Scene.anywhere, 25_000),
    "rolled": Point(waits(3 * WINDOW_MS), all_are_due, Scene.in_the_put_lock, 20_000),
    "recalled": Point(some_are_taken_back, all_are_due, Scene.anywhere, 25_000),
    "recall in the wheel": Point(nothing, some_come_and_are_taken_back, Scene.anywhere, 20_000),
    "checkpoint written": Point(waits(300), nothing, Scene.at_a_system_call, 40, thread=1),
}


def thread_of(pid: int, number: int) -> int:
    """The id of the main thread of a process, 0, or of the one that was started after it."""

    def threads() -> list[int]:
        return sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())

    wait_until(lambda: len(threads()) > number, DEADLINE_S, "the thread is there")
    return threads()[number]


def die_at(point: Point, broker: MqcoreBroker, ledger: TimerLedger, rng: random.Random) -> None:
    scene = Scene(broker, ledger, rng)
    worker = find_worker(broker, "timer")
    point.before(scene)
    with Stopped(thread_of(worker.pid, point.thread)) as stopped:
        point.meanwhile(scene)
        point.move(scene, stopped, point.steps)
    if rng.random() < 0.3:
        broker.kill()
        broker.start_again()
    else:
        await_successor(broker, "timer", worker.pid)


def kill_at_points(tmp_path: Path, seed: int, names: list[str]) -> None:
    rng = seeded(seed)
    broker, ledger = start(tmp_path, rng.choice([SYNC_FLUSH, ASYNC_FLUSH]), seed)
    with broker:
        Scene(broker, ledger, rng).send(3000, count=1)  # the first one that waits starts the worker
        for number, name in enumerate(names):
            if number and number % KILLS_PER_LIFE == 0:
                broker.kill()
                broker.start_again()
            print("dies at:", name)
            die_at(POINTS[name], broker, ledger, rng)
        finish(broker, ledger)


needs_root = [
    pytest.mark.root,
    pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission()),
]


@pytest.mark.parametrize("share", [pytest.param(share, marks=needs_root) for share in range(3)])
def test_a_timer_worker_may_die_at_each_step_of_a_messages_way(tmp_path: Path, share: int) -> None:
    kill_at_points(tmp_path, seeds(1)[0], list(POINTS)[share::3])


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_root) for name in POINTS])
def test_a_timer_worker_may_die_many_times_at_one_step(tmp_path: Path, name: str) -> None:
    for number, seed in enumerate(seeds(2)):
        kill_at_points(tmp_path / str(number), seed, [name] * SLOW_POINTS)
