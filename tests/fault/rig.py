"""Brokers that are made to be broken: small files, no pauses before restarts, and the means to kill their processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from mqcore._fast.segment.boards import SharedSegment
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.places import LogPlaces
from mqcore.store.queues.index_file import IndexGeometry
from tests.fault.history import History, Load, read_all
from tests.fault.store_scan import StoreScan, scan_store
from tests.rigs import MqcoreBroker, wire
from tests.suite.seeds import VARIABLE as RUN_SEED
from tests.waiting import POLL_S, wait_until

SEED_VARIABLE = "MQCORE_FAULT_SEED"
ROUNDS_VARIABLE = "MQCORE_FAULT_ROUNDS"
WORKER_KINDS = ("send", "pull", "reput", "flush")
KILLS_PER_LIFE = 3
"""A broker whose worker dies more often than this within seconds refuses what needs it; it is started anew then."""

RESUME_LIMIT_S = 10.0
"""Service goes on in less than a second where nothing else runs. Whoever waits in vain, for the time-out of
a send (60 s) or the end of a held pull or of a sync (30 s), waits longer than this."""

WITNESS_FACTOR = 4
DEADLINE_S = 60.0
QUEUES = 4
BODY_SIZE_MAX = 1024

COMMIT_LOG_FILE_SIZE = 1 << 18
CONSUME_QUEUE_FILE_SIZE = 20 * 300
INDEX = IndexGeometry(slot_count=500, entry_count=2000)
GEOMETRY = StoreGeometry(
    commit_log_file_size=COMMIT_LOG_FILE_SIZE, consume_queue_file_size=CONSUME_QUEUE_FILE_SIZE, index=INDEX
)

# Every file rolls within a round, the index survives crashes whole, and a worker that dies often is back at once.
SMALL_FILES = {
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": str(CONSUME_QUEUE_FILE_SIZE),
    "maxHashSlotNum": str(INDEX.slot_count),
    "maxIndexNum": str(INDEX.entry_count),
    "maxMessageSize": "65536",
    "messageIndexSafe": "true",
    "flushConsumeQueueThoroughInterval": "1000",
    "workerRestartBackoffMillis": "1",
    "workerRestartBackoffMaxMillis": "1",
}
SYNC_FLUSH = {**SMALL_FILES, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "30000"}
ASYNC_FLUSH = {**SMALL_FILES, "flushDiskType": "ASYNC_FLUSH"}
FLUSH_MODES = {"sync": SYNC_FLUSH, "async": ASYNC_FLUSH}


def seeds(count: int) -> list[int]:
    """Seeds for *count* rounds: those from MQCORE_FAULT_SEED on, or what follows from the run's seed and the test."""
    count = int(os.environ.get(ROUNDS_VARIABLE, count))
    first = os.environ.get(SEED_VARIABLE)
    if first is not None:
        return [int(first) + number for number in range(count)]
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]  # behind it stands the phase
    chance = random.Random(f"{os.environ[RUN_SEED]}/{test}")
    return [chance.randrange(1 << 32) for _ in range(count)]


def seeded(seed: int) -> random.Random:
    """A generator for one test, whose seed is in the test's output."""
    print(f"seed {seed}; to replay: {SEED_VARIABLE}={seed} {ROUNDS_VARIABLE}=1")
    return random.Random(seed)


def start_broker(directory: Path, properties: Mapping[str, str]) -> MqcoreBroker:
    """Start a broker on the store *directory*/store."""
    return MqcoreBroker(directory / "store", properties)


def new_history(broker: MqcoreBroker, topic: str, run: str, queues: int = QUEUES) -> History:
    """Create *topic* and return its empty history."""
    wire.create_topic(broker.broker_address, topic, queues=queues)
    return History(run, topic, queues)


def worker_kind(process: psutil.Process) -> str:
    """Which kind of worker *process* is, by its command line."""
    command = process.cmdline()
    return command[command.index("mqcore.workers") + 1]


def find_worker(broker: MqcoreBroker, kind: str) -> psutil.Process:
    """The live worker of *kind*; waits for one that is being started."""
    found: list[psutil.Process] = []

    def look() -> bool:
        found.clear()
        for process in broker.workers():
            with contextlib.suppress(psutil.Error, ValueError):
                if process.status() != psutil.STATUS_ZOMBIE and worker_kind(process) == kind:
                    found.append(process)
        return bool(found)

    wait_until(look, DEADLINE_S, f"a {kind} worker lives")
    return found[0]


