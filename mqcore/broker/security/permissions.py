"""What an account may do with a topic or group. Source: RocketMQ acl/common/Permission.java."""

from __future__ import annotations

from enum import IntFlag
from typing import Final

from mqcore.codes import RequestCode as Code
from mqcore.layout import constants


class Perm(IntFlag):
    """Bits of a permission; DENY beats the others."""

    DENY = 1
    PUB = 4
    SUB = 8


assert {perm.name: perm.value for perm in Perm} == constants("AclPerm"), "send workers know the same bits"

WORDS: Final = {
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
    "DENY": Perm.DENY,
}

ADMIN_CODES: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_BROKER_CONFIG,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP,
        # Lists of the first and the fourth, which 4.9 does not know.
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        # Who may do what is nobody else's affair; 4.9.8 has it no more.
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        # Of mqcore: who leads, and what is lost when somebody does.
        Code.CHANGE_FAILOVER_GROUP,
    }
)
"""Requests that only an account with ``admin`` may make."""


ACCESS_CODES: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    }
)
"""Requests that change who may do what. In RocketMQ any account may make them, and make itself an admin so."""


def parse_perm(text: str | None) -> Perm:
    """The permission that *text* names; DENY for everything else, and for none."""
    return WORDS.get(text.strip(), Perm.DENY) if text is not None else Perm.DENY


def allows(owned: Perm, needed: Perm) -> bool:
    return not owned & Perm.DENY and bool(owned & needed)
