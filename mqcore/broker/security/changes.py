"""Changes of who may do what that an operator asks for: of an account, of the addresses that are let in.

What is written is YAML as RocketMQ writes it: the fields that are given are changed, the others stay, a changed account
goes to the end, and the file counts its changes. Comments are lost there and here.
Source: RocketMQ acl/plain/PlainPermissionManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mqcore.broker.security.accounts import KEY_LENGTH_MIN, plain_text
from mqcore.broker.security.permissions import WORDS
from mqcore.broker.security.tables import ACCOUNTS, DATA_VERSION, WHITE_ADDRESSES, version_of
from mqcore.errors import MQError

Content = dict[str, Any]


class ChangeError(MQError):
    """A change is refused; everything is as it was."""


@dataclass(frozen=True, slots=True)
class AccountChange:
    """What is to be of an account; None leaves a field as it is."""

    access_key: str
    secret_key: str | None = field(repr=False)
    white_remote_address: str | None
    admin: bool
    default_topic_perm: str | None
    default_group_perm: str | None
    topic_perms: list[str] | None
    group_perms: list[str] | None

    def check(self) -> None:
        """Raise ChangeError, in RocketMQ's words but for the secret, if it cannot be."""
        secret = self.secret_key
        if len(self.access_key) < KEY_LENGTH_MIN or secret is None or len(secret) < KEY_LENGTH_MIN:
            shown = "null" if secret is None else "***"
            raise ChangeError(
                f"The accessKey={self.access_key} and secretKey={shown} cannot be null and length should longer than "
                f"{KEY_LENGTH_MIN - 1}"
            )
        for rule in (*(self.topic_perms or ()), *(self.group_perms or ())):
            _check_rule(rule)

    def fields(self) -> Content:
        """What is given of it, by the names in a file."""
        given: dict[str, Any] = {"accessKey": self.access_key, "secretKey": self.secret_key}
        if self.white_remote_address is not None:
            given["whiteRemoteAddress"] = self.white_remote_address
        given["admin"] = self.admin
        if self.default_topic_perm:
            given["defaultTopicPerm"] = self.default_topic_perm
        if self.default_group_perm:
            given["defaultGroupPerm"] = self.default_group_perm
        if self.topic_perms is not None:
            given["topicPerms"] = self.topic_perms
        if self.group_perms is not None:
            given["groupPerms"] = self.group_perms
        return given


def _check_rule(rule: str) -> None:
    parts = [part for part in rule.split("=") if part]
    if len(parts) != 2:
        raise ChangeError(
            f"Parse Resource format error for {rule}.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
        )
    if parts[1].strip() not in WORDS:
        raise ChangeError(
            f"Parse resource permission error for {rule}.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
        )


def with_account(content: Any, change: AccountChange) -> Content:
    """*content* of a file with the account as it is to be."""
    others, before = _split(content, change.access_key)
    return {**(content or {}), ACCOUNTS: [*others, {**before, **change.fields()}]}


def without_account(content: Any, access_key: str) -> Content:
    """*content* of a file without the account."""
    return {**(content or {}), ACCOUNTS: _split(content, access_key)[0]}


def with_white_addresses(content: Any, addresses: Iterable[str]) -> Content:
    """*content* of a file with these addresses, and no others, let in without a key."""
    return {**(content or {}), WHITE_ADDRESSES: [*addresses]}


def with_next_version(content: Content, now_ms: int) -> Content:
    """*content* with one more change counted."""
    version = version_of(content, now_ms)
    return {**content, DATA_VERSION: [{"counter": version.counter + 1, "timestamp": now_ms}]}


def _split(content: Any, access_key: str) -> tuple[list[Any], Mapping[str, Any]]:
    """The accounts but one, and that one; nothing if it is not there."""
    entries = (content or {}).get(ACCOUNTS) or []
    found = [entry for entry in entries if plain_text(entry, "accessKey") == access_key]
    return [entry for entry in entries if entry not in found], found[0] if found else {}
