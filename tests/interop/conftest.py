"""Other people's clients and tools as fixtures, and the broker that they talk to."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rigs import (
    AliOns,
    Corpus,
    GoClient,
    JavaDriver,
    Mqadmin,
    RunningBroker,
    StartBroker,
    gather,
    make_topic,
    maven,
    start_broker_under_test,
)
from tests.rigs import ali_ons as ali_ons_rig
from tests.rigs import go_client as go_client_rig
from tests.rigs.patience import patient_clients

RELEASES = ("4.9.8", "5.3.3")


def _need(reason: str) -> None:
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module", autouse=True)
def clients_are_patient() -> Iterator[None]:
    yield from patient_clients()


@pytest.fixture(scope="session")
def java_4_9_8(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    _need(maven.missing_tools())
    with JavaDriver("4.9.8", tmp_path_factory.mktemp("java-4.9.8")).warm() as driver:
        yield driver


@pytest.fixture(scope="session")
def java_5_3_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    _need(maven.missing_tools())
    with JavaDriver("5.3.3", tmp_path_factory.mktemp("java-5.3.3")).warm() as driver:
        yield driver


@pytest.fixture(params=["either", *(pytest.param(release, marks=pytest.mark.slow) for release in RELEASES)])
def java(request: pytest.FixtureRequest, chance: random.Random) -> JavaDriver:
    """The Java client: in long runs each release in turn, otherwise the one that chance takes."""
    release = chance.choice(RELEASES) if request.param == "either" else request.param
    driver: JavaDriver = request.getfixturevalue(f"java_{release.replace('.', '_')}")
    return driver


@pytest.fixture(scope="session")
def mqadmin_4_9_8(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    _need(maven.missing_tools())
    with Mqadmin("4.9.8", tmp_path_factory.mktemp("mqadmin")).warm() as mqadmin:
        yield mqadmin


@pytest.fixture(scope="session")
def mqadmin_5_3_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    _need(maven.missing_tools())
    with Mqadmin("5.3.3", tmp_path_factory.mktemp("mqadmin")).warm() as mqadmin:
        yield mqadmin


@pytest.fixture(scope="session")
def ali_ons(tmp_path_factory: pytest.TempPathFactory) -> AliOns:
    _need(ali_ons_rig.missing_tools())
    return AliOns(tmp_path_factory.mktemp("ali-ons"))


@pytest.fixture(scope="session")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> GoClient:
    _need(go_client_rig.missing_tools())
    return GoClient(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="session")
def mq_broker(shared_broker: RunningBroker) -> RunningBroker:
    """The broker under test. A module that is about the state of all of it has a fixture of its own in its place."""
    return shared_broker


@pytest.fixture
def topic(mq_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A new topic named after the test, with the QUEUES of its module."""
    return make_topic(mq_broker, request.node.name, request.module.QUEUES)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers under test with properties of their own, which end with the test."""
    with ExitStack() as started:

        def start(properties: Mapping[str, str]) -> RunningBroker:
            store_dir = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
            return started.enter_context(start_broker_under_test(store_dir, properties))

        yield start


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The everyday corpus."""
    return gather(tmp_path_factory.mktemp("corpus") / "everyday.txt")
