"""Accounts: a key, a secret, and what may be done with them; and how they stand in a YAML file.

What a file says is checked here, and refused with the place and what was wanted. RocketMQ's reader turns numbers into
texts, so that ``secretKey: 12345678`` is one, and finds a name whatever its capitals, dashes and underscores are.
Source: RocketMQ acl/plain/PlainPermissionManager.java, PlainAccessResource.java; common/PlainAccessConfig.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqcore.broker.security.address_patterns import AddressPattern, parse_pattern
from mqcore.broker.security.permissions import Perm, allows, parse_perm
from mqcore.errors import ConfigError
from mqcore.protocol.names import is_retry_topic, retry_topic

KEY_LENGTH_MIN: Final = 7
WORDS_OF_BOOLS: Final = {
    "true": True,
    "1": True,
    "y": True,
    "t": True,
    "false": False,
    "0": False,
    "f": False,
    "n": False,
}
HIDDEN: Final = "********"
TEXTS: Final = ("accessKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
NAMES: Final = {
    name.lower(): name
    for name in (
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    )
}


@dataclass(frozen=True, slots=True)
class Account:
    """One account. The secret is in no text that is made of it."""

    access_key: str
    secret_key: bytes = field(repr=False)
    white_addresses: AddressPattern
    """Who comes from there with this key needs no signature, and may do everything."""
    is_admin: bool
    default_topic_perm: Perm
    default_group_perm: Perm
    perms: Mapping[str, Perm]
    """By topic; groups by their retry topics."""

    def may(self, resource: str, needed: Perm) -> bool:
        """Whether *needed* is given for *resource*, a topic or a retry topic."""
        default = self.default_group_perm if is_retry_topic(resource) else self.default_topic_perm
        return allows(self.perms.get(resource, default), needed)

    @property
    def may_do_all(self) -> bool:
        """An admin without a rule of his own is not asked for permissions."""
        return self.is_admin and not self.perms


def read_account(entry: Any, where: str) -> Account:
    """The account of one entry under ``accounts``. Raises ConfigError with *where*, the key and what was wanted."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: got {_kind(entry)}, wanted accessKey, secretKey and the rest of an account")
    values = _values(entry)
    access_key = _key(values, "accessKey", where)
    where = f"{where} ({access_key})"
    secret_key = _key(values, "secretKey", where)
    perms: dict[str, Perm] = {}
    # Topics last, as RocketMQ has it: a rule for a topic named %RETRY%... beats the one for its group.
    for group, perm in _perms(values, "groupPerms", where):
        perms[retry_topic(group)] = perm
    perms.update(_perms(values, "topicPerms", where))
    return Account(
        access_key=access_key,
        secret_key=secret_key.encode(),
        white_addresses=read_address(values.get("whiteRemoteAddress"), f"{where}: whiteRemoteAddress"),
        is_admin=_bool(values.get("admin"), f"{where}: admin"),
        default_topic_perm=parse_perm(_text(values.get("defaultTopicPerm"), f"{where}: defaultTopicPerm")),
        default_group_perm=parse_perm(_text(values.get("defaultGroupPerm"), f"{where}: defaultGroupPerm")),
        perms=perms,
    )


def plain_text(entry: Any, name: str) -> str | None:
    """What stands under *name* in an account's entry, as a text; None if there is nothing, or something odd."""
    try:
        return _text(_values(entry).get(name), name)
    except ConfigError:
        return None


def shown(entry: Any) -> dict[str, Any]:
    """What an account's entry says, for operators to see; the secret is not among it."""
    values = _values(entry)
    texts = {name: plain_text(entry, name) for name in TEXTS}
    lists = {name: values[name] for name in ("topicPerms", "groupPerms") if isinstance(values.get(name), list)}
    return {**texts, "secretKey": HIDDEN, "admin": _bool(values.get("admin"), "admin"), **lists}


def _values(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        return {}
    return {NAMES[name]: value for key, value in entry.items() if (name := _plain(key)) in NAMES}


def unknown_names(entry: Any) -> list[str]:
    """What an account's entry has that no account has; RocketMQ passes over it without a word."""
    return [str(key) for key in entry if _plain(key) not in NAMES] if isinstance(entry, Mapping) else []


def read_address(value: Any, where: str) -> AddressPattern:
    """The addresses that *value* stands for. Raises ConfigError that names *where*."""
    try:
        return parse_pattern(_text(value, where))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _plain(key: Any) -> str:
    return str(key).lower().replace("-", "").replace("_", "")


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _text(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    # Java would write a float or a date in its own way, and nobody could tell what has to be given for it.
    raise ConfigError(f"{where}: got {_kind(value)}, wanted a text; put it between quotes")


def _key(values: Mapping[str, Any], name: str, where: str) -> str:
    text = _text(values.get(name), f"{where}: {name}")
    if text is None or len(text) < KEY_LENGTH_MIN:
        got = "nothing" if text is None else f"{len(text)} characters"
        raise ConfigError(f"{where}: {name}: got {got}, wanted more than {KEY_LENGTH_MIN - 1} characters")
    return text


def _bool(value: Any, where: str) -> bool:
    text = _text(value, where)
    if text is None or text in ("", "null", "NULL"):
        return False
    known = WORDS_OF_BOOLS.get(text.lower())
    if known is None:
        raise ConfigError(f"{where}: got {text!r}, wanted true or false")
    return known


def _perms(values: Mapping[str, Any], name: str, where: str) -> list[tuple[str, Perm]]:
    given = values.get(name)
    if given is None:
        return []
    if not isinstance(given, list):
        raise ConfigError(f"{where}: {name}: got {_kind(given)}, wanted a list of name=PERMISSION")
    return [_perm(_text(rule, f"{where}: {name}"), f"{where}: {name}") for rule in given]


def _perm(rule: str | None, where: str) -> tuple[str, Perm]:
    parts = [part for part in (rule or "").split("=") if part]
    if len(parts) != 2:
        raise ConfigError(f"{where}: got {rule!r}, wanted name=PERMISSION, and for it DENY, PUB, SUB or PUB|SUB")
    return parts[0].strip(), parse_perm(parts[1])
