"""New queues whose first files are not there yet: what was acknowledged can be read, and whoever dies, it stays so."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.codes import ResponseCode
from mqcore.layout import CONSUME_QUEUE_UNIT
from tests.fault import stepping
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    KILLS_PER_LIFE,
    attach_segment,
    await_successor,
    find_worker,
    kill_worker,
    seeded,
    seeds,
    start_broker,
)
from tests.fault.stepping import Stopped
from tests.fault.talker import Talker, pull_request, pulled, send_request
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

POINTS = 4
SLOW_POINTS = 60
CALLS_MAX = 50
STEPS_MAX = 20_000
QUEUES = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    with start_broker(tmp_path, ASYNC_FLUSH) as running:
        yield running


def send(broker: MqcoreBroker, topic: str, count: int, mark: str, queues: int = QUEUES) -> None:
    """Send *count* messages to each queue, each acknowledged."""
    with Talker(broker.broker_address, DEADLINE_S) as talker:
        for number in range(count):
            for queue_id in range(queues):
                answer = talker.call(send_request(topic, queue_id, f"{mark} {number}".encode()))
                assert answer.code == ResponseCode.SUCCESS, answer.remark


def check(broker: MqcoreBroker, topic: str, wanted: list[str], queues: int = QUEUES) -> None:
    """Every queue of the topic can be read, and has *wanted* in order."""
    for queue_id in range(queues):
        found: list[str] = []

        def look(queue_id: int = queue_id, found: list[str] = found) -> bool:
            with Talker(broker.broker_address, DEADLINE_S) as talker:
                messages = pulled(talker.call(pull_request(topic, queue_id, len(found))))
            assert [message.queue_offset for message in messages] == [
                len(found) + number for number in range(len(messages))
            ]
            found.extend(message.body.decode() for message in messages)
            return len(found) >= len(wanted)

        wait_until(look, DEADLINE_S, f"{len(wanted)} messages can be read")
        assert found == wanted


def young_count(broker: MqcoreBroker, topic: str) -> int:
    segment = attach_segment(broker)
    rows = segment.topic_queues(topic.encode())
    return sum(segment.queue_word(row, "cradle") != 0 for row in rows)


def unit_counts(broker: MqcoreBroker, topic: str, queues: int = QUEUES) -> list[int]:
    """How many units are in the first file of each queue; 0 for a queue without one."""
    counts = []
    for queue_id in range(queues):
        file = broker.store_dir / "consumequeue" / topic / str(queue_id) / "0".zfill(20)
        data = file.read_bytes() if file.exists() else b""
        sizes = [size for _, size, _ in CONSUME_QUEUE_UNIT.struct.iter_unpack(data[: len(data) // 20 * 20])]
        counts.append(sum(size > 0 for size in sizes))
    return counts


def test_messages_can_be_read_while_their_queue_cannot_have_a_file(broker: MqcoreBroker) -> None:
    wire.create_topic(broker.broker_address, "Blocked", queues=1)
    obstacle = broker.store_dir / "consumequeue" / "Blocked"
    obstacle.symlink_to("nowhere")
    send(broker, "Blocked", 1, "first", queues=1)
    check(broker, "Blocked", ["first 0"], queues=1)
    reput = find_worker(broker, "reput")
    kill_worker(broker, "reput")
    await_successor(broker, "reput", reput.pid)
    check(broker, "Blocked", ["first 0"], queues=1)
    assert young_count(broker, "Blocked") == 1
    obstacle.unlink()
    wait_until(lambda: young_count(broker, "Blocked") == 0, DEADLINE_S, "the queues have files")
    assert unit_counts(broker, "Blocked", queues=1) == [1]
    send(broker, "Blocked", 1, "second", queues=1)
    check(broker, "Blocked", ["first 0", "second 0"], queues=1)
    broker.stop()
    assert not (broker.store_dir / "abort").exists()


def test_a_stop_that_leaves_queues_without_files_is_no_clean_one(broker: MqcoreBroker) -> None:
    wire.create_topic(broker.broker_address, "Blocked", queues=1)
    obstacle = broker.store_dir / "consumequeue" / "Blocked"
    obstacle.symlink_to("nowhere")
    send(broker, "Blocked", 1, "first", queues=1)
    check(broker, "Blocked", ["first 0"], queues=1)
    broker.stop()
    assert (broker.store_dir / "abort").exists()
    obstacle.unlink()
    broker.start_again()
    check(broker, "Blocked", ["first 0"], queues=1)


def test_what_lay_in_cradles_is_made_again_after_the_death_of_all_processes(broker: MqcoreBroker) -> None:
    wire.create_topic(broker.broker_address, "Lost", queues=QUEUES)
    send(broker, "Lost", 3, "first")
    check(broker, "Lost", ["first 0", "first 1", "first 2"])
    broker.kill()
    # As if it had come before the files: none of them was synced.
    shutil.rmtree(broker.store_dir / "consumequeue" / "Lost", ignore_errors=True)
    broker.start_again()
    check(broker, "Lost", ["first 0", "first 1", "first 2"])


def maker_of(pid: int) -> int:
    """The thread of a reput worker that makes first files."""
    (maker,) = [thread.id for thread in psutil.Process(pid).threads() if thread.id != pid]
    return maker


def kill_at_points(broker: MqcoreBroker, rng: random.Random, points: int) -> None:
    """The worker dies while first files are made: in the thread that makes them, or in the one that goes on in them."""
    for number in range(points):
        if number and number % KILLS_PER_LIFE == 0:
            broker.kill()
            broker.start_again()
        topic = f"Points{number}"
        wire.create_topic(broker.broker_address, topic, queues=QUEUES)
        reput = find_worker(broker, "reput")
        is_maker = number % 2 == 0
        with Stopped(maker_of(reput.pid) if is_maker else reput.pid) as stopped:
            send(broker, topic, 2, "before")
            if is_maker:
                # Nobody makes a file, and nobody has to wait for one.
                check(broker, topic, ["before 0", "before 1"])
                stopped.to_system_call(rng.randrange(CALLS_MAX))
            else:
                stopped.step(rng.randrange(STEPS_MAX))
        await_successor(broker, "reput", reput.pid)
        send(broker, topic, 1, "behind")
        check(broker, topic, ["before 0", "before 1", "behind 0"])
        wait_until(lambda topic=topic: young_count(broker, topic) == 0, DEADLINE_S, "the queues have files")  # type: ignore[misc]
        assert unit_counts(broker, topic) == [3] * QUEUES
    broker.stop()
    broker.start_again()
    for number in range(points):
        check(broker, f"Points{number}", ["before 0", "before 1", "behind 0"])


needs_ptrace = pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission())


@pytest.mark.root
@needs_ptrace
def test_a_reput_worker_may_die_while_first_files_are_made(broker: MqcoreBroker) -> None:
    kill_at_points(broker, seeded(seeds(1)[0]), POINTS)


@pytest.mark.root
@pytest.mark.slow
@needs_ptrace
def test_a_reput_worker_may_die_while_first_files_are_made_many_times(broker: MqcoreBroker) -> None:
    kill_at_points(broker, seeded(seeds(1)[0]), SLOW_POINTS)
