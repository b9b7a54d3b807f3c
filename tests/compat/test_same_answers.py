"""Every request that a broker or a name server of 4.9.8 knows, right and wrong, is answered by ours as by Apache's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from mqcore.broker.processors.table import TABLE
from mqcore.codes import RequestCode
from tests.compat.differential.differences import (
    DIFFERENCES,
    OF_WRONG_ONES,
    Difference,
    both_refuse,
    differing,
    is_refused_by_name,
)
from tests.compat.differential.line import Both
from tests.compat.differential.scripts import AGAIN, SCRIPT, TOPIC, Request
from tests.compat.differential.seen import Seen, seen
from tests.compat.differential.variants import variants
from tests.rigs import ApacheServer, RunningBroker, start_broker_under_test
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

VARIANTS = tuple(variants(SCRIPT))
RELEASE_5 = 350
"""Codes from here on are of release 5, as are two before."""
TIMERS = {RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS}
ACCESS_CONTROL = range(50, 55)
"""Asked about with access control on, in tests of its own."""

Pairs = list[tuple[Request, Seen, Seen]]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    with ApacheServer("4.9.8", tmp_path_factory.mktemp("apache") / "store", {"enablePropertyFilter": "true"}) as server:
        yield server


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker_under_test(tmp_path_factory.mktemp("mq") / "store") as broker:
        yield broker


def answers_of(broker: RunningBroker, requests: Sequence[Request]) -> list[Seen]:
    """What *broker* and its name server answer, one request after the other."""
    found = []
    with closing(Both(broker.broker_address, broker.name_server)) as both:
        for request in requests:
            if request.awaits:
                wait_until(lambda: both.has(request.awaits, TOPIC), describe=f"{request.awaits} messages")  # noqa: B023
            found.append(seen(both.ask(request)))
    return found


@pytest.fixture(scope="module")
def answers(ours: RunningBroker, apache: ApacheServer) -> Pairs:
    requests = (*SCRIPT, *AGAIN, *VARIANTS)
    with ThreadPoolExecutor() as pool:
        here, there = pool.map(lambda broker: answers_of(broker, requests), (ours, apache))
    return list(zip(requests, here, there, strict=True))


def told(request: Request, here: Seen, there: Seen) -> str:
    return f"{request.code} {request.name} ({request.to})\n  ours    {here}\n  Apache  {there}"


def test_what_is_asked_rightly_is_answered_as_by_apache_or_differs_with_a_reason(answers: Pairs) -> None:
    unexplained = []
    met: set[Difference] = set()
    for request, here, there in answers[: len(SCRIPT)]:
        parts = differing(here, there)
        reasons = [row for row in DIFFERENCES if parts and row.allows(request, parts)]
        met.update(reasons)
        if parts and not reasons:
            unexplained.append(f"{sorted(parts)} {told(request, here, there)}")
    assert not unexplained, f"{len(unexplained)} of {len(SCRIPT)}:\n" + "\n".join(unexplained)
    assert [row for row in DIFFERENCES if row not in met] == [], "what no longer differs"


def test_what_is_asked_wrongly_is_refused_by_name_where_apache_does_something_else(answers: Pairs) -> None:
    unexplained = []
    met: set[Difference] = set()
    for request, here, there in answers[-len(VARIANTS) :]:
        if here.code == there.code or both_refuse(here, there) or is_refused_by_name(here, there):
            continue
        reasons = [row for row in OF_WRONG_ONES if row.allows(request, differing(here, there))]
        met.update(reasons)
        if not reasons:
            unexplained.append(told(request, here, there))
    assert not unexplained, f"{len(unexplained)} of {len(VARIANTS)}:\n" + "\n".join(unexplained)
    assert [row for row in OF_WRONG_ONES if row not in met] == [], "what no longer differs"


def test_most_of_it_is_the_same(answers: Pairs) -> None:
    """The comparison would mean nothing if both refused everything."""
    succeeded = [request.name for request, here, there in answers[: len(SCRIPT)] if here.code == there.code == 0]
    assert len(succeeded) > len(SCRIPT) / 2
    same = [request.name for request, here, there in answers[-len(VARIANTS) :] if here.code == there.code]
    assert len(same) > len(VARIANTS) * 0.7


def test_each_code_that_a_broker_of_4_9_serves_is_asked() -> None:
    asked = {request.code for request in SCRIPT} | TIMERS
    assert sorted(code for code in TABLE if code < RELEASE_5 and code not in {*asked, *ACCESS_CONTROL}) == []
