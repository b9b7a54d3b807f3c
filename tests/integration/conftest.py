"""What all integration tests stand under."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs import RunningBroker
from tests.rigs.patience import patient_clients


@pytest.fixture(scope="module", autouse=True)
def clients_are_patient() -> Iterator[None]:
    yield from patient_clients()


@pytest.fixture(scope="session")
def broker(shared_broker: RunningBroker) -> RunningBroker:
    """The shared broker; a module that needs another one, or stops it, has a fixture of its own in its place."""
    return shared_broker
