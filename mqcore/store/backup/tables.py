"""The tables in ``config/``, copied so that none is ahead of the log that is copied with it.

Offsets of consumers and of delay levels say what is done with: they are copied before the end of the log is looked
up, or a message behind it would count as consumed. Topics and groups are copied after it, so that whatever has a
message has its topic.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from mqcore.errors import CorruptFileError, ProtocolError
from mqcore.files import backup_of, read_if_there
from mqcore.protocol import fastjson
from mqcore.store.backup.manifest import TABLE_NAME_BYTES

OFFSET_TABLES: Final = ("consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json", "consumerOrderInfo.json")
TABLE_SUFFIX: Final = ".json"
TRIES: Final = 20
RETRY_S: Final = 0.02
"""RocketMQ's broker removes a table for a moment before it gives it its new content."""


def copy_offsets(config: Path) -> dict[str, bytes]:
    """Return the tables that say what is done with, by name."""
    return _copy(config, [name for name in OFFSET_TABLES if _is_there(config / name)])


def copy_others(config: Path) -> dict[str, bytes]:
    """Return all other tables, by name."""
    names = {path.name.removesuffix(".bak") for path in config.glob("*.json*")} if config.is_dir() else set()
    chosen = [name for name in sorted(names) if name.endswith(TABLE_SUFFIX) and set(name) <= TABLE_NAME_BYTES]
    return _copy(config, [name for name in chosen if name not in OFFSET_TABLES and _is_there(config / name)])


def _is_there(path: Path) -> bool:
    return path.exists() or backup_of(path).exists()


def _copy(config: Path, names: list[str]) -> dict[str, bytes]:
    found = {name: read_table(config / name) for name in names}
    return {name: data for name, data in found.items() if data}


def read_table(path: Path) -> bytes:
    """Return the content of a table, or of its ``.bak`` if it stays away or cannot be read, as its broker would.

    Empty if both are. Raises CorruptFileError if what is there is no JSON.
    """
    for left in reversed(range(TRIES)):
        data = read_if_there(path)
        if _is_sound(data):
            return data
        if left:
            time.sleep(RETRY_S)
    backup = read_if_there(backup_of(path))
    if _is_sound(backup):
        return backup
    if data or backup:
        raise CorruptFileError("table is no JSON object, and there is no .bak that is one", str(path))
    return b""


def _is_sound(data: bytes) -> bool:
    try:
        return isinstance(fastjson.loads(data), dict)
    except ProtocolError:
        return False
