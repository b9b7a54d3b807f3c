"""With access control on, requests of admins, others, and nobody are answered by ours as by Apache's broker 4.9.8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest

from mqcore.codes import RequestCode
from tests.compat.differential.compare import Pairs, check, pairs_of
from tests.compat.differential.differences import (
    DIFFERENCES,
    OF_ACCESS,
    OF_WRONG_ACCESS,
    OF_WRONG_ONES,
    Difference,
    both_refuse,
    is_refused_by_name,
)
from tests.compat.differential.identities import CHANGES, IDENTITIES, LIMITED, OPERATOR, Identity, write_accounts
from tests.compat.differential.scripts import AGAIN, SCRIPT, Peer, Request
from tests.compat.differential.variants import variants
from tests.rigs import ApacheServer, MqcoreBroker, RunningBroker

pytestmark = pytest.mark.compat

ASKED = tuple(request for request in (*SCRIPT, *CHANGES) if request.to is not Peer.NAME_SERVER)
# No member is online when wrong ones are asked, so none is asked to consume.
WRONG = tuple(request for request in variants(ASKED) if request.code != RequestCode.CONSUME_MESSAGE_DIRECTLY)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """Our broker and Apache's, with the same accounts."""
    directory = tmp_path_factory.mktemp("guarded")
    properties = {"aclEnable": "true", "enablePropertyFilter": "true"}
    write_accounts(directory / "home")
    write_accounts(directory / "theirs.apache")
    with ExitStack() as running:
        ours = MqcoreBroker(directory / "ours", {**properties, "rocketmqHome": str(directory / "home")})
        running.enter_context(ours)
        yield (
            ours,
            running.enter_context(ApacheServer("4.9.8", directory / "theirs", properties, alters_name_server=True)),
        )


def asked_by(
    guarded: tuple[RunningBroker, RunningBroker], identities: Sequence[Identity], requests: Sequence[Request]
) -> Pairs:
    """*requests* with both answers, of each of *identities* in turn, who all find what an admin has made."""
    pairs: Pairs = []
    for identity in identities:
        pairs_of(*guarded, AGAIN, OPERATOR, OPERATOR)
        named = [replace(request, name=f"{identity.name}: {request.name}") for request in requests]
        pairs += pairs_of(*guarded, named, identity, OPERATOR)
    return pairs


def about(rows: Iterable[Difference], requests: Iterable[Request]) -> list[Difference]:
    """Those of *rows* that one of *requests* may meet."""
    return [row for row in rows if any(map(row.is_about, requests))]


@pytest.fixture(scope="module")
def answers(guarded: tuple[RunningBroker, RunningBroker]) -> Pairs:
    return asked_by(guarded, IDENTITIES, ASKED)


def test_who_may_and_who_may_not_is_answered_as_by_apache_or_differs_with_a_reason(answers: Pairs) -> None:
    check(answers, (*about(DIFFERENCES, ASKED), *OF_ACCESS))


def test_some_are_refused_and_some_are_served(answers: Pairs) -> None:
    """The comparison would mean nothing if all were refused, or none."""
    served = {
        identity.name: [here.code == 0 for request, here, _ in answers if request.name.startswith(f"{identity.name}: ")]
        for identity in IDENTITIES
    }
    assert {name for name, were in served.items() if not any(were)} == {"nobody", "an unknown key", "a wrong signature"}
    assert 0 < sum(served[LIMITED.name]) < sum(served[OPERATOR.name]) < len(ASKED)


@pytest.mark.slow
def test_what_is_asked_wrongly_is_refused_alike(guarded: tuple[RunningBroker, RunningBroker]) -> None:
    pairs = asked_by(guarded, IDENTITIES, WRONG)
    check(
        [
            (request, here, there)
            for request, here, there in pairs
            if here.code != there.code and not both_refuse(here, there) and not is_refused_by_name(here, there)
        ],
        (*about(OF_WRONG_ONES, WRONG), *OF_WRONG_ACCESS),
    )
