"""Pulls that have waited too long before they are looked at, and pulls above a quota."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fast_rig import shared_segment
from test_fast_pull_loop import COMMIT, GROUP, MESSAGES, PULL_ROW, STATUS, SUSPEND, TOPIC, PullRig, bodies, expected

from mqcore._fast.segment.quotas import Quotas
from mqcore.codes import ResponseCode
from tests.waiting import wait_until

PULL = 1
TOPIC_KIND, GROUP_KIND, CLIENT_KIND = 0, 1, 2
CLIENT_KEY = 0x1234567
"""A send worker gives it; here it is that of nobody."""


@contextmanager
def running(root: Path, **changes: Any) -> Iterator[PullRig]:
    with shared_segment() as segment:
        made = PullRig(root, segment, **changes)
        try:
            yield made
        finally:
            made.close()


def coarse_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


def word(rig: PullRig, name: str) -> int:
    return rig.segment.worker_word(PULL_ROW, name)


def test_a_pull_that_comes_too_late_is_refused_and_says_how_late(tmp_path: Path) -> None:
    with running(tmp_path, pull_wait_ms=5000) as rig:
        rig.pull(1)
        rig.ask(2, since=coarse_ms() - 6000, sys_flag=COMMIT, commit_offset=3)
        reply = rig.reply()
        assert (reply["code"], reply["status"]) == (ResponseCode.SYSTEM_BUSY, STATUS["WAITED_TOO_LONG"])
        assert 5900 <= reply["max_offset"] < 60_000
        assert rig.segment.committed(rig.segment.offset_row(GROUP, TOPIC, 0)) == -1, "nothing is done for it"
        rig.ask(3, since=coarse_ms() - 1000)
        assert rig.reply()["code"] == ResponseCode.SUCCESS
        rig.change(pull_wait_ms=0)
        rig.ask(4, since=coarse_ms() - 60_000)
        assert rig.reply()["code"] == ResponseCode.SUCCESS


def above(rig: PullRig, rules: list[tuple[int, int, bytes, int, int]], for_s: float, rate: int) -> None:
    """Let *rate* a second be used up for *for_s* seconds to come."""
    rig.change(quotas=rules)
    Quotas(rig.segment, rules).charge(PULL, TOPIC, GROUP, b"", int(rate * (1 + for_s)), 0)


def test_a_pull_above_a_quota_is_answered_when_its_time_has_come(tmp_path: Path) -> None:
    rules = [(PULL, TOPIC_KIND, TOPIC, 1000, 0)]
    with running(tmp_path) as rig:
        rig.pull(1)
        above(rig, rules, 0.4, 1000)
        began = time.monotonic()
        rig.ask(2, sys_flag=COMMIT, commit_offset=5)
        reply = rig.reply()
        assert time.monotonic() - began >= 0.3
        assert bodies(rig, reply) == expected(0)
        assert (word(rig, "quota_delayed"), word(rig, "quota_refused")) == (1, 0)
        assert rig.segment.committed(rig.segment.offset_row(GROUP, TOPIC, 0)) == 5


def test_its_offset_counts_once_and_at_once(tmp_path: Path) -> None:
    """Another commit may come while it waits."""
    with running(tmp_path) as rig:
        rig.pull(1)
        row = rig.segment.offset_row(GROUP, TOPIC, 0)
        above(rig, [(PULL, GROUP_KIND, b"*", 1000, 0)], 0.5, 1000)
        rig.ask(2, sys_flag=COMMIT, commit_offset=5)
        wait_until(lambda: rig.segment.committed(row) == 5, describe="it is committed")
        rig.segment.commit(row, 9)
        assert rig.reply()["code"] == ResponseCode.SUCCESS
        assert rig.segment.committed(row) == 9


def test_what_is_pulled_is_charged(tmp_path: Path) -> None:
    rules = [(PULL, GROUP_KIND, GROUP, 0, 100)]
    with running(tmp_path, quotas=rules, quota_delay_max_ms=100) as rig:
        total = rig.pull(1)["total_size"]
        wait_ms = Quotas(rig.segment, rules).wait_ms(PULL, TOPIC, GROUP, b"")
        assert abs(wait_ms - (total * 10 - 1000)) < 500
        rig.ask(2)
        reply = rig.reply()
        assert (reply["code"], reply["status"]) == (ResponseCode.SYSTEM_BUSY, STATUS["QUOTA_EXCEEDED"])
        assert reply["next_begin_offset"] == 0
        assert word(rig, "quota_refused") == 1


def test_one_that_lets_itself_be_held_is_told_at_its_end_that_there_is_nothing_yet(tmp_path: Path) -> None:
    with running(tmp_path, quota_delay_max_ms=0) as rig:
        rig.pull(1)
        above(rig, [(PULL, TOPIC_KIND, b"*", 1, 0)], 60, 1)
        began = time.monotonic()
        rig.ask(2, 4, sys_flag=SUSPEND, suspend_timeout_ms=400)
        reply = rig.reply()
        assert 0.3 <= time.monotonic() - began < 30
        assert (reply["code"], reply["next_begin_offset"]) == (ResponseCode.PULL_NOT_FOUND, 4)
        assert (reply["max_offset"], reply["min_offset"]) == (MESSAGES // 2, 0)


def test_clients_have_quotas_by_the_key_that_comes_with_the_pull(tmp_path: Path) -> None:
    rules = [(PULL, CLIENT_KIND, b"*", 1, 0)]
    with running(tmp_path, quotas=rules, quota_delay_max_ms=0) as rig:
        assert rig.pull(1, client_key=CLIENT_KEY)["message_count"] > 2
        rig.ask(2, client_key=CLIENT_KEY)
        assert rig.reply()["code"] == ResponseCode.SYSTEM_BUSY
        for ticket, key in ((3, CLIENT_KEY + 2), (4, 0)):
            rig.ask(ticket, client_key=key)
            assert rig.reply()["code"] == ResponseCode.SUCCESS


def test_a_pull_that_waits_for_its_quota_ends_with_its_connection(tmp_path: Path) -> None:
    with running(tmp_path) as rig:
        rig.pull(1)
        above(rig, [(PULL, TOPIC_KIND, b"*", 1000, 0)], 0.4, 1000)
        rig.ask(2)
        rig.ask(3)
        wait_until(lambda: word(rig, "quota_delayed") == 2, describe="both wait")
        rig.end(2)
        assert rig.reply()["ticket"] == 3
        rig.ask(4)
        assert rig.reply()["ticket"] == 4


@pytest.mark.parametrize("suspends", [0, SUSPEND])
def test_without_quotas_nothing_is_counted(tmp_path: Path, suspends: int) -> None:
    with running(tmp_path) as rig:
        assert rig.pull(1, sys_flag=suspends)["code"] == ResponseCode.SUCCESS
        assert Quotas(rig.segment, [(PULL, TOPIC_KIND, b"*", 1, 0)]).wait_ms(PULL, TOPIC, GROUP, b"") == 0
