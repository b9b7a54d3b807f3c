"""The threads of an application's functions: as many as asked for, used again, and never in the way of the end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from mqcore.client.session.handler_threads import HandlerThreads
from tests.waiting import wait_until

DEADLINE_S = 60.0
NAME = "mqcore test of handler threads"  # no other test's threads, which may just be ending, begin like this


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    made = HandlerThreads(3, NAME)
    yield made
    made.shutdown(cancel_futures=True)
    wait_until(lambda: not living(), DEADLINE_S, "all threads end")


def living() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(NAME)]


def test_results_and_exceptions_come_back(threads: HandlerThreads) -> None:
    assert threads.submit(divmod, 7, 2).result(DEADLINE_S) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(DEADLINE_S)


def test_one_thread_does_work_that_comes_one_after_the_other(threads: HandlerThreads) -> None:
    for _ in range(20):
        assert threads.submit(threading.get_ident).result(DEADLINE_S)
        wait_until(lambda: threads._idle == 1, DEADLINE_S, "the thread is idle again")
    assert living() == [f"{NAME}_1"]


def test_no_more_threads_than_asked_for_and_the_rest_waits_its_turn(threads: HandlerThreads) -> None:
    gate, running, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    def work(number: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait(DEADLINE_S)
        with lock:
            running[0] -= 1
        return number

    futures = [threads.submit(work, number) for number in range(10)]
    wait_until(lambda: running[0] == 3, DEADLINE_S, "three at work")
    gate.set()
    assert [future.result(DEADLINE_S) for future in futures] == list(range(10))
    assert most[0] == 3


def test_after_a_shutdown_nothing_new_is_taken_and_what_waits_is_cancelled() -> None:
    threads = HandlerThreads(1, NAME)
    gate, begun = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        gate.wait(DEADLINE_S)
        return "done"

    first, second = threads.submit(work), threads.submit(work)
    assert begun.wait(DEADLINE_S)
    threads.shutdown(wait=True, cancel_futures=True)  # and yet it does not wait
    assert second.cancelled()
    with pytest.raises(RuntimeError, match=f"{NAME} have been shut down"):
        threads.submit(work)
    gate.set()
    assert first.result(DEADLINE_S) == "done"
    wait_until(lambda: not living(), DEADLINE_S, "the thread ends")


def test_a_function_that_never_returns_does_not_keep_the_process_alive() -> None:
    program = (
        "import threading; from mqcore.client.session.handler_threads import HandlerThreads\n"
        "begun = threading.Event()\n"
        "def stuck():\n    begun.set(); threading.Event().wait()\n"
        "HandlerThreads(1, 'stuck').submit(stuck); begun.wait(); print('ends')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "ends\n"
