"""mqadmin 5.3.3 prints for our broker what it prints for Apache's brokers: 4.9.8's, or else 5.3.3's.

Of what came with release 5 a 4.9 broker knows nothing, and ours some: there it does as Apache's broker 5.3.3 does. What
is neither's stands in mqadmin_differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.interop.mqadmin_differences import DIFFERENCES, OF_RELEASE_5, LineDifference, reasons
from tests.interop.mqadmin_scene import PROPERTIES, Scene, scenes
from tests.interop.mqadmin_script_5 import ELSEWHERE_5, FILES, REFUSED_5, RELEASE_5
from tests.rigs import ApacheServer, Corpus, JavaDriver, Mqadmin, start_broker_under_test

pytestmark = [pytest.mark.compat, pytest.mark.slow]

REFEREES = ("4.9.8", "5.3.3")
ROWS = (*DIFFERENCES, *OF_RELEASE_5)


@pytest.fixture(scope="module")
def played(
    java_4_9_8: JavaDriver, corpus: Corpus, mqadmin_5_3_3: Mqadmin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Scene]]:
    """Our broker, and Apache's of both releases, after the same workload and the same commands."""
    with ExitStack() as running:
        brokers = [running.enter_context(start_broker_under_test(tmp_path_factory.mktemp("mq") / "store", PROPERTIES))]
        for release in REFEREES:
            store = tmp_path_factory.mktemp(f"apache-{release}") / "store"
            brokers.append(running.enter_context(ApacheServer(release, store, PROPERTIES, alters_name_server=True)))
        yield running.enter_context(scenes(brokers, java_4_9_8, corpus, mqadmin_5_3_3, RELEASE_5, FILES))


def unexplained(played: list[Scene], name: str) -> tuple[list[str], set[LineDifference]]:
    """What differs from the broker of Apache's that prints more of the same."""
    ours, *others = (scene.printed[name] for scene in played)
    found = [reasons(name, ours, apaches, ROWS) for apaches in others]
    return min(found, key=lambda result: len(result[0]))


@pytest.mark.parametrize("name", [step.name for step in RELEASE_5])
def test_mqadmin_5_3_3_prints_what_it_prints_for_one_of_apaches_brokers(played: list[Scene], name: str) -> None:
    assert unexplained(played, name)[0] == []


def test_each_difference_that_is_listed_is_there(played: list[Scene]) -> None:
    met = {row for step in RELEASE_5 for row in unexplained(played, step.name)[1]}
    assert [row for row in OF_RELEASE_5 if row not in met] == []


def test_each_command_of_mqadmin_5_3_3_is_compared_or_has_a_reason(mqadmin_5_3_3: Mqadmin) -> None:
    with mqadmin_5_3_3.session("127.0.0.1:1") as session:
        commands = session.commands()
    assert len(commands) > 80
    assert sorted({step.command for step in RELEASE_5} | set(ELSEWHERE_5)) == sorted(commands)


def test_what_ours_does_not_serve_it_refuses_by_name(played: list[Scene]) -> None:
    refused = {
        step.command
        for step in RELEASE_5
        if any("request type" in line and "not supported" in line for line in played[0].printed[step.name])
    }
    assert refused == REFUSED_5
