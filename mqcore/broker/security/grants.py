"""The accounts and grants in the words of send workers; see ACL_TABLE and ACL_GRANT in mqcore.layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqcore import layout
from mqcore.broker.security.accounts import Account
from mqcore.broker.security.tables import AclTables
from mqcore.broker.security.validator import Principal

EVERYBODY: Final = -1
TRUST: Final = layout.constants("AclTrust")


def encode_table(tables: AclTables, version: int) -> bytes:
    """All accounts, in the order that ``encode_grant`` counts them in. It holds secrets."""
    accounts = tables.accounts.values()
    head = layout.ACL_TABLE.struct.pack(version, len(accounts), sum(len(account.perms) for account in accounts))
    return head + b"".join(map(_encode_account, accounts))


def _encode_account(account: Account) -> bytes:
    key = account.access_key.encode()
    head = layout.ACL_ACCOUNT.struct.pack(
        len(key),
        len(account.secret_key),
        len(account.perms),
        account.default_topic_perm,
        account.default_group_perm,
        account.may_do_all,
    )
    rules = [
        layout.ACL_RULE.struct.pack(len(name.encode()), perm) + name.encode() for name, perm in account.perms.items()
    ]
    return head + key + account.secret_key + b"".join(rules)


def encode_grant(numbers: Mapping[str, int], version: int, principal: Principal) -> bytes:
    """Who a connection's requests are from under the rules of *version*; *numbers* are the accounts', by key."""
    number = EVERYBODY if principal.account is None else numbers[principal.account.access_key]
    trust = principal.by_address * TRUST["ADDRESS"] | principal.by_certificate * TRUST["CERTIFICATE"]
    return layout.ACL_GRANT.struct.pack(version, number, trust)
