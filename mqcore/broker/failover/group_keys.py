"""What stands below a group's prefix in the engine: its state, its members, who is there, and an operator's wish."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, TypeVar

import orjson

from mqcore.errors import ProtocolError

from .facts import Announcement, GroupOrder
from .group_state import GroupState

logger = logging.getLogger(__name__)

STATE: Final = "state"
ORDER: Final = "order"
MEMBERS: Final = "members/"
ALIVE: Final = "alive/"
TYPES: Final[dict[str, type]] = {"int": int, "str": str, "bool": bool}

Value = TypeVar("Value", "KnownMember", Announcement, GroupOrder)


@dataclass(frozen=True, slots=True)
class Change:
    """A key of the group was put, or deleted (*value* None). *key* is what follows the group's prefix."""

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys of a group as of one moment. *cluster* is the engine's own id."""

    cluster: str
    revision: int
    keys: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class KnownMember:
    """Whose an id is. It stays its, also when it is *removed*: ids are never given again."""

    uuid: str
    created: int
    """When it joined, ms."""
    removed: bool = False

    def as_removed(self) -> KnownMember:
        return replace(self, removed=True)


def encode(value: KnownMember | Announcement | GroupOrder) -> bytes:
    """Return the value as it is stored, JSON."""
    return orjson.dumps(asdict(value))


def decode(kind: type[Value], data: bytes) -> Value:
    """Read a stored value; what a later release has put there as well is passed over. Raises ProtocolError."""
    wanted = {row.name: TYPES[str(row.type)] for row in fields(kind)}
    try:
        stored: dict[str, Any] = orjson.loads(data)
        found = {name: stored[name] for name in wanted if name in stored}
        if any(type(found[name]) is not wanted[name] for name in found):
            raise TypeError("a field has another type")
        return kind(**found)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise ProtocolError(f"{kind.__name__}: got {data[:200]!r}, wanted what a broker writes: {error}") from error


@dataclass(slots=True)
class GroupView:
    """What is known of a group's keys: read once, and kept up by what is watched."""

    revision: int = 0
    cluster: str = ""
    state: GroupState | None = None
    state_revision: int = 0
    members: dict[int, KnownMember] = field(default_factory=dict)
    alive: dict[int, Announcement] = field(default_factory=dict)
    announced: dict[int, Announcement] = field(default_factory=dict)
    """What each said of itself last, also who is gone since: for people."""
    order: GroupOrder | None = None

    @classmethod
    def of(cls, listing: Listing) -> GroupView:
        """Return what *listing* says. Raises ProtocolError for a state that no broker of this group has written."""
        view = cls(cluster=listing.cluster)
        view.take(listing.keys)
        view.revision = listing.revision
        return view

    def take(self, changes: Iterable[Change]) -> None:
        """Note what has changed. Raises as ``of``; whatever else cannot be read is not there."""
        for change in changes:
            self.revision = max(self.revision, change.revision)
            if change.key == STATE:
                self.state = GroupState.decode(change.value) if change.value is not None else None
                self.state_revision = change.revision
            elif change.key == ORDER:
                self.order = _readable(GroupOrder, change)
            elif change.key.startswith(MEMBERS):
                _put(self.members, change.key.removeprefix(MEMBERS), _readable(KnownMember, change))
            elif change.key.startswith(ALIVE):
                _put(self.alive, change.key.removeprefix(ALIVE), _readable(Announcement, change))
                self.announced.update(self.alive)

    @property
    def next_id(self) -> int:
        """The id of who joins next. They begin at 1: by 0 name servers know who leads."""
        return max(self.members, default=0) + 1

    def id_of(self, uuid: str) -> int | None:
        """Return the id of the member with this uuid."""
        return next((member for member, known in self.members.items() if known.uuid == uuid), None)


def _readable(kind: type[Value], change: Change) -> Value | None:
    if change.value is None:
        return None
    try:
        return decode(kind, change.value)
    except ProtocolError as error:
        logger.warning("a key of the group is passed over key=%s error=%s", change.key, error)
        return None


def _put(table: dict[int, Any], name: str, value: object) -> None:
    if not name.isdecimal():
        return
    if value is None:
        table.pop(int(name), None)
    else:
        table[int(name)] = value
