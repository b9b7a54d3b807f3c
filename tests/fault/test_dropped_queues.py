"""Topics deleted and made again: what was acknowledged since is there, what was before is not, whoever dies."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from mqcore.store.incarnations import Incarnations
from mqcore.store.paths import StorePaths
from tests.fault import stepping
from tests.fault.rig import (
    ASYNC_FLUSH,
    DEADLINE_S,
    FLUSH_MODES,
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
from tests.suite.seeds import chance_of_run
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Reborn"
OTHER = "Bystander"
GROUP = "fault_readers"
LOAD_WINDOW = 200
POINTS = 6
CALLS_MAX = 160


@pytest.fixture
def broker(flush_mode: dict[str, str], tmp_path: Path) -> Iterator[MqcoreBroker]:
    with start_broker(tmp_path, flush_mode) as running:
        create(running)
        wire.create_topic(running.broker_address, OTHER, queues=1)
        yield running


@pytest.fixture(
    scope="module", params=["either", *(pytest.param(mode, marks=pytest.mark.slow) for mode in FLUSH_MODES)]
)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    """A broker for tests that neither stop it nor look at the whole of its store."""
    choice = chance_of_run(__name__).choice(list(FLUSH_MODES)) if request.param == "either" else request.param
    print(f"flush mode: {choice}")
    with start_broker(tmp_path_factory.mktemp("shared"), FLUSH_MODES[choice]) as running:
        yield running


@pytest.fixture
def anew(shared: MqcoreBroker) -> MqcoreBroker:
    """The shared broker, its topics empty."""
    for topic in (TOPIC, OTHER):
        wire.call(shared.broker_address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        wire.create_topic(shared.broker_address, topic, queues=1)
    return shared


def create(broker: MqcoreBroker) -> None:
    wire.create_topic(broker.broker_address, TOPIC, queues=1)


def delete(broker: MqcoreBroker) -> wire.Answer:
    return wire.call(broker.broker_address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})


def send(broker: MqcoreBroker, count: int, mark: str, topic: str = TOPIC) -> list[int]:
    """Send *count* messages, each acknowledged; the queue offsets they were given."""
    offsets = []
    with Talker(broker.broker_address, DEADLINE_S) as talker:
        for number in range(count):
            answer = talker.call(send_request(topic, 0, f"{mark} {number}".encode()))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert answer.ext_fields is not None
            offsets.append(int(answer.ext_fields["queueOffset"]))
    return offsets


def read(broker: MqcoreBroker, count: int, topic: str = TOPIC) -> list[str]:
    """Every message of the queue from offset 0 on, once there are *count*."""
    found: list[str] = []

    def look() -> bool:
        found.clear()
        with contextlib.suppress(OSError), Talker(broker.broker_address, DEADLINE_S) as talker:
            while messages := pulled(talker.call(pull_request(topic, 0, len(found)))):
                assert [message.queue_offset for message in messages] == [
                    len(found) + number for number in range(len(messages))
                ]
                found.extend(message.body.decode() for message in messages)
        return len(found) >= count

    wait_until(look, DEADLINE_S, f"{count} messages can be read")
    return found


def marks(mark: str, count: int) -> list[str]:
    return [f"{mark} {number}" for number in range(count)]


def test_messages_acknowledged_after_a_topic_was_made_again_are_there_although_dispatch_stood_still(
    anew: MqcoreBroker,
) -> None:
    send(anew, 5, "old")
    assert read(anew, 5) == marks("old", 5)
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "5"}
    assert wire.call(anew.broker_address, RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS
    reput = find_worker(anew, "reput")
    reput.send_signal(signal.SIGSTOP)
    try:
        answer = delete(anew)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "reput worker" in (answer.remark or "")
        create(anew)
        assert send(anew, 10, "new") == list(range(10))
        with Talker(anew.broker_address) as talker:
            assert not pulled(talker.call(pull_request(TOPIC, 0, 0))), "a dead message is handed out"
        committed = wire.call(anew.broker_address, RequestCode.QUERY_CONSUMER_OFFSET, commit)
        assert (committed.ext_fields or {}).get("offset", "0") == "0", "a new topic goes on with old offsets"
    finally:
        reput.send_signal(signal.SIGCONT)
    assert read(anew, 10) == marks("new", 10)


def test_a_deletion_waits_for_what_is_under_way_and_other_topics_do_not_mind(anew: MqcoreBroker) -> None:
    for round_ in range(5):
        send(anew, 20, f"old {round_}")
        send(anew, 1, f"{round_}", OTHER)
        assert delete(anew).code == ResponseCode.SUCCESS
        assert not anew.store_dir.joinpath("consumequeue", TOPIC).exists()
        create(anew)
    assert send(anew, 2, "new") == [0, 1]
    assert read(anew, 2) == marks("new", 2)
    assert read(anew, 5, OTHER) == [f"{round_} 0" for round_ in range(5)]


@contextlib.contextmanager
def load_on(broker: MqcoreBroker, topic: str) -> Iterator[Callable[[], int]]:
    """Messages into *topic* all the while, many under way; gives how many are acknowledged so far."""
    acknowledged, is_over = 0, threading.Event()

    def keep_sending() -> None:
        nonlocal acknowledged
        with Talker(broker.broker_address, DEADLINE_S) as talker:
            while not is_over.is_set():
                talker.send(send_request(topic, 0, b"load" * 50) for _ in range(LOAD_WINDOW))
                for _ in range(LOAD_WINDOW):
                    assert talker.receive().code == ResponseCode.SUCCESS
                acknowledged += LOAD_WINDOW

    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(keep_sending)
        try:
            wait_until(lambda: acknowledged > 0 or work.done(), DEADLINE_S, "the load has begun")
            yield lambda: acknowledged
        finally:
            is_over.set()
            work.result()


def test_a_topic_is_deleted_under_steady_load_of_another(anew: MqcoreBroker) -> None:
    with load_on(anew, OTHER) as acknowledged:
        for round_ in range(5):
            before = acknowledged()
            send(anew, 5, f"old {round_}")
            assert delete(anew).code == ResponseCode.SUCCESS
            create(anew)
            assert send(anew, 5, f"new {round_}") == list(range(5))
            assert read(anew, 5) == marks(f"new {round_}", 5)
            wait_until(lambda before=before: acknowledged() > before, DEADLINE_S, "the load goes on")  # type: ignore[misc]
            assert delete(anew).code == ResponseCode.SUCCESS
            create(anew)
        sent = acknowledged()
    wait_until(lambda: wire.max_offset(anew.broker_address, OTHER, 0) >= sent, DEADLINE_S, "all of it can be read")


@pytest.mark.parametrize("is_built_anew", [False, True], ids=["as it was", "consume queues built anew"])
def test_a_deletion_outlives_the_death_of_all_processes(broker: MqcoreBroker, is_built_anew: bool) -> None:
    send(broker, 10, "old")
    assert delete(broker).code == ResponseCode.SUCCESS
    create(broker)
    assert send(broker, 10, "new") == list(range(10))
    assert read(broker, 10) == marks("new", 10)
    broker.kill()
    if is_built_anew:
        shutil.rmtree(broker.store_dir / "consumequeue")
        broker.store_dir.joinpath("checkpoint").unlink(missing_ok=True)
    broker.start_again()
    assert read(broker, 10) == marks("new", 10)
    assert send(broker, 1, "newer") == [10]
    broker.stop()
    broker.start_again()
    assert read(broker, 11) == [*marks("new", 10), "newer 0"]


def test_a_deleted_topic_stays_empty_after_the_death_of_all_processes(broker: MqcoreBroker) -> None:
    send(broker, 10, "old")
    assert delete(broker).code == ResponseCode.SUCCESS
    broker.kill()
    broker.start_again()
    create(broker)
    with Talker(broker.broker_address) as talker:
        assert not pulled(talker.call(pull_request(TOPIC, 0, 0)))
    assert send(broker, 1, "new") == [0]
    assert read(broker, 1) == ["new 0"]


def test_a_topic_that_was_deleted_with_the_newest_messages_is_not_dispatched_again_by_each_start(
    broker: MqcoreBroker,
) -> None:
    send(broker, 2, "kept", OTHER)
    send(broker, 10, "old")
    assert delete(broker).code == ResponseCode.SUCCESS
    for _ in range(2):
        broker.stop()
        broker.start_again()
        assert read(broker, 2, OTHER) == marks("kept", 2)
    log = broker.store_dir.with_name(f"{broker.store_dir.name}.mqcore") / "broker.out"
    assert "behind the commit log" not in log.read_text()
    create(broker)
    assert send(broker, 1, "new") == [0]
    assert read(broker, 1) == ["new 0"]


def test_a_deletion_that_a_restart_interrupts_is_finished(broker: MqcoreBroker) -> None:
    send(broker, 10, "old")
    assert read(broker, 10) == marks("old", 10)
    reput = find_worker(broker, "reput")
    reput.send_signal(signal.SIGSTOP)
    assert delete(broker).code == ResponseCode.SYSTEM_ERROR
    create(broker)
    assert send(broker, 3, "new") == [0, 1, 2]
    broker.kill()
    broker.start_again()
    assert read(broker, 3) == marks("new", 3)


def test_a_reput_worker_that_dies_over_a_drop_is_followed_by_one_that_finishes_it(broker: MqcoreBroker) -> None:
    for _ in range(2):  # a deletion waits three seconds for a worker that stands still
        send(broker, 10, "old")
        reput = find_worker(broker, "reput")
        reput.send_signal(signal.SIGSTOP)
        delete(broker)
        create(broker)
        assert send(broker, 3, "new") == [0, 1, 2]
        kill_worker(broker, "reput")
        await_successor(broker, "reput", reput.pid)
        assert read(broker, 3) == marks("new", 3)
        assert delete(broker).code == ResponseCode.SUCCESS
        create(broker)


def test_keys_of_a_deleted_topic_lead_nowhere(anew: MqcoreBroker) -> None:
    def query() -> bytes:
        fields = {"topic": TOPIC, "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        return wire.call(anew.broker_address, RequestCode.QUERY_MESSAGE, fields).body

    def send_keyed(body: bytes) -> None:
        with Talker(anew.broker_address, DEADLINE_S) as talker:
            assert talker.call(send_request(TOPIC, 0, body, keys="k")).code == ResponseCode.SUCCESS

    send_keyed(b"the old one")
    wait_until(lambda: b"the old one" in query(), DEADLINE_S, "the old message is found by its key")
    delete(anew)
    create(anew)
    send_keyed(b"the new one")
    wait_until(lambda: b"the new one" in query(), DEADLINE_S, "the new message is found by its key")
    assert b"the old one" not in query()


def test_a_birth_is_forgotten_with_the_last_message_from_before(broker: MqcoreBroker) -> None:
    send(broker, 10, "old")
    delete(broker)
    create(broker)
    send(broker, 1, "new")
    paths = StorePaths.at(broker.store_dir)
    assert len(Incarnations.read(paths.incarnations)) == 1
    body = "x" * 4000
    send(broker, 150, body)
    broker.stop()
    for path in sorted(paths.commit_log.iterdir())[:-1]:
        path.unlink()
    broker.start_again()
    assert len(Incarnations.read(paths.incarnations)) == 0
    assert send(broker, 1, "newest") == [151]


@pytest.mark.root
@pytest.mark.skipif(bool(stepping.missing_permission()), reason=stepping.missing_permission())
@pytest.mark.parametrize("victim", ["reput", "broker"])
def test_processes_may_die_at_any_system_call_of_a_drop(tmp_path: Path, victim: str) -> None:
    rng = seeded(seeds(1)[0])
    with start_broker(tmp_path, ASYNC_FLUSH) as broker:
        for point in range(POINTS):
            kill_over_a_drop(broker, victim, rng, point)


def kill_over_a_drop(broker: MqcoreBroker, victim: str, rng: random.Random, point: int) -> None:
    """Send, delete, die somewhere; then nothing that was acknowledged since the topic was made again is missing."""
    create(broker)
    old = send(broker, 5, f"old {point}")
    read(broker, old[-1] + 1)
    pid = broker.pid if victim == "broker" else find_worker(broker, "reput").pid
    with Talker(broker.broker_address, DEADLINE_S) as talker:
        with Stopped(pid) as stopped:
            talker.send([RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": TOPIC})])
            stopped.to_system_call(rng.randrange(CALLS_MAX))
        if victim == "broker":
            broker.kill()
            broker.start_again()
        else:
            await_successor(broker, "reput", pid)
            # While the drop goes on, its queues take no message.
            assert talker.receive().is_response
    create(broker)
    new = send(broker, 5, f"new {point}")
    found = read(broker, new[-1] + 1)
    # Killed early, nothing was deleted and the queue goes on; else it began anew.
    kept = new[0]
    assert kept in (0, old[-1] + 1)
    assert found[kept:] == marks(f"new {point}", 5)
    broker.kill()
    broker.start_again()
    assert read(broker, new[-1] + 1) == found
    assert delete(broker).code == ResponseCode.SUCCESS