def kill_worker(broker: MqcoreBroker, kind: str) -> int:
    """SIGKILL the worker of *kind*; its process id."""
    worker = find_worker(broker, kind)
    worker.send_signal(signal.SIGKILL)
    return worker.pid


def await_successor(broker: MqcoreBroker, kind: str, pid: int) -> psutil.Process:
    """Wait for a worker of *kind* that is not the process *pid*."""
    wait_until(lambda: find_worker(broker, kind).pid != pid, DEADLINE_S, f"another {kind} worker lives")
    return find_worker(broker, kind)


class Witness:
    """A process that does nothing but what a worker does before its first line of work: it imports.

    Started at the same moment as a worker, it tells how long that takes on this machine, however busy that is.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._process = subprocess.Popen([sys.executable, "-c", "import mqcore.workers.flush"])
        self._taken_s = 0.0
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def _wait(self) -> None:
        self._process.wait()
        self._taken_s = time.monotonic() - self._began

    def taken_s(self) -> float:
        """Wait for its end; how long it lived, seconds."""
        self._waiter.join(DEADLINE_S)
        assert not self._waiter.is_alive(), "a bare process does not get to its end"
        return self._taken_s

    def dismiss(self) -> None:
        """End it: nobody asks."""
        self._process.kill()
        self._waiter.join(DEADLINE_S)


def check_limit(taken_s: float, witness: Witness) -> None:
    """Raise unless service went on by itself, which is to say before any time-out could have helped.

    On a machine that is very busy with other things the limit is four times what the *witness* needs. A shorter limit
    would hold the machine's disk and scheduler against the broker: one stall is enough, and the witness, which syncs
    nothing and may run on another processor, need not meet it.
    """
    if taken_s <= RESUME_LIMIT_S:
        witness.dismiss()
    else:
        limit_s = max(RESUME_LIMIT_S, WITNESS_FACTOR * witness.taken_s())
        assert taken_s <= limit_s, f"service went on after {taken_s:.2f} s, wanted {limit_s:.2f} s"


def await_resumption(history: History, killed_at: float, witness: Witness) -> float:
    """Wait until a message that was sent after *killed_at* is acknowledged and read; how long that took, seconds."""
    while min(history.newest_acked, history.newest_seen) <= killed_at:
        if time.monotonic() - killed_at > DEADLINE_S:
            raise AssertionError(f"service did not go on for {DEADLINE_S} s ({history.summary()})")
        time.sleep(POLL_S)
    taken_s = time.monotonic() - killed_at
    check_limit(taken_s, witness)
    return taken_s


def check_history(history: History, broker: MqcoreBroker) -> None:
    """Read everything through the broker and hold it against what was promised."""
    history.check(read_all(history, broker.broker_address))


def check_store(
    history: History,
    store_dir: Path,
    *,
    in_order: bool = True,
    deleted: frozenset[str] = frozenset(),
    places: LogPlaces | None = None,
) -> StoreScan:
    """Read the stopped store's files, hold them against one another and against what was promised.

    *places*: where the commit log lies if not in the store's directory.
    """
    scan = scan_store(store_dir, GEOMETRY, deleted, places)
    history.check(scan.bodies(history.topic), in_order=in_order)
    return scan


@contextlib.contextmanager
def under_load(
    history: History,
    broker: MqcoreBroker,
    *,
    first: int = 0,
    producers: int = 4,
    burst_max: int = 32,
    answerers: int = 0,
) -> Iterator[Load]:
    """Producers and a follower at work; *first* keeps their numbers apart from those of earlier loads.

    *answerers* of the *producers* send answers of request-reply.
    """
    with Load(
        history,
        broker.broker_address,
        producers=producers,
        first=first,
        burst_max=burst_max,
        body_size_max=BODY_SIZE_MAX,
        answerers=answerers,
    ) as load:
        yield load


def attach_segment(broker: MqcoreBroker) -> SharedSegment:
    """The shared memory of a running broker, found through its process's descriptors."""
    for link in Path(f"/proc/{broker.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(link.readlink()).startswith("/memfd:mqcore "):
                descriptor = os.open(link, os.O_RDWR | os.O_CLOEXEC)
                try:
                    return SharedSegment.attach(descriptor)
                finally:
                    os.close(descriptor)
    raise AssertionError(f"broker process {broker.pid} has no shared segment")


@contextlib.contextmanager
def at_work(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Threads that do *works* until the block is left."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=[stop]) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
