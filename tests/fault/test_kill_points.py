"""Workers killed between two instructions of their work, chosen by seed: in the put lock, in a consume queue, anywhere.

A death at random rarely falls into the few hundred instructions that matter. Here the worker stands still, is given
one piece of work, and is moved on by so many instructions or system calls before it dies.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.fault import stepping
from tests.fault.history import History, key_of, make_body, read_all
from tests.fault.rig import (
    DEADLINE_S,
    KILLS_PER_LIFE,
    SYNC_FLUSH,
    Witness,
    attach_segment,
    await_successor,
    check_limit,
    check_store,
    find_worker,
    new_history,
    seeded,
    seeds,
    start_broker,
)
from tests.fault.stepping import Stopped
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.rigs import MqcoreBroker
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.fault,
    pytest.mark.root,
    pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission()),
]

POINTS = 9
MANY_POINTS = 75
SLOW_ROUNDS = 4
SEND_STEPS_MAX = 12_000
INTENT_CHUNK = 40
INTENT_STEPS_MAX = 500
REPUT_STEPS_MAX = 6_000
PULL_STEPS_MAX = 6_000
FLUSH_CALLS_MAX = 40
BODY_SIZE_MAX = 6_000


class OneByOne:
    """Sends single messages and writes down what came of each."""

    def __init__(self, broker: MqcoreBroker, history: History) -> None:
        self.broker = broker
        self.history = history
        self._sequence = 0

    def begin(self, talker: Talker) -> tuple[int, bytes]:
        """Send one message without waiting; its opaque and body."""
        body = make_body(self.history.run, 0, self._sequence, BODY_SIZE_MAX)
        queue_id = self._sequence % self.history.queues
        self._sequence += 1
        command = send_request(self.history.topic, queue_id, body, keys=key_of(body))
        self.history.note_sent([body])
        talker.send([command])
        return command.opaque, body

    def finish(self, talker: Talker, body: bytes) -> bool:
        """Read the answer, if one comes before the connection breaks; whether the message was acknowledged."""
        try:
            response = talker.receive()
        except ConnectionError:
            self.history.note_unanswered(1)
            return False
        if response.code != ResponseCode.SUCCESS:
            self.history.note_refused(response.code)
            return False
        assert response.ext_fields is not None
        self.history.note_acked(int(response.ext_fields["queueId"]), int(response.ext_fields["queueOffset"]), body)
        return True

    def send(self) -> None:
        """Send messages over new connections until one is acknowledged."""

        def try_one() -> bool:
            with contextlib.suppress(OSError), Talker(self.broker.broker_address) as talker:
                _, body = self.begin(talker)
                return self.finish(talker, body)
            return False

        wait_until(try_one, DEADLINE_S, "a message is accepted")


def begin_point(broker: MqcoreBroker, number: int) -> None:
    """Start the broker anew, after a death of its own, when its worker has died as often as it bears."""
    if number and number % KILLS_PER_LIFE == 0:
        broker.kill()
        broker.start_again()


def anywhere(rng: random.Random, stopped: Stopped, broker: MqcoreBroker) -> None:
    """Between the request's arrival and its answer."""
    stopped.step(rng.randrange(SEND_STEPS_MAX))


