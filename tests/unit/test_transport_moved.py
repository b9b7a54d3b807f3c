"""The modules of mqcore.transport are found by the names that they had in mqcore.remoting."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module

import pytest

from mqcore.remoting import MOVED
from mqcore.transport.client_tls import ClientTls


@pytest.mark.parametrize(("old", "now"), MOVED.items())
def test_an_old_name_is_the_module_itself_and_says_what_it_is_called_now(
    monkeypatch: pytest.MonkeyPatch, old: str, now: str
) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.deprecated_call(match=f"^{old} is {now} now$"):
        found = import_module(old)
    assert found is import_module(now)
    assert found.__name__ == now, "the module keeps its own name"


def test_a_pickle_made_before_the_move_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    old = pickle.dumps(ClientTls("ca.pem"), protocol=2).replace(b"mqcore.transport", b"mqcore.remoting")
    monkeypatch.delitem(sys.modules, "mqcore.remoting.client_tls", raising=False)
    with pytest.deprecated_call():
        assert pickle.loads(old) == ClientTls("ca.pem")


def test_the_old_name_is_the_first_that_a_program_imports() -> None:
    lines = "from mqcore.remoting.client import RemotingClient; print(RemotingClient.__module__)"
    done = subprocess.run([sys.executable, "-W", "always", "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "mqcore.transport.client"
    assert "mqcore.remoting.client is mqcore.transport.client now" in done.stderr
