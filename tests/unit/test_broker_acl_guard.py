"""The guard: files that change under it, guessers that are slowed down, refusals that are counted and logged."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqcore.broker.security import guessing
from mqcore.broker.security.acl_files import AclFiles
from mqcore.broker.security.guard import AclGuard
from mqcore.broker.security.guessing import Guessers, delay_s
from mqcore.broker.security.refusals import Refusals
from mqcore.broker.security.signature import SIGNATURE, UNIQUE_KEY_QUERY, sign, signed_content
from mqcore.broker.security.validator import AclError, Refusal, refusal
from mqcore.codes import RequestCode, SerializeType
from mqcore.errors import ConfigError
from mqcore.protocol.command import RemotingCommand

SECRET = "very secret"


class FakeChannel:
    is_vip = False
    is_open = True
    remote_port = 1

    def __init__(self, remote_ip: str = "10.0.0.1", channel_id: int = 1, certified_name: str = "") -> None:
        self.remote_ip = remote_ip
        self.certified_name = certified_name
        self.channel_id = channel_id

    def close(self) -> None:
        self.is_open = False

    def send(self, command: RemotingCommand) -> bool:
        raise AssertionError

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise AssertionError


class FakeClock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def account(key: str, **more: Any) -> dict[str, Any]:
    return {"accessKey": key, "secretKey": SECRET, **more}


def put(path: Path, *accounts: dict[str, Any], white: tuple[str, ...] = ()) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"globalWhiteRemoteAddresses": [*white], "accounts": [*accounts]}))


def signed(key: str, secret: str = SECRET, code: int = RequestCode.SEND_MESSAGE_V2, **fields: str) -> RemotingCommand:
    fields = {"b": "TopicA", **fields, "AccessKey": key}
    fields[SIGNATURE] = sign(secret.encode(), signed_content(fields, b"body"))
    return RemotingCommand(code=code, opaque=1, ext_fields=fields, body=b"body")


@pytest.fixture
def guard(tmp_path: Path) -> AclGuard:
    put(tmp_path / "conf" / "plain_acl.yml", account("publisher", defaultTopicPerm="PUB"))
    guard = AclGuard(AclFiles(tmp_path, "conf/plain_acl.yml"), FakeClock())
    guard.load()
    return guard


async def refused(guard: AclGuard, request: RemotingCommand, channel: FakeChannel | None = None) -> Refusal | None:
    try:
        await guard.admit(channel or FakeChannel(), request)
    except AclError as error:
        return error.why
    return None


def test_a_home_without_a_file_gets_an_empty_one_that_lets_nobody_in(tmp_path: Path) -> None:
    guard = AclGuard(AclFiles(tmp_path / "home", "conf/plain_acl.yml"), FakeClock())
    guard.load()
    made = tmp_path / "home" / "conf" / "plain_acl.yml"
    assert made.read_bytes() == b""
    assert made.stat().st_mode & 0o777 == 0o600
    assert not guard.tables.accounts
    assert not guard.tables.is_white("127.0.0.1")


def test_every_file_in_the_folder_and_below_is_read_and_the_default_one_last(tmp_path: Path) -> None:
    put(tmp_path / "conf" / "plain_acl.yml", account("default-1"), account("common-1", admin=False))
    put(tmp_path / "conf" / "acl" / "b.yaml", account("beside-1"), account("common-1", admin=True))
    put(tmp_path / "conf" / "acl" / "deep" / "er" / "c.yml", account("deeper-1"))
    put(tmp_path / "conf" / "acl" / "d.txt", account("ignored-1"))
    guard = AclGuard(AclFiles(tmp_path, "conf/plain_acl.yml"), FakeClock())
    guard.load()
    assert set(guard.tables.accounts) == {"default-1", "common-1", "beside-1", "deeper-1"}
    assert guard.tables.accounts["common-1"].is_admin, "of a key that stands twice the first one counts"
    assert guard.tables.files["common-1"].endswith("b.yaml")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "accounts:\n- {accessKey: publisher, secretKey: short}\n",
            "account 1 (publisher): secretKey: got 5 characters",
        ),
        ("accounts:\n- {accessKey: publisher, secretKey: 1234567.5}\n", "secretKey: got a float, wanted a text"),
        ("accounts:\n- {accessKey: publisher, secretKey: 2020-01-01}\n", "secretKey: got a date, wanted a text"),
        ("accounts:\n- {accessKey: publisher, secretKey: 12345678, admin: maybe}\n", "admin: got 'maybe', wanted true"),
        ("accounts:\n- {accessKey: publisher, secretKey: 12345678, topicPerms: T=PUB}\n", "topicPerms: got a str"),
        (
            "accounts:\n- {accessKey: publisher, secretKey: 12345678, groupPerms: [G]}\n",
            "groupPerms: got 'G', wanted name",
        ),
        ("accounts:\n  - text\n", "account 1: got a str, wanted accessKey, secretKey"),
        (
            "globalWhiteRemoteAddresses: [10.0.0.300]\n",
            "globalWhiteRemoteAddresses 1: got '10.0.0.300', wanted an address",
        ),
        ("accounts: [\n", "got no YAML in line 2"),
        ("accounts: !!python/object/apply:os.system [true]\n", "got no YAML in line 1"),
        ("- 1\n", "got a list, wanted accounts"),
    ],
)
def test_a_bad_file_stops_the_start_and_names_what_is_wrong(tmp_path: Path, text: str, wanted: str) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        AclGuard(AclFiles(tmp_path, "conf/plain_acl.yml"), FakeClock()).load()
    assert str(caught.value).startswith(f"{file}: ")
    assert wanted in str(caught.value)
    assert "12345678" not in str(caught.value)


async def test_changed_new_and_removed_files_are_followed(guard: AclGuard, tmp_path: Path) -> None:
    assert await refused(guard, signed("publisher")) is None
    put(tmp_path / "conf" / "plain_acl.yml", account("publisher", defaultTopicPerm="DENY"))
    await guard.watch()
    assert await refused(guard, signed("publisher")) is Refusal.PERMISSION
    more = tmp_path / "conf" / "acl" / "more.yml"
    put(more, account("newcomer", defaultTopicPerm="PUB"), white=("10.0.0.9",))
    await guard.watch()
    assert await refused(guard, signed("newcomer")) is None
    assert await refused(guard, RemotingCommand(code=1, opaque=1), FakeChannel("10.0.0.9")) is None
    more.unlink()
    await guard.watch()
    assert await refused(guard, signed("newcomer")) is Refusal.UNKNOWN_KEY
    assert await refused(guard, RemotingCommand(code=1, opaque=1), FakeChannel("10.0.0.9")) is Refusal.NO_KEY


async def test_a_bad_file_leaves_everything_as_it_was_and_is_told_once(
    guard: AclGuard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.write_text(f"accounts:\n- {{accessKey: short, secretKey: {SECRET}}}\n")
    for _ in range(3):
        await guard.watch()
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert f"{file}: account 1: accessKey: got 5 characters" in errors[0]
    assert SECRET not in errors[0]
    assert await refused(guard, signed("publisher")) is None
    put(file, account("somebody"))
    await guard.watch()
    assert await refused(guard, signed("publisher")) is Refusal.UNKNOWN_KEY


async def test_a_file_that_keeps_its_size_and_time_but_is_another_is_followed(guard: AclGuard, tmp_path: Path) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    status = file.stat()
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes().replace(b"publisher", b"somebodyX"))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)
    await guard.watch()
    assert "somebodyX" in guard.tables.accounts


@pytest.mark.parametrize("signs_the_mark", [True, False])
async def test_a_look_up_by_unique_key_is_good_with_its_mark_signed_or_not(
    guard: AclGuard, signs_the_mark: bool
) -> None:
    fields = {"key": "k", UNIQUE_KEY_QUERY: "true", "AccessKey": "publisher"}
    unsigned = () if signs_the_mark else (UNIQUE_KEY_QUERY,)
    fields[SIGNATURE] = sign(SECRET.encode(), signed_content(fields, b"", *unsigned))
    request = RemotingCommand(code=RequestCode.QUERY_MESSAGE, opaque=1, ext_fields=fields)
    assert await refused(guard, request) is None


def test_a_refusal_reads_as_rocketmqs_exception_and_is_in_json() -> None:
    request = RemotingCommand(code=10, opaque=7, serialize_type=SerializeType.ROCKETMQ)
    answer = refusal(request, AclError(Refusal.NO_KEY, "No accessKey is configured"))
    assert (answer.code, answer.opaque, answer.serialize_type) == (1, 7, SerializeType.JSON)
    assert answer.remark == "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"


@pytest.mark.parametrize("code", [17, 18, 25, 200, 207, 215, 225, 29001])
async def test_what_makes_and_deletes_needs_an_admin(guard: AclGuard, code: int) -> None:
    assert await refused(guard, signed("publisher", code=code)) is Refusal.ADMIN


def test_an_account_shows_no_secret(guard: AclGuard) -> None:
    assert SECRET not in repr(guard.tables)
    assert "publisher" in repr(guard.tables)


async def test_refusals_are_counted_and_logged_now_and_then(
    guard: AclGuard, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guessing, "FREE_FAILURES", 1000)
    for _ in range(50):
        assert await refused(guard, signed("publisher", "wrong secret")) is Refusal.SIGNATURE
    assert await refused(guard, signed("publisher", code=RequestCode.UPDATE_BROKER_CONFIG)) is Refusal.ADMIN
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("refused ")]
    assert len(lines) == 2
    assert "'publisher' address=10.0.0.1" in lines[0]
    assert not any(secret in line for line in lines for secret in (SECRET, "wrong secret"))
    figures = guard.figures()
    assert figures["aclRefused"] == "51"
    assert figures["aclRefusedByReason"] == "admin: 1, signature: 50"
    assert not any(SECRET in value for value in figures.values())


def test_the_log_of_refusals_remembers_a_bounded_number() -> None:
    clock = FakeClock()
    refusals = Refusals(clock)
    for number in range(5000):
        refusals.note(AclError(Refusal.UNKNOWN_KEY, "No acl config", f"key-{number}"), "10.0.0.1", 10)
    assert len(refusals._logged) <= 1024


def test_who_guesses_waits_longer_each_time_and_not_for_ever() -> None:
    delays = [delay_s(failures) for failures in range(1, 30)]
    assert delays[:3] == [0, 0, 0]
    assert delays == sorted(delays)
    assert delays[3] == 0.1
    assert delays[-1] == guessing.DELAY_S_MAX


def test_guessers_are_a_bounded_number_and_are_forgotten() -> None:
    clock = FakeClock()
    guessers = Guessers(clock)
    for number in range(10_000):
        guessers.note(f"10.0.{number // 256}.{number % 256}")
    assert len(guessers) == guessing.ADDRESSES_MAX
    for _ in range(5):
        assert guessers.note("1.1.1.1") < guessing.DELAY_S_MAX
    clock.now += guessing.FORGOTTEN_AFTER_MS
    assert guessers.note("1.1.1.1") == 0


async def test_a_connection_that_is_gone_is_not_remembered(guard: AclGuard) -> None:
    channel = FakeChannel(channel_id=9)
    channel.close()
    guard.forget(channel)
    assert await refused(guard, signed("publisher"), channel) is None
    assert 9 not in guard._granted


async def test_side_by_side_guesses_close_their_connection_and_leave_proven_ones_alone(
    guard: AclGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guessing, "FREE_FAILURES", 0)
    monkeypatch.setattr(guessing, "FIRST_DELAY_S", 10.0)
    proven, guesser = FakeChannel(channel_id=1), FakeChannel(channel_id=2)
    assert await refused(guard, signed("publisher"), proven) is None
    guesses = [
        asyncio.create_task(refused(guard, signed("publisher", f"guess number {number}"), guesser))
        for number in range(50)
    ]
    await asyncio.sleep(0)
    assert not guesser.is_open
    assert guard.refusals.by_reason[Refusal.SIGNATURE] == guessing.PENDING_OF_ONE_MAX
    assert guard.refusals.turned_away == 50 - guessing.PENDING_OF_ONE_MAX
    assert await refused(guard, signed("publisher"), proven) is None
    assert await refused(guard, signed("publisher"), FakeChannel("10.0.0.2", 3)) is None, "another address"
    assert await refused(guard, signed("operator", "a guess"), proven) is Refusal.SIGNATURE
    assert not proven.is_open, "one who has a key of his own may not guess another's"
    for guess in guesses:
        guess.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)
    assert await refused(guard, signed("publisher"), FakeChannel(channel_id=4)) is None, "nobody waits any more"
