"""The name in a certificate, and requests that come without a key by a connection with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.broker.security.acl_files import AclFiles
from mqcore.broker.security.certificates import common_name
from mqcore.broker.security.guard import AclGuard
from mqcore.broker.security.validator import AclError, Refusal
from mqcore.codes import RequestCode
from mqcore.config import load
from mqcore.errors import ConfigError
from mqcore.protocol.command import RemotingCommand
from tests.unit.test_broker_acl_guard import FakeChannel, FakeClock, account, put, signed


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=alice", "alice"),
        (r"CN=alice,O=Books\, Inc.", "alice"),
        (r"O=Books\, CN=bob,CN=alice", "alice"),
        ("O=Books,OU=Sales+CN=alice", "alice"),
        (r"CN=a\,l\+i\\ce", r"a,l+i\ce"),
        (r"CN=\C3\9Cmlaut", "Ümlaut"),
        (r"CN=\C3", ""),
        ("CN=alice,CN=bob", ""),
        ("CN=alice+CN=bob", ""),
        ("CN=#0401AB", ""),
        ("O=Books", ""),
        ("OCN=alice", ""),
        ("CN=", ""),
        ("CN=alice\\", "alice"),
        ("", ""),
    ],
)
def test_the_common_name_is_what_stands_in_the_subject_once(subject: str, name: str) -> None:
    assert common_name(subject) == name


def guard_of(tmp_path: Path, *, trusts_certificates: bool = True) -> AclGuard:
    put(
        tmp_path / "conf" / "plain_acl.yml",
        account("publisher", defaultTopicPerm="PUB"),
        account("operator", admin=True),
    )
    guard = AclGuard(AclFiles(tmp_path, "conf/plain_acl.yml"), FakeClock(), trusts_certificates=trusts_certificates)
    guard.load()
    return guard


def unsigned(code: int = RequestCode.SEND_MESSAGE_V2) -> RemotingCommand:
    return RemotingCommand(code=code, opaque=1, ext_fields={"b": "TopicA"}, body=b"body")


async def refused(guard: AclGuard, channel: FakeChannel, request: RemotingCommand) -> str:
    with pytest.raises(AclError) as caught:
        await guard.admit(channel, request)
    return str(caught.value)


async def test_a_certified_client_has_its_account_s_permissions_without_a_signature(tmp_path: Path) -> None:
    guard, channel = guard_of(tmp_path), FakeChannel(certified_name="CN=publisher,O=Books")
    await guard.admit(channel, unsigned())
    assert "Need admin permission" in await refused(guard, channel, unsigned(RequestCode.UPDATE_AND_CREATE_TOPIC))
    await guard.admit(FakeChannel(certified_name="CN=operator"), unsigned(RequestCode.UPDATE_AND_CREATE_TOPIC))


async def test_a_certificate_counts_for_nothing_where_it_is_not_trusted(tmp_path: Path) -> None:
    guard = guard_of(tmp_path, trusts_certificates=False)
    assert (await refused(guard, FakeChannel(certified_name="CN=publisher"), unsigned())).endswith(
        "No accessKey is configured"
    )


async def test_a_certificate_without_an_account_is_named(tmp_path: Path) -> None:
    text = await refused(guard_of(tmp_path), FakeChannel(certified_name="CN=stranger"), unsigned())
    assert "no acl config for the certificate of stranger" in text


async def test_a_key_is_asked_for_its_signature_whatever_the_certificate_says(tmp_path: Path) -> None:
    guard, channel = guard_of(tmp_path), FakeChannel(certified_name="CN=publisher")
    with pytest.raises(AclError) as caught:
        await guard.admit(channel, signed("operator", "wrong secret"))
    assert caught.value.why is Refusal.SIGNATURE
    await guard.admit(channel, signed("operator"))


CERTIFIED = {
    "aclAccountByCertificate": "true",
    "aclEnable": "true",
    "rocketmqHome": "/home",
    "tls.test.mode.enable": "false",
    "tls.server.certPath": "/c.pem",
    "tls.server.keyPath": "/k.pem",
    "tls.server.authClient": "true",
    "tls.server.need.client.auth": "require",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aclEnable", "false"),
        ("tls.test.mode.enable", "true"),
        ("tls.server.need.client.auth", "none"),
    ],
)
def test_names_that_nobody_has_checked_stop_the_start(name: str, value: str) -> None:
    load(overrides=CERTIFIED)
    with pytest.raises(ConfigError, match=f"{name}: .*since aclAccountByCertificate is true"):
        load(overrides={**CERTIFIED, name: value})
