"""Time-outs of mqcore's client that are longer than any time for which a busy machine may let a broker wait.

Three seconds, the default, say nothing about a broker that shares two processors with Java machines. Tests that are
about time-outs give their own, which win.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

PATIENCE_S = "30"
SETTINGS = ("MQCORE_CLIENT_CALL_TIMEOUT_S", "MQCORE_CLIENT_ADMIN_TIMEOUT_S", "MQCORE_PRODUCER_SEND_TIMEOUT_S")


def patient_clients() -> Iterator[None]:
    """The body of a fixture in whose life clients are patient, those in child processes included."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SETTINGS:
            patch.setenv(name, PATIENCE_S)
        yield
