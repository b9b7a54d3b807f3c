"""Answers of request-reply while the broker dies: what its answerer was told is kept is kept, and nothing is invented.

Answers and ordinary messages go into the same queues. Answers of one connection may be stored in another order than
they were sent in, as each waits for its asker's word first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest

from mqcore.protocol.command import RemotingCommand
from tests.fault import stepping
from tests.fault.history import History, make_body, read_all, wait_for_acks
from tests.fault.rig import (
    ASYNC_FLUSH,
    BODY_SIZE_MAX,
    DEADLINE_S,
    SYNC_FLUSH,
    Witness,
    await_resumption,
    check_store,
    find_worker,
    kill_worker,
    new_history,
    seeded,
    seeds,
    start_broker,
    under_load,
)
from tests.fault.stepping import Stopped
from tests.fault.talker import Talker, answer_request, asker_heart_beat
from tests.rigs import MqcoreBroker

pytestmark = pytest.mark.fault

KILLS = 1
SLOW_KILLS = 12
POINTS = 2
SLOW_POINTS = 60
SYSTEM_CALLS_MAX = 60
"""Between the arrival of an answer and the word to its answerer, so many ends of system calls at most are looked at."""

SEND_SYSTEM_CALLS_MAX = 40
"""As many as a send worker makes for an answer that it pushes by itself, and some of the sleep before and behind."""

VICTIMS = ["broker", "send"]
FLUSH_MODES = [pytest.param(SYNC_FLUSH, id="sync"), pytest.param(ASYNC_FLUSH, id="async")]


def check(history: History, broker: MqcoreBroker) -> None:
    history.check(read_all(history, broker.broker_address), in_order=False)


def rounds(tmp_path: Path, properties: dict[str, str], kills: int) -> None:
    """Kill a send worker or the whole broker, again and again."""
    (seed,) = seeds(1)
    rng = seeded(seed)
    with start_broker(tmp_path, properties) as broker:
        history = new_history(broker, "Answers", f"answers{seed}")
        for number in range(kills):
            with under_load(history, broker, first=10 * number, answerers=2):
                wait_for_acks(history, rng.randrange(1, 300), DEADLINE_S)
                witness = Witness()
                kill_worker(broker, rng.choice(["send", "reput", "flush"]))
                await_resumption(history, time.monotonic(), witness)
                time.sleep(rng.uniform(0, 0.05))
                broker.kill()
            broker.start_again()
            check(history, broker)
        print(history.summary())
        broker.stop()
        check_store(history, broker.store_dir, in_order=False)


@pytest.mark.parametrize("properties", FLUSH_MODES)
def test_no_stored_answer_is_lost_when_workers_and_the_broker_are_killed(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    rounds(tmp_path, properties, KILLS)


@pytest.mark.slow
@pytest.mark.parametrize("properties", FLUSH_MODES)
def test_no_stored_answer_is_lost_in_many_deaths(tmp_path: Path, properties: dict[str, str]) -> None:
    rounds(tmp_path, properties, SLOW_KILLS)


class Asker(threading.Thread):
    """Takes what is pushed to it until its connection breaks."""

    def __init__(self, talker: Talker) -> None:
        super().__init__(name="asker", daemon=True)
        self._talker = talker
        self.taken: list[bytes] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                push = self._talker.receive()
                self.taken.append(push.body)
                self._talker.socket.sendall(push.reply().encode())


def note_told(history: History, told: RemotingCommand, body: bytes) -> None:
    fields = told.ext_fields or {}
    assert told.code == 0, told.remark
    history.note_acked(int(fields["queueId"]), int(fields["queueOffset"]), body)


def die_with_an_answer_under_way(broker: MqcoreBroker, history: History, number: int, calls: int, victim: str) -> str:
    """End *victim* at a system call, between the arrival of an answer and the word to its answerer.

    Gives how far it got: "told", "pushed", or "nothing" that anybody could see. The send worker is stopped over its
    asker's second answer: over the first it knows nobody.
    """
    first, body = (make_body(history.run, 0, 2 * number + at, BODY_SIZE_MAX) for at in range(2))
    taken = []
    with Talker(broker.broker_address) as talker, Talker(broker.broker_address) as answerer:
        assert talker.call(asker_heart_beat("asker")).code == 0
        asker = Asker(talker)
        asker.start()
        if victim == "send":
            history.note_sent([first])
            note_told(history, answerer.call(answer_request(history.topic, 0, first, "asker")), first)
            taken.append(first)
        history.note_sent([body])
        with Stopped(broker.pid if victim == "broker" else find_worker(broker, victim).pid) as stopped:
            answerer.send([answer_request(history.topic, number % history.queues, body, "asker")])
            stopped.to_system_call(calls)
            stopped.kill()
        told = None
        with contextlib.suppress(ConnectionError):
            told = answerer.receive()
        asker.join(DEADLINE_S)
    assert asker.taken in (taken, [*taken, body])
    if told is None:
        history.note_unanswered(1)
        return "pushed" if body in asker.taken else "nothing"
    note_told(history, told, body)
    return "told"


def die_at_points(tmp_path: Path, points: int, victim: str) -> None:
    (seed,) = seeds(1)
    rng = seeded(seed)
    seen = []
    calls_max = SYSTEM_CALLS_MAX if victim == "broker" else SEND_SYSTEM_CALLS_MAX
    with start_broker(tmp_path, SYNC_FLUSH if victim == "broker" else ASYNC_FLUSH) as broker:
        history = new_history(broker, "Answers", f"points{seed}")
        for number in range(points):
            seen.append(die_with_an_answer_under_way(broker, history, number, rng.randrange(calls_max), victim))
            broker.kill()
            broker.start_again()
            check(history, broker)
        print(seen, history.summary())
        broker.stop()
        check_store(history, broker.store_dir, in_order=False)


@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission())
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_broker_may_die_at_any_moment_of_an_answer(tmp_path: Path, victim: str) -> None:
    die_at_points(tmp_path, POINTS, victim)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission())
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_broker_may_die_at_many_moments_of_an_answer(tmp_path: Path, victim: str) -> None:
    die_at_points(tmp_path, SLOW_POINTS, victim)
