"""A warning comes once per cause, says how often it was kept back, and carries its facts for machines too."""

from __future__ import annotations

import logging
import threading

import pytest

from mqcore import cause_log
from mqcore.cause_log import CAUSES_MAX, INTERVAL_S, CauseLog, name_of

logger = logging.getLogger("mqcore.test_cause_log")


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms

    def pass_interval(self) -> None:
        self.now_ms += int(INTERVAL_S * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cause_log, "monotonic_ms", clock)
    return clock


def test_a_cause_is_logged_once_per_interval_with_a_counter(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = CauseLog(logger)
    for error in ("first", "second", "third"):
        log.warning("pull failed", group="G", queue="q0", error=error)
    assert caplog.messages == ["pull failed group=G queue=q0 error=first"]
    clock.pass_interval()
    log.warning("pull failed", group="G", queue="q0", error="fourth")
    clock.pass_interval()
    log.warning("pull failed", group="G", queue="q0", error="fifth")
    assert caplog.messages[1:] == [
        "pull failed group=G queue=q0 error=fourth repeated=2",
        "pull failed group=G queue=q0 error=fifth",
    ]


@pytest.mark.usefixtures("clock")
def test_other_queues_and_other_texts_are_other_causes(caplog: pytest.LogCaptureFixture) -> None:
    log = CauseLog(logger)
    log.warning("pull failed", queue="q0")
    log.warning("pull failed", queue="q1")
    log.warning("pull refused", queue="q0")
    log.warning("pull failed", queue="q0")
    assert caplog.messages == ["pull failed queue=q0", "pull failed queue=q1", "pull refused queue=q0"]


@pytest.mark.usefixtures("clock")
def test_another_kind_of_error_is_another_cause(caplog: pytest.LogCaptureFixture) -> None:
    log = CauseLog(logger)
    for error in (ValueError("a"), ValueError("b"), TypeError("c")):
        log.warning("handler failed", exc_info=error, group="G")
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ValueError, TypeError]


@pytest.mark.usefixtures("clock")
def test_facts_are_there_for_machines_and_texts_are_not_templates(caplog: pytest.LogCaptureFixture) -> None:
    CauseLog(logger).warning("100% full", group="%s", count=3)
    assert caplog.messages == ["100% full group=%s count=3"]
    assert caplog.records[0].__dict__["mq"] == {"group": "%s", "count": 3}
    assert caplog.records[0].filename == "test_cause_log.py"


@pytest.mark.usefixtures("clock")
def test_the_memory_of_causes_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = CauseLog(logger)
    for number in range(CAUSES_MAX + 1):
        log.warning("refused", topic=number)
    log.warning("refused", topic=CAUSES_MAX)  # still known
    log.warning("refused", topic=0)  # forgotten
    assert len(caplog.messages) == CAUSES_MAX + 2


@pytest.mark.usefixtures("clock")
def test_errors_are_shown_with_their_class_and_kept_whole_for_machines(caplog: pytest.LogCaptureFixture) -> None:
    failure = TimeoutError("no answer")
    CauseLog(logger).error("commit failed", error=failure)
    assert caplog.messages == ["commit failed error=TimeoutError: no answer"]
    assert caplog.records[0].levelname == "ERROR"
    assert caplog.records[0].__dict__["mq"] == {"error": failure}


@pytest.mark.usefixtures("clock")
def test_a_peer_with_new_ports_is_one_cause_and_each_hook_is_its_own(caplog: pytest.LogCaptureFixture) -> None:
    log = CauseLog(logger)
    for port in range(3):
        log.warning("bad frame", remote_address=f"10.0.0.1:{port}")
    for hook in (str.upper, str.lower, str.upper):
        log.warning("hook failed", name=name_of(hook))
    assert caplog.messages == ["bad frame remote_address=10.0.0.1:0", "hook failed name=str.upper",
                               "hook failed name=str.lower"]  # fmt: skip


@pytest.mark.usefixtures("clock")
def test_threads_may_warn_side_by_side(caplog: pytest.LogCaptureFixture) -> None:
    log = CauseLog(logger)

    def warn(first: int) -> None:
        for number in range(2000):
            log.warning("refused", topic=first + number)

    threads = [threading.Thread(target=warn, args=(first,)) for first in range(0, 8000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caplog.messages) == 8000
