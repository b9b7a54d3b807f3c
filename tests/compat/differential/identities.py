"""Who asks: requests signed with the key of an account, with a wrong one, and not at all."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from mqcore.codes import RequestCode as Code
from mqcore.protocol.command import RemotingCommand

from .scripts import Request

OPERATOR_SECRET: Final = "operator-secret"
LIMITED_SECRET: Final = "limited/secret="
ACCOUNTS: Final = [
    {"accessKey": "operator", "secretKey": OPERATOR_SECRET, "admin": True},
    {
        "accessKey": "limited-1",
        "secretKey": LIMITED_SECRET,
        "admin": False,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["Orders=PUB|SUB"],
        "groupPerms": ["Strangers=DENY"],
    },
]
"""The accounts of both brokers."""

_sources = itertools.count()

GUESSES: Final = 3
"""Wrong signatures for which ours lets nobody wait."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key and a secret. Who guesses comes from another address after a few requests, as ours lets him wait else."""

    name: str
    key: str = ""
    secret: str = ""
    guesses: bool = False

    def sign(self, command: RemotingCommand) -> None:
        """Sign *command* as Apache's clients do: the values in the order of their names, and the body behind them."""
        if not self.key:
            return
        fields = command.ext_fields = {**(command.ext_fields or {}), "AccessKey": self.key}
        content = "".join(fields[name] for name in sorted(fields)).encode() + command.body
        digest = hmac.digest(self.secret.encode(), content, hashlib.sha1)
        fields["Signature"] = base64.b64encode(digest).decode()

    def sources(self) -> Iterator[str]:
        """The address that each request comes from."""
        if not self.guesses:
            yield from itertools.repeat("127.0.0.1")
        while True:
            number = next(_sources)
            yield from itertools.repeat(f"127.{1 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}", GUESSES)


NOBODY: Final = Identity("nobody")
OPERATOR: Final = Identity("an admin", "operator", OPERATOR_SECRET)
LIMITED: Final = Identity("a limited account", "limited-1", LIMITED_SECRET)
IDENTITIES: Final = (
    NOBODY,
    Identity("an unknown key", "stranger", "some-secret", guesses=True),
    Identity("a wrong signature", "operator", "another-secret", guesses=True),
    LIMITED,
    OPERATOR,
)


def write_accounts(home: Path) -> Path:
    """Put the accounts where a broker with the home *home* looks for them; gives the file."""
    file = home / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump({"accounts": ACCOUNTS}))
    return file


def _changes() -> Iterator[Request]:
    account = {
        "accessKey": "newcomer", "secretKey": "newcomer-secret", "admin": "false", "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB", "topicPerms": "Orders=PUB", "groupPerms": "Billing=SUB",
    }  # fmt: skip
    yield Request("an account", Code.UPDATE_AND_CREATE_ACL_CONFIG, account)
    yield Request("a changed account", Code.UPDATE_AND_CREATE_ACL_CONFIG, {**account, "defaultTopicPerm": "PUB"})
    yield Request("an account with a short key", Code.UPDATE_AND_CREATE_ACL_CONFIG, {**account, "accessKey": "short"})
    yield Request("no permission", Code.UPDATE_AND_CREATE_ACL_CONFIG, {**account, "topicPerms": "Orders=ALL"})
    yield Request("white addresses", Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.10.10.*"})
    yield Request(
        "white addresses of a file that is none", Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        {"globalWhiteAddrs": "10.10.10.*", "aclFileFullPath": "/nowhere/plain_acl.yml"},
    )  # fmt: skip
    yield Request("versions", Code.GET_BROKER_CLUSTER_ACL_INFO)
    # Apache's broker knows no account while it reads its file anew, which it does once it notices the changes above.
    newcomer = {"accessKey": "newcomer"}
    yield Request(
        "an account goes", Code.DELETE_ACL_CONFIG, newcomer, not_yet="[newcomer] corresponding to accessConfig"
    )
    yield Request("an account that is not there goes", Code.DELETE_ACL_CONFIG, {"accessKey": "nobody-there"})


CHANGES: Final = tuple(_changes())
"""Requests of access control itself."""
