"""What all files together say: accounts by key, and the addresses that are let in without one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqcore.broker.security.accounts import Account, read_account, read_address, unknown_names
from mqcore.broker.security.address_patterns import AddressPattern
from mqcore.errors import ConfigError
from mqcore.protocol.topic_config import DataVersion

logger = logging.getLogger(__name__)

WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
DATA_VERSION: Final = "dataVersion"


@dataclass(frozen=True, slots=True)
class AclTables:
    """What holds. Made of files as a whole, and replaced as a whole."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """The path of the file that each account is from, by key."""
    white_addresses: tuple[AddressPattern, ...] = ()

    versions: Mapping[str, DataVersion] = field(default_factory=dict)
    """By the path of each file that is not empty: how often, and when last, it was changed by request."""

    def is_white(self, address: str) -> bool:
        """Whether who comes from *address* is let in without a key."""
        return any(pattern.matches(address) for pattern in self.white_addresses)


def make_tables(contents: Mapping[str, Any], now_ms: int = 0) -> AclTables:
    """Put together what the files say, by path, in their order: of a key that stands twice, the first one counts.

    *now_ms* is the time of a file that has none. Raises ConfigError, with the path, for the first that cannot stand.
    """
    accounts: dict[str, Account] = {}
    files: dict[str, str] = {}
    white: list[AddressPattern] = []
    versions: dict[str, DataVersion] = {}
    for path, content in contents.items():
        if not content:
            continue
        if not isinstance(content, Mapping):
            raise ConfigError(f"{path}: got a {type(content).__name__}, wanted {ACCOUNTS} and {WHITE_ADDRESSES}")
        versions[path] = version_of(content, now_ms)
        for number, value in enumerate(_list(content, WHITE_ADDRESSES, path), 1):
            white.append(read_address(value, f"{path}: {WHITE_ADDRESSES} {number}"))
        for number, entry in enumerate(_list(content, ACCOUNTS, path), 1):
            account = read_account(entry, f"{path}: account {number}")
            if account.access_key in accounts:
                first = files[account.access_key]
                logger.warning("access key stands twice key=%s used=%s passed_over=%s", account.access_key, first, path)
                continue
            if unknown := unknown_names(entry):
                logger.warning("unknown names in an account key=%s names=%s file=%s", account.access_key, unknown, path)
            accounts[account.access_key] = account
            files[account.access_key] = path
    return AclTables(accounts, files, tuple(white), versions)


def version_of(content: Mapping[str, Any], now_ms: int) -> DataVersion:
    """The version that stands in a file; one that is just beginning if none does."""
    match content.get(DATA_VERSION):
        case [{"counter": int(counter), "timestamp": int(timestamp)}, *_]:
            return DataVersion(timestamp, counter)
    return DataVersion(now_ms, 0)


def _list(content: Mapping[str, Any], name: str, path: str) -> list[Any]:
    value = content.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{path}: {name}: got a {type(value).__name__}, wanted a list")
    return value
