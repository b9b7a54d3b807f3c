"""Who may do what at a broker with access control. Secrets are not kept: older brokers answer with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mqcore.client.admin.base import AdminCalls
from mqcore.codes import RequestCode
from mqcore.errors import ProtocolError
from mqcore.protocol import fastjson


@dataclass(frozen=True, slots=True)
class ListedAccount:
    """One account, without its secret. Permissions are RocketMQ's words: DENY, PUB, SUB, PUB|SUB."""

    access_key: str
    is_admin: bool
    default_topic_perm: str
    default_group_perm: str
    topic_perms: tuple[str, ...]
    group_perms: tuple[str, ...]
    white_remote_address: str


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The accounts of a broker, and the addresses that it lets in without a key."""

    white_addresses: tuple[str, ...]
    accounts: tuple[ListedAccount, ...]


class AccountCalls(AdminCalls):
    """What can be asked about access control."""

    async def access_rules(self, broker: str) -> AccessRules:
        """Return the accounts of *broker*. BrokerError where access control is off, or who asks is no admin."""
        answer = await self._ask(broker, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        body = fastjson.loads(answer.body)
        if not isinstance(body, Mapping):
            raise ProtocolError(f"accounts of {broker}: got {type(body).__name__}, wanted an object")
        accounts = body.get("plainAccessConfigs") or ()
        found = tuple(_account(entry) for entry in accounts if isinstance(entry, Mapping))
        return AccessRules(_texts(body.get("globalWhiteAddrs")), found)


def _account(entry: Mapping[str, Any]) -> ListedAccount:
    return ListedAccount(
        access_key=str(entry.get("accessKey") or ""),
        is_admin=bool(entry.get("admin")),
        default_topic_perm=str(entry.get("defaultTopicPerm") or "DENY"),
        default_group_perm=str(entry.get("defaultGroupPerm") or "DENY"),
        topic_perms=_texts(entry.get("topicPerms")),
        group_perms=_texts(entry.get("groupPerms")),
        white_remote_address=str(entry.get("whiteRemoteAddress") or ""),
    )


def _texts(values: object) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, Iterable) and not isinstance(values, str) else ()
