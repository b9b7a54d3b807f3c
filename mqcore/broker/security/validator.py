"""Whether a request may be served: RocketMQ's questions, in its order and its words.

Source: RocketMQ acl/plain/PlainAccessValidator.java, PlainPermissionManager.java.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from mqcore.broker.security.accounts import Account
from mqcore.broker.security.needs import needs_of
from mqcore.broker.security.permissions import ADMIN_CODES, Perm
from mqcore.broker.security.signature import ACCESS_KEY, is_signed
from mqcore.broker.security.tables import AclTables
from mqcore.codes import SerializeType
from mqcore.errors import MQError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.names import RETRY_GROUP_TOPIC_PREFIX, TRACE_TOPIC, is_retry_topic


class Refusal(StrEnum):
    """Why a request is refused."""

    UNREADABLE = "unreadable"
    NO_KEY = "no key"
    UNKNOWN_KEY = "unknown key"
    SIGNATURE = "signature"
    ADMIN = "admin"
    PERMISSION = "permission"


class AclError(MQError):
    """A request is refused. On the wire it reads as RocketMQ's exception, without the place in its code."""

    def __init__(self, why: Refusal, text: str, access_key: str = "") -> None:
        super().__init__(why, text, access_key)

    @property
    def why(self) -> Refusal:
        return Refusal(self.args[0])

    @property
    def access_key(self) -> str:
        """Who asked, if he said so."""
        return str(self.args[2])

    def __str__(self) -> str:
        return f"org.apache.rocketmq.acl.common.AclException: {self.args[1]}"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request is from. Without an account, his address alone let him in."""

    account: Account | None = None
    by_address: bool = False
    """His address was enough, and nothing else is asked of him."""
    by_certificate: bool = False
    """His certificate says who he is, so that he needs no signature."""


def refusal(request: RemotingCommand, error: AclError) -> RemotingCommand:
    """The answer to a request that is refused; in JSON whatever the request is in, as RocketMQ's framework answers."""
    return replace(request.reply(error.response_code, str(error)), serialize_type=SerializeType.JSON)


def validate(
    tables: AclTables,
    request: RemotingCommand,
    address: str,
    admin_codes: Collection[int] = ADMIN_CODES,
    certified: str = "",
) -> Principal:
    """Return who *request*, which came from *address*, is from. Raises AclError if it may not be served.

    *certified* is the name in the certificate of its connection, that of the account of requests without a key.
    """
    try:
        needs = needs_of(request)
    except MQError as error:
        raise AclError(Refusal.UNREADABLE, str(error)) from error
    if tables.is_white(address):
        return Principal(by_address=True)
    by_certificate = bool(certified) and not names_account(request)
    account = _certified_account(tables, certified) if by_certificate else _account(tables, request)
    if account.white_addresses.matches(address):
        return Principal(account, by_address=True, by_certificate=by_certificate)
    if not by_certificate and not is_signed(request, account.secret_key):
        key = account.access_key
        raise AclError(Refusal.SIGNATURE, f"Check signature failed for accessKey={key}", key)
    check_perms(account, request.code, needs, admin_codes)
    return Principal(account, by_certificate=by_certificate)


def names_account(request: RemotingCommand) -> bool:
    """Whether *request* says by a key who it is from."""
    return ACCESS_KEY in (request.ext_fields or {})


def _certified_account(tables: AclTables, name: str) -> Account:
    account = tables.accounts.get(name)
    if account is None:
        # Nobody guesses certificates.
        raise AclError(Refusal.NO_KEY, f"No accessKey is configured, and no acl config for the certificate of {name}")
    return account


def _account(tables: AclTables, request: RemotingCommand) -> Account:
    key = (request.ext_fields or {}).get(ACCESS_KEY)
    if key is None:
        raise AclError(Refusal.NO_KEY, "No accessKey is configured")
    account = tables.accounts.get(key)
    if account is None:
        raise AclError(Refusal.UNKNOWN_KEY, f"No acl config for {key}", key)
    return account


def check_perms(account: Account, code: int, needs: Mapping[str, Perm], admin_codes: Collection[int]) -> None:
    """Raise AclError if *account* lacks something that a request of *code* with these *needs* wants."""
    if needs.get(TRACE_TOPIC) == Perm.PUB:
        # What clients tell of themselves is taken from everybody.
        return
    key = account.access_key
    if code in admin_codes and not account.is_admin:
        text = f"Need admin permission for request code={code}, but accessKey={key} is not"
        raise AclError(Refusal.ADMIN, text, key)
    if account.may_do_all:
        return
    for resource, needed in needs.items():
        if not account.may(resource, needed):
            raise AclError(Refusal.PERMISSION, f"No default permission for {_shown(resource)}", key)


def _shown(resource: str) -> str:
    return (
        f"group:{resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)}" if is_retry_topic(resource) else f"topic:{resource}"
    )
