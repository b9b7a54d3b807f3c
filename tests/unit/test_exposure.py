"""A server that anybody reaches, and nobody guards, says so in one line."""

from __future__ import annotations

import pytest

from mqcore.config import Program, Settings, load
from mqcore.transport.exposure import is_loopback, notice, warn_if_exposed

ADDRESS = "0.0.0.0:10911"


def settings(program: Program, **overrides: str) -> Settings:
    return load(program, overrides=overrides, environment={})


@pytest.mark.parametrize("program", list(Program))
def test_what_others_reach_and_nothing_guards_is_told_once(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    warn_if_exposed(settings(program), program, ADDRESS)
    (record,) = caplog.records
    text = record.getMessage()
    assert record.levelname == "WARNING"
    assert "\n" not in text
    assert text.startswith(f"the {program} listens on {ADDRESS} without ")
    assert "tls.server.mode=enforcing" in text
    assert ("aclEnable" in text) == (program is Program.BROKER)


@pytest.mark.parametrize("program", list(Program))
@pytest.mark.parametrize("guard", [{"bindAddress": "127.0.0.1"}, {"bindAddress": "::1"}, {"bindAddress": "localhost"},
                                   {"tlsMode": "enforcing"}])  # fmt: skip
def test_what_is_guarded_or_out_of_reach_is_silent(program: Program, guard: dict[str, str]) -> None:
    assert notice(settings(program, **guard), program, ADDRESS) is None


def test_access_control_guards_a_broker() -> None:
    assert notice(settings(Program.BROKER, aclEnable="true", rocketmqHome="/h"), Program.BROKER, ADDRESS) is None


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_loopback_is_told_by_the_address(host: str, is_own: bool) -> None:
    assert is_loopback(host) == is_own
