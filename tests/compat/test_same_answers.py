"""Every request that a broker or a name server of 4.9.8 knows, right and wrong, is answered by ours as by Apache's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqcore.broker.processors.table import TABLE
from mqcore.codes import RequestCode
from tests.compat.differential.compare import Pairs, check, pairs_of
from tests.compat.differential.differences import (
    DIFFERENCES,
    OF_RELEASE_5,
    OF_WRONG_ONES,
    both_refuse,
    is_refused_by_name,
)
from tests.compat.differential.scripts import AGAIN, RELEASE_5, SCRIPT
from tests.compat.differential.variants import variants
from tests.rigs import ApacheServer, RunningBroker, start_broker_under_test

pytestmark = pytest.mark.compat

VARIANTS = tuple(variants(SCRIPT))
FIRST_OF_RELEASE_5 = 330
"""Codes from here on are of release 5, as are some before."""
EARLY_OF_RELEASE_5 = {
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
}
ACCESS_CONTROL = range(50, 55)
"""Asked about with access control on, in tests of its own."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker_under_test(tmp_path_factory.mktemp("mq") / "store") as broker:
        yield broker


@pytest.fixture(scope="module")
def answers(ours: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    properties = {"enablePropertyFilter": "true"}
    with ApacheServer(
        "4.9.8", tmp_path_factory.mktemp("apache") / "store", properties, alters_name_server=True
    ) as apache:
        return pairs_of(ours, apache, (*SCRIPT, *AGAIN, *VARIANTS))


def test_what_is_asked_rightly_is_answered_as_by_apache_or_differs_with_a_reason(answers: Pairs) -> None:
    check(answers[: len(SCRIPT)], DIFFERENCES)


def test_what_is_asked_wrongly_is_refused_by_name_where_apache_does_something_else(answers: Pairs) -> None:
    check(
        [
            (request, here, there)
            for request, here, there in answers[-len(VARIANTS) :]
            if here.code != there.code and not both_refuse(here, there) and not is_refused_by_name(here, there)
        ],
        OF_WRONG_ONES,
    )


def test_most_of_it_is_the_same(answers: Pairs) -> None:
    """The comparison would mean nothing if both refused everything."""
    succeeded = [request.name for request, here, there in answers[: len(SCRIPT)] if here.code == there.code == 0]
    assert len(succeeded) > len(SCRIPT) / 2
    same = [request.name for request, here, there in answers[-len(VARIANTS) :] if here.code == there.code]
    assert len(same) > len(VARIANTS) * 0.7


def test_each_code_that_a_broker_of_4_9_serves_is_asked() -> None:
    asked = {request.code for request in SCRIPT} | EARLY_OF_RELEASE_5
    assert sorted(code for code in TABLE if code < FIRST_OF_RELEASE_5 and code not in {*asked, *ACCESS_CONTROL}) == []


@pytest.mark.slow
def test_what_tools_of_release_5_ask_is_answered_as_by_its_broker(
    ours: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ApacheServer("5.3.3", tmp_path_factory.mktemp("apache5") / "store", alters_name_server=True) as apache:
        check(pairs_of(ours, apache, RELEASE_5), OF_RELEASE_5)
