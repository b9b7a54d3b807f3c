"""What the tests of the documentation stand under."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs.patience import patient_clients


@pytest.fixture(scope="module", autouse=True)
def clients_are_patient() -> Iterator[None]:
    yield from patient_clients()
