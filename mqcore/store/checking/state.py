"""What a store is like when a check begins: stopped in order, left by a crash, or in use; it decides what is damage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mqcore.errors import ProtocolError
from mqcore.files import read_if_there
from mqcore.protocol import fastjson
from mqcore.store.abort_file import AbortFile
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.lock_file import is_held
from mqcore.store.log.walk import OFFSET_MAX
from mqcore.store.paths import StorePaths
from mqcore.store.queues.consume_queue import RECOVERED_FILES
from mqcore.store.reader_extent import vouched_file
from mqcore.store.reader_files import FoundFiles


class StoreUse(StrEnum):
    """Who has the store, or how it was left."""

    IN_USE = "in use"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class StoreState:
    """*recovered_from*: the next start looks at the log from this place on, and after a crash builds anew from there.

    *flushed*: the store time up to which the checkpoint has everything on disk, ms.
    """

    use: StoreUse
    checkpoint: Checkpoint
    has_checkpoint: bool
    recovered_from: int
    flushed: int


def look_at(paths: StorePaths, files: FoundFiles) -> StoreState:
    """Return the state of a store. The lock is asked, not taken."""
    checkpoint = Checkpoint.read(paths.checkpoint)
    has_checkpoint = paths.checkpoint.exists()
    was_aborted = AbortFile(paths.abort).exists()
    if is_held(paths.lock):
        use = StoreUse.IN_USE
    else:
        use = StoreUse.CRASHED if was_aborted else StoreUse.STOPPED
    start = files.starts[-RECOVERED_FILES:][0] if files.starts else 0
    if was_aborted:
        start = vouched_file(files, checkpoint.min_timestamp)
    flushed = checkpoint.physic_timestamp
    if not was_aborted and not has_checkpoint:
        flushed = OFFSET_MAX  # a copy of the log alone
    return StoreState(use, checkpoint, has_checkpoint, start, flushed)


def known_topics(config: Path) -> frozenset[str] | None:
    """Return the topics of the broker's table; None without a table that can be read."""
    for path in (config / "topics.json", config / "topics.json.bak"):
        try:
            table = fastjson.loads(read_if_there(path))["topicConfigTable"]
        except (OSError, ProtocolError, KeyError, TypeError):
            continue
        if isinstance(table, dict):
            return frozenset(table)
    return None