def in_the_put_lock(rng: random.Random, stopped: Stopped, broker: MqcoreBroker) -> None:
    """Between the intent to append and its end."""
    segment = attach_segment(broker)
    for _ in range(SEND_STEPS_MAX // INTENT_CHUNK):
        if segment.get("intent_end"):
            break
        stopped.step(INTENT_CHUNK)
    stopped.step(rng.randrange(INTENT_STEPS_MAX))


def kill_senders(tmp_path: Path, move: Callable[[random.Random, Stopped, MqcoreBroker], None], seed: int, points: int,
                 properties: dict[str, str]) -> None:  # fmt: skip
    rng = seeded(seed)
    with start_broker(tmp_path, properties) as broker:
        history = new_history(broker, "Points", f"send{seed}")
        sends = OneByOne(broker, history)
        for _ in range(points):
            sends.send()
            worker = find_worker(broker, "send")
            with Talker(broker.broker_address) as talker:
                sends.send()
                with Stopped(worker.pid) as stopped:
                    _, body = sends.begin(talker)
                    move(rng, stopped, broker)
                sends.finish(talker, body)
            await_successor(broker, "send", worker.pid)
        sends.send()
        print(history.summary(), "repairs", attach_segment(broker).get("put_repairs"))
        history.check(read_all(history, broker.broker_address))
        broker.stop()
        check_store(history, broker.store_dir)


@pytest.mark.parametrize("move", [anywhere, in_the_put_lock])
def test_a_send_worker_may_die_between_any_two_instructions(
    tmp_path: Path, move: Callable[[random.Random, Stopped, MqcoreBroker], None]
) -> None:
    kill_senders(tmp_path, move, seeds(1)[0], POINTS, SYNC_FLUSH)


def kill_reput(broker: MqcoreBroker, sends: OneByOne, talker: Talker, number: int, steps: int) -> None:
    """A held pull is there, a message comes for it, and the worker dies before, while or after it says so."""
    history = sends.history
    segment = attach_segment(broker)
    talker.send([pull_request(history.topic, 0, number, suspend_ms=60_000)])
    wait_until(lambda: segment.waiting_pulls() == 1, DEADLINE_S, "the pull is held")
    worker = find_worker(broker, "reput")
    with Stopped(worker.pid) as stopped:
        sends.send()
        stopped.step(steps)
    killed_at, witness = time.monotonic(), Witness()
    (message,) = pulled(talker.receive())
    check_limit(time.monotonic() - killed_at, witness)
    history.note_read(message)
    assert message.queue_offset == number
    await_successor(broker, "reput", worker.pid)


def kill_reputs(tmp_path: Path, seed: int, points: int) -> None:
    rng = seeded(seed)
    with start_broker(tmp_path, SYNC_FLUSH) as broker:
        history = new_history(broker, "Points", f"reput{seed}", queues=1)
        sends = OneByOne(broker, history)
        for number in range(points):
            begin_point(broker, number)
            with Talker(broker.broker_address, DEADLINE_S) as talker:
                kill_reput(broker, sends, talker, number, rng.randrange(REPUT_STEPS_MAX))
        print(history.summary())
        history.check(read_all(history, broker.broker_address))
        broker.stop()
        check_store(history, broker.store_dir)


def test_a_reput_worker_may_die_between_any_two_instructions(tmp_path: Path) -> None:
    kill_reputs(tmp_path, seeds(1)[0], POINTS)


def kill_pull(broker: MqcoreBroker, sends: OneByOne, talker: Talker, number: int, steps: int) -> None:
    """A held pull is there, a message comes for it, and the worker dies before, while or after it answers."""
    history = sends.history
    segment = attach_segment(broker)
    talker.send([pull_request(history.topic, 0, number, suspend_ms=60_000)])
    wait_until(lambda: segment.waiting_pulls() == 1, DEADLINE_S, "the pull is held")
    worker = find_worker(broker, "pull")
    with Stopped(worker.pid) as stopped:
        sends.send()
        stopped.step(steps)
    response = talker.receive()
    if response.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        assert response.ext_fields is not None
        assert response.ext_fields["nextBeginOffset"] == str(number)
        response = talker.call(pull_request(history.topic, 0, number, suspend_ms=10_000))
    (message,) = pulled(response)
    history.note_read(message)
    assert message.queue_offset == number
    await_successor(broker, "pull", worker.pid)
    wait_until(lambda: segment.waiting_pulls() == 0, DEADLINE_S, "nobody waits any more")


def kill_pulls(tmp_path: Path, seed: int, points: int) -> None:
    rng = seeded(seed)
    with start_broker(tmp_path, SYNC_FLUSH) as broker:
        history = new_history(broker, "Points", f"pull{seed}", queues=1)
        sends = OneByOne(broker, history)
        for number in range(points):
            begin_point(broker, number)
            with Talker(broker.broker_address) as talker:
                kill_pull(broker, sends, talker, number, rng.randrange(PULL_STEPS_MAX))
        history.check(read_all(history, broker.broker_address))
        broker.stop()


def test_a_pull_worker_may_die_between_any_two_instructions(tmp_path: Path) -> None:
    kill_pulls(tmp_path, seeds(1)[0], POINTS)


def kill_flushes(tmp_path: Path, seed: int, points: int) -> None:
    rng = seeded(seed)
    with start_broker(tmp_path, SYNC_FLUSH) as broker:
        history = new_history(broker, "Points", f"flush{seed}")
        sends = OneByOne(broker, history)
        sends.send()
        for number in range(points):
            begin_point(broker, number)
            worker = find_worker(broker, "flush")
            with Talker(broker.broker_address, DEADLINE_S) as talker:
                with Stopped(worker.pid) as stopped:
                    _, body = sends.begin(talker)
                    stopped.to_system_call(rng.randrange(FLUSH_CALLS_MAX))
                assert sends.finish(talker, body), f"a message was given up ({history.summary()})"
            await_successor(broker, "flush", worker.pid)
        print(history.summary())
        history.check(read_all(history, broker.broker_address))
        broker.stop()
        check_store(history, broker.store_dir)


def test_a_flush_worker_may_die_at_any_system_call(tmp_path: Path) -> None:
    kill_flushes(tmp_path, seeds(1)[0], POINTS)


KILLS: dict[str, Callable[[Path, int], None]] = {
    "send": lambda path, seed: kill_senders(path, anywhere, seed, MANY_POINTS, SYNC_FLUSH),
    "send, in the put lock": lambda path, seed: kill_senders(path, in_the_put_lock, seed, MANY_POINTS, SYNC_FLUSH),
    "one of two, in the put lock": lambda path, seed: kill_senders(
        path, in_the_put_lock, seed, MANY_POINTS, SYNC_FLUSH | {"sendWorkerNums": "2"}
    ),
    "reput": lambda path, seed: kill_reputs(path, seed, MANY_POINTS),
    "pull": lambda path, seed: kill_pulls(path, seed, MANY_POINTS),
    "flush": lambda path, seed: kill_flushes(path, seed, MANY_POINTS),
}


@pytest.mark.slow
@pytest.mark.parametrize("worker", KILLS)
def test_a_worker_may_die_anywhere_many_times(tmp_path: Path, worker: str) -> None:
    for number, seed in enumerate(seeds(SLOW_ROUNDS)):
        KILLS[worker](tmp_path / str(number), seed)
