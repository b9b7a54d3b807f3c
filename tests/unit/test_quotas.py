"""Quotas: the setting's text, and the rows that say who has used what."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from fast_rig import RawSegment, shared_segment

from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.quotas import Quotas
from mqcore.config import load
from mqcore.config.quotas import QuotaRule, parse_quotas
from mqcore.errors import ConfigError
from mqcore.layout import QUOTA_PROBES, QUOTA_ROWS, QUOTA_RULES_MAX

SEND, PULL = 0, 1
TOPIC, GROUP, CLIENT = 0, 1, 2
BURST_MS = 1000
CLOCK_MS = 10
"""A tick of the coarse clock, and what passes between two calls."""


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


def test_the_text_says_what_is_limited() -> None:
    text = " topic/Orders/send=1000,0 ; group/*/pull=0,2048;client/10.0.0.7/send=5,6;client/::1/pull=7,8;"
    assert parse_quotas(text) == (
        QuotaRule(SEND, TOPIC, b"Orders", 1000, 0),
        QuotaRule(PULL, GROUP, b"*", 0, 2048),
        QuotaRule(SEND, CLIENT, bytes([10, 0, 0, 7]), 5, 6),
        QuotaRule(PULL, CLIENT, bytes(15) + b"\1", 7, 8),
    )
    assert parse_quotas("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "topic/Orders/send=1000", "topic/Orders/send=-1,0", "topic/Orders/send=1,10000000000", "topic/a b/send=1,1",
        "queue/Orders/send=1,1", "topic/Orders/read=1,1", "client/somebody/send=1,1", "topic//send=1,1", "1,1",
        "topic/Orders/send=1,1;topic/Orders/send=2,2",
        ";".join(f"topic/t{number}/send=1,1" for number in range(QUOTA_RULES_MAX + 1)),
    ],
)  # fmt: skip
def test_another_text_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"quotas: got .*, wanted kind/name/direction=messages,bytes"):
        load(overrides={"bindAddress": "127.0.0.1", "quotas": text}, environment={})


def test_nobody_is_limited_by_default(segment: SharedSegment) -> None:
    settings = load(overrides={"bindAddress": "127.0.0.1"}, environment={})
    quotas = Quotas(segment, parse_quotas(settings.mqcore.quotas))
    assert not quotas.has_any(SEND)
    assert not quotas.has_any(PULL)
    quotas.charge(SEND, b"T", b"g", b"\x7f\0\0\1", 10**6, 1 << 30)
    assert quotas.wait_ms(SEND, b"T", b"g", b"\x7f\0\0\1") == 0


def test_who_is_above_it_waits_until_the_rate_has_caught_up(segment: SharedSegment) -> None:
    quotas = Quotas(segment, [(SEND, TOPIC, b"T", 100, 0)])
    quotas.charge(SEND, b"T", b"", b"", 100, 0)  # a second's worth: the burst
    assert quotas.wait_ms(SEND, b"T", b"", b"") == 0
    quotas.charge(SEND, b"T", b"", b"", 50, 0)
    assert 500 - CLOCK_MS <= quotas.wait_ms(SEND, b"T", b"", b"") <= 500
    time.sleep(0.2)
    assert quotas.wait_ms(SEND, b"T", b"", b"") <= 300
    assert quotas.wait_ms(SEND, b"U", b"", b"") == 0, "another topic"
    assert quotas.wait_ms(PULL, b"T", b"", b"") == 0, "another direction"


def test_one_that_is_larger_than_a_second_of_it_passes_and_is_paid_for_by_the_next(segment: SharedSegment) -> None:
    quotas = Quotas(segment, [(SEND, GROUP, b"g", 0, 1000)])
    assert quotas.wait_ms(SEND, b"T", b"g", b"") == 0
    quotas.charge(SEND, b"T", b"g", b"", 1, 11_000)
    assert 10_000 - CLOCK_MS <= quotas.wait_ms(SEND, b"T", b"g", b"") <= 10_000


def test_the_strictest_of_all_that_hold_is_what_counts(segment: SharedSegment) -> None:
    client = bytes([10, 0, 0, 1])
    rules = [(SEND, TOPIC, b"T", 1000, 0), (SEND, GROUP, b"g", 10, 0), (SEND, CLIENT, client, 0, 100)]
    quotas = Quotas(segment, rules)
    quotas.charge(SEND, b"T", b"g", client, 20, 500)
    assert 4000 - CLOCK_MS <= quotas.wait_ms(SEND, b"T", b"g", client) <= 4000
    assert 1000 - CLOCK_MS <= quotas.wait_ms(SEND, b"T", b"g", b"\1\1\1\1") <= 1000
    assert quotas.wait_ms(SEND, b"T", b"h", b"\1\1\1\1") == 0


def test_each_without_an_entry_has_the_others_quota_to_itself(segment: SharedSegment) -> None:
    quotas = Quotas(segment, [(SEND, TOPIC, b"*", 10, 0), (SEND, TOPIC, b"free", 0, 0)])
    quotas.charge(SEND, b"a", b"", b"", 30, 0)
    quotas.charge(SEND, b"free", b"", b"", 30_000, 0)
    assert quotas.wait_ms(SEND, b"a", b"", b"") > 1000
    assert quotas.wait_ms(SEND, b"b", b"", b"") == 0
    assert quotas.wait_ms(SEND, b"free", b"", b"") == 0


def test_what_was_used_holds_over_all_workers_and_over_other_rules(segment: SharedSegment) -> None:
    first, second = (Quotas(segment, [(SEND, TOPIC, b"T", 10, 0)]) for _ in range(2))
    first.charge(SEND, b"T", b"", b"", 15, 0)
    second.charge(SEND, b"T", b"", b"", 15, 0)
    waits = [quotas.wait_ms(SEND, b"T", b"", b"") for quotas in (first, second)]
    assert all(2000 - CLOCK_MS <= wait <= 2000 for wait in waits)
    second.use([(SEND, TOPIC, b"T", 20, 0)])
    assert second.wait_ms(SEND, b"T", b"", b"") > 1000
    second.use([])
    assert second.wait_ms(SEND, b"T", b"", b"") == 0


def test_rows_of_those_who_are_idle_are_used_again(segment: SharedSegment) -> None:
    quotas = Quotas(segment, [(SEND, TOPIC, b"*", 10**9, 0)])
    for number in range(QUOTA_ROWS + 5000):
        quotas.charge(SEND, b"t%d" % number, b"", b"", 1, 0)
    keys = RawSegment(segment.fd).rows("quotas")["key"]
    assert 0.5 * QUOTA_ROWS < (keys != 0).sum() <= QUOTA_ROWS


def test_where_all_rows_are_in_use_some_share(segment: SharedSegment) -> None:
    rows = RawSegment(segment.fd).rows("quotas")
    rows["key"], rows["messages_until"] = 2, 1 << 62
    quotas = Quotas(segment, [(SEND, TOPIC, b"*", 10, 0)])
    assert quotas.wait_ms(SEND, b"new", b"", b"") > 0
    rows["messages_until"] = 0
    assert quotas.wait_ms(SEND, b"new", b"", b"") == 0
    assert QUOTA_PROBES < QUOTA_ROWS


def test_over_a_while_no_more_passes_than_the_rate(segment: SharedSegment, chance: random.Random) -> None:
    rate, for_s = 2000, 0.5
    quotas = Quotas(segment, [(SEND, TOPIC, b"T", rate, 0)])
    quotas.charge(SEND, b"T", b"", b"", rate, 0)  # the burst is gone
    began, passed = time.monotonic(), 0
    while time.monotonic() - began < for_s:
        if quotas.wait_ms(SEND, b"T", b"", b"") == 0:
            count = chance.randrange(1, 10)
            quotas.charge(SEND, b"T", b"", b"", count, 0)
            passed += count
    elapsed = time.monotonic() - began
    assert 0.8 * rate * for_s <= passed <= rate * (elapsed + CLOCK_MS / 1000) + 10
