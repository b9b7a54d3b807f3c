"""What a broker of a failover group keeps on disk about itself and its log: files of our own in ``mqcore``.

``ha_identity`` says who this store is in the group and what it has seen and promised, ``epochs`` which mastership wrote
which part of the log, ``confirmed`` how far all members that were in sync are known to have had it. Each is written
beside itself, synced and renamed: a crash leaves what was before or what was to be. The first two are never guessed; a
start that finds one damaged stops and names it. ``confirmed`` may be too old: what is in doubt becomes readable when
the group has it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from mqcore.errors import CorruptFileError
from mqcore.files import make_directory, write_atomically
from mqcore.store.epochs import EpochEntry
from mqcore.store.paths import StorePaths

logger = logging.getLogger(__name__)

KINDS: Final = {"str": (str,), "int": (int,), "bool": (bool,), "int | None": (int, type(None))}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this store is, and what of the group must not be forgotten.

    *member*: its id in the group, None before it has one. *boot_id* and *mount*: what had the pages of its log when it
    last ran; *acks_flushed*: only what was on disk was acknowledged then. *seen_epoch*: the greatest that was heard of.
    *floor*: what it had acknowledged when that was last written, bytes; a log that ends before has lost something.
    *is_trusted*: the log has all that it ever acknowledged. *cutting_to*: the store is being cut there, see
    ``log_cut``; None = it is not.
    """

    cluster: str
    broker_name: str
    member: int | None
    uuid: str
    etcd_cluster: str = ""
    boot_id: str = ""
    mount: str = ""
    acks_flushed: bool = False
    seen_epoch: int = 0
    floor: int = 0
    is_trusted: bool = True
    stopped_cleanly: bool = False
    cutting_to: int | None = None


class FailoverFiles:
    """The three files of a store. Writing blocks until it is durable; raises OSError."""

    def __init__(self, paths: StorePaths) -> None:
        self._identity = paths.ha_identity
        self._epochs = paths.epochs
        self._confirmed = paths.confirmed

    def read_identity(self) -> Identity | None:
        """Return who this store is, None if it was never in a group. Raises CorruptFileError."""
        found = _read_json(self._identity)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise CorruptFileError("not the identity of a member: no JSON object", str(self._identity))
        return Identity(
            **{field.name: _value(found, field.name, str(field.type), self._identity) for field in fields(Identity)}
        )

    def write_identity(self, identity: Identity) -> None:
        _write(self._identity, asdict(identity))

    def read_epochs(self) -> tuple[EpochEntry, ...]:
        """Return the epochs of the log in their order; those behind its end do not count. Raises CorruptFileError."""
        found = _read_json(self._epochs)
        if found is None:
            return ()
        try:
            entries = tuple(EpochEntry(int(epoch), int(start)) for epoch, start in found)
        except (TypeError, ValueError) as error:
            raise CorruptFileError(f"not a list of epochs and their starts: {error}", str(self._epochs)) from error
        for one, next_one in pairwise(entries):
            if next_one.epoch <= one.epoch or next_one.start < one.start:
                raise CorruptFileError(f"epoch {next_one.epoch} stands behind {one.epoch}", str(self._epochs))
        return entries

    def write_epochs(self, entries: Sequence[EpochEntry]) -> None:
        _write(self._epochs, [list(entry) for entry in entries])

    def read_confirmed(self) -> int | None:
        """Return how far the log is known to be confirmed, bytes; 0 if that cannot be read, None if it was not said."""
        if not self._confirmed.exists():
            return None
        try:
            return max(0, int(self._confirmed.read_bytes()))
        except ValueError:
            logger.warning("not a number, nothing counts as confirmed path=%s", self._confirmed)
            return 0

    def write_confirmed(self, offset: int) -> None:
        _write(self._confirmed, offset)


def _write(path: Path, value: object) -> None:
    make_directory(path.parent)
    write_atomically(path, json.dumps(value).encode(), keep_backup=False)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptFileError(f"damaged: {error}", str(path)) from error


def _value(found: dict[str, Any], name: str, kind: str, path: Path) -> Any:
    value = found.get(name)
    if name not in found or type(value) not in KINDS[kind]:
        raise CorruptFileError(f"damaged: {name} is {value!r}, wanted {kind}", str(path))
    return value
