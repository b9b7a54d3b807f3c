"""Changes of accounts and white addresses by request: what is written, what holds, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mqcore.broker.security.accounts import HIDDEN
from mqcore.broker.security.acl_files import AclFiles
from mqcore.broker.security.changes import AccountChange, ChangeError
from mqcore.broker.security.guard import AclGuard
from mqcore.broker.security.permissions import Perm
from mqcore.errors import ConfigError

SECRET = "very secret"
OTHER_TEXTS = ("whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
START = f"""\
globalWhiteRemoteAddresses:
- 10.0.0.1
accounts:
- accessKey: publisher
  secretKey: {SECRET}
  whiteRemoteAddress: 10.1.1.1
  topicPerms:
  - Old=PUB
- accessKey: 12345678
  secretKey: 87654321
  admin: true
dataVersion:
- counter: 4
  timestamp: 1600000000000
"""


@pytest.fixture
def guard(tmp_path: Path) -> AclGuard:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text(START)
    file.chmod(0o640)
    guard = AclGuard(AclFiles(tmp_path, "conf/plain_acl.yml"), lambda: 1_700_000_000_000)
    guard.load()
    return guard


def change(key: str = "publisher", secret: str | None = SECRET, **more: Any) -> AccountChange:
    fields = dict.fromkeys(
        ["white_remote_address", "default_topic_perm", "default_group_perm", "topic_perms", "group_perms"]
    )
    return AccountChange(key, secret, **{**fields, "admin": False, **more})


def content(guard: AclGuard) -> Any:
    return yaml.safe_load(guard.files.default.read_text())


async def test_what_is_given_changes_and_the_rest_stays(guard: AclGuard) -> None:
    await guard.update_account(change(secret="another secret", topic_perms=["New=SUB"], default_topic_perm="PUB"))
    assert content(guard) == {
        "globalWhiteRemoteAddresses": ["10.0.0.1"],
        "accounts": [
            {"accessKey": 12345678, "secretKey": 87654321, "admin": True},
            {
                "accessKey": "publisher",
                "secretKey": "another secret",
                "whiteRemoteAddress": "10.1.1.1",
                "topicPerms": ["New=SUB"],
                "admin": False,
                "defaultTopicPerm": "PUB",
            },
        ],
        "dataVersion": [{"counter": 5, "timestamp": 1_700_000_000_000}],
    }
    account = guard.tables.accounts["publisher"]
    assert account.may("Other", Perm.PUB)
    assert not account.may("New", Perm.PUB)
    assert guard.default_version.counter == 5


async def test_the_file_keeps_its_mode_and_a_copy_of_what_it_was(guard: AclGuard) -> None:
    await guard.update_account(change("newcomer", admin=True))
    file = guard.files.default
    assert file.stat().st_mode & 0o777 == 0o640
    backup = file.with_name(file.name + ".bak")
    assert backup.read_text() == START
    assert backup.stat().st_mode & 0o777 == 0o640
    assert guard.tables.accounts["newcomer"].is_admin


async def test_an_account_is_changed_in_the_file_where_it_stands(guard: AclGuard) -> None:
    other = guard.files.folder / "more.yml"
    other.parent.mkdir()
    other.write_text("accounts:\n- {accessKey: elsewhere, secretKey: 12345678}\n")
    await guard.watch()
    await guard.update_account(change("elsewhere", default_group_perm="SUB"))
    assert guard.files.default.read_text() == START
    assert yaml.safe_load(other.read_text())["accounts"][0]["defaultGroupPerm"] == "SUB"
    assert guard.versions[str(other)].counter == 1
    assert await guard.delete_account("elsewhere")
    assert "elsewhere" not in guard.tables.accounts
    assert yaml.safe_load(other.read_text())["accounts"] == []


async def test_an_account_whose_key_is_a_number_is_found(guard: AclGuard) -> None:
    assert await guard.delete_account("12345678")
    assert not await guard.delete_account("12345678")
    assert set(guard.tables.accounts) == {"publisher"}


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (change("short"), "The accessKey=short and secretKey=*** cannot be null and length should longer than 6"),
        (change(secret=None), "The accessKey=publisher and secretKey=null cannot be null"),
        (change(topic_perms=["T"]), "Parse Resource format error for T.\nThe expected resource format is 'Res=Perm'."),
        (change(group_perms=["G=X"]), "Parse resource permission error for G=X.\nThe expected permissions are 'SUB'"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_in_rocketmqs_words(
    guard: AclGuard, refused: AccountChange, words: str
) -> None:
    with pytest.raises(ChangeError) as caught:
        await guard.update_account(refused)
    assert str(caught.value).startswith(words)
    assert SECRET not in str(caught.value)
    assert guard.files.default.read_text() == START


async def test_a_change_that_the_files_could_not_be_read_with_writes_nothing(guard: AclGuard) -> None:
    with pytest.raises(ConfigError, match="whiteRemoteAddress: got 'nowhere'"):
        await guard.update_account(change(white_remote_address="nowhere"))
    with pytest.raises(ConfigError, match=r"globalWhiteRemoteAddresses 1: got '300\.1\.1\.1'"):
        await guard.update_white_addresses(["300.1.1.1"], "")
    assert guard.files.default.read_text() == START
    assert guard.version == 1


async def test_white_addresses_of_one_file_are_replaced(guard: AclGuard) -> None:
    assert await guard.update_white_addresses(["10.0.0.2", "10.0.1.*"], str(guard.files.default))
    assert guard.tables.is_white("10.0.1.77")
    assert not guard.tables.is_white("10.0.0.1")
    assert await guard.update_white_addresses([], "")
    assert not guard.tables.is_white("10.0.1.77")


@pytest.mark.parametrize("name", ["../outside.yml", "conf/tools.yml", "conf/broker.conf", "conf/acl/../../secret.yml"])
async def test_no_request_writes_to_another_file(guard: AclGuard, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    guard.files.folder.mkdir(exist_ok=True)
    file.resolve().write_text("keep")
    assert not await guard.update_white_addresses(["10.0.0.2"], str(file))
    assert file.read_text() == "keep"
    file.resolve().unlink()


async def test_a_listing_has_everything_but_the_secrets(guard: AclGuard) -> None:
    more = guard.files.folder / "more.yml"
    more.parent.mkdir()
    # The first file of the two counts for a key that stands in both.
    more.write_text(
        "globalWhiteRemoteAddresses: [10.0.0.2, null]\naccounts: [{accessKey: 12345678, secretKey: 11111111}]\n"
    )
    white, accounts = await guard.listing()
    assert white == ["10.0.0.2", "10.0.0.1"]
    assert accounts == [
        {"accessKey": "12345678", "secretKey": HIDDEN, "admin": False} | dict.fromkeys(OTHER_TEXTS),
        {"accessKey": "publisher", "secretKey": HIDDEN, "admin": False, "topicPerms": ["Old=PUB"]}
        | dict.fromkeys(OTHER_TEXTS)
        | {"whiteRemoteAddress": "10.1.1.1"},
    ]
