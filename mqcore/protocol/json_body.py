"""The one way between dataclasses and the JSON of the protocol's bodies.

A body is a dataclass that derives from JsonBody; its annotations say how each member reads and writes. The member's
name is the attribute's in camelCase, or what the class's JSON_NAMES says. Members are written in alphabetical order, as
Java's bean serializer does, and None is left out. Reading is as tolerant as fastjson: missing members keep their
defaults, unknown ones are ignored, enums come by name or by ordinal, numbers may be texts.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple, Self

from mqcore.codes import LanguageCode
from mqcore.errors import ProtocolError
from mqcore.protocol import fastjson
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.message import MessageQueue

Read = Callable[[Any, str], Any]
Write = Callable[[Any], Any]


class Member(NamedTuple):
    """One JSON member of a body class, and how its values read and write."""

    attribute: str
    name: str
    has_default: bool
    read: Read
    write: Write


class JsonBody:
    """Base of every body that travels as JSON."""

    __slots__ = ()

    JSON_NAMES: ClassVar[Mapping[str, str]] = {}
    """Attribute -> member name, for names that are not the attribute's in camelCase."""

    @classmethod
    def members(cls) -> tuple[Member, ...]:
        """The members of this class in the order in which they are written."""
        return _members(cls)

    def to_json(self) -> dict[Any, Any]:
        """Return the members as values for ``fastjson.dumps``."""
        return {row.name: row.write(getattr(self, row.attribute)) for row in _members(type(self))}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read the body from what ``fastjson.loads`` gave; raise ProtocolError naming the member that is wrong."""
        if not isinstance(value, Mapping):
            raise _mismatch(cls.__name__, value, "an object")
        given: dict[str, Any] = {}
        for row in _members(cls):
            found = value.get(row.name)
            if found is not None:
                given[row.attribute] = row.read(found, f"{cls.__name__}.{row.name}")
            elif not row.has_default:
                raise _mismatch(f"{cls.__name__}.{row.name}", None, "a value")
        return cls(**given)

    def encode(self, *, pretty: bool = False, browser_compatible: bool = False) -> bytes:
        """Return the JSON text, UTF-8."""
        return fastjson.dumps(self.to_json(), pretty, browser_compatible)

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read the body from its JSON text; raise ProtocolError if it is empty or cannot be read."""
        return cls.from_json(fastjson.loads(data))


def _mismatch(where: str, got: Any, wanted: str) -> ProtocolError:
    return ProtocolError(f"{where}: got {'nothing' if got is None else repr(got)[:80]}, wanted {wanted}")


_MEMBERS: Final[dict[type[JsonBody], tuple[Member, ...]]] = {}


def _members(cls: type[JsonBody]) -> tuple[Member, ...]:
    """Return the members of *cls*, worked out from its annotations at the first call."""
    found = _MEMBERS.get(cls)
    if found is None:
        assert dataclasses.is_dataclass(cls)
        hints = typing.get_type_hints(cls)
        rows = [_member(cls, field, hints[field.name]) for field in dataclasses.fields(cls)]
        found = _MEMBERS[cls] = tuple(sorted(rows, key=lambda row: row.name))
    return found


def _member(cls: type[JsonBody], field: dataclasses.Field[Any], annotation: Any) -> Member:
    read, write = _codec(annotation)
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return Member(field.name, cls.JSON_NAMES.get(field.name, _camel(field.name)), has_default, read, write)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _same(value: Any) -> Any:
    return value


def _read_str(value: Any, where: str) -> str:
    return value if isinstance(value, str) else fastjson.dumps(value).decode()


def _read_int(value: Any, where: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _mismatch(where, value, "an integer") from error


def _read_float(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _mismatch(where, value, "a number") from error


def _read_bool(value: Any, where: str) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, bool | int):
        return bool(value)
    raise _mismatch(where, value, "true or false")


def _read_queue(value: Any, where: str) -> MessageQueue:
    try:
        return MessageQueue.from_json(value)
    except ProtocolError as error:
        raise _mismatch(where, value, "a message queue") from error


def _read_any(value: Any, where: str) -> Any:
    return value


_SCALARS: Final[dict[Any, tuple[Read, Write]]] = {
    str: (_read_str, _same),
    int: (_read_int, _same),
    float: (_read_float, float),
    bool: (_read_bool, _same),
    MessageQueue: (_read_queue, MessageQueue.to_json),
    Any: (_read_any, _same),
}

_KEY_WRITERS: Final[dict[Any, Write]] = {str: _same, int: _same, MessageQueue: MessageQueue.json_key}


def _codec(annotation: Any) -> tuple[Read, Write]:
    """Return how values of *annotation* read from and write to JSON values."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _optional_codec(arguments)
    if origin is list:
        return _list_codec(arguments[0])
    if origin in (set, frozenset):
        return _set_codec(origin, arguments[0])
    if origin is dict:
        return _dict_codec(*arguments)
    if isinstance(annotation, type) and issubclass(annotation, JsonBody):
        return _body_codec(annotation)
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return _enum_codec(annotation)
    raise TypeError(f"no JSON form for {annotation}")


def _optional_codec(arguments: tuple[Any, ...]) -> tuple[Read, Write]:
    (inner,) = (argument for argument in arguments if argument is not types.NoneType)
    read, write = _codec(inner)
    return read, lambda value: None if value is None else write(value)


def _list_codec(item: Any) -> tuple[Read, Write]:
    read_item, write_item = _codec(item)

    def read(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise _mismatch(where, value, "an array")
        return [read_item(element, where) for element in value if element is not None]

    return read, lambda values: [write_item(value) for value in values]


def _set_codec(kind: type, item: Any) -> tuple[Read, Write]:
    read_list, _ = _list_codec(item)
    _, write_item = _codec(item)
    # Java's order is that of its hash table; sorted, the same set always gives the same bytes.
    return lambda value, where: kind(read_list(value, where)), lambda values: tuple(map(write_item, sorted(values)))


def _dict_codec(key: Any, item: Any) -> tuple[Read, Write]:
    read_key, _ = _codec(key)
    read_item, write_item = _codec(item)
    write_key = _KEY_WRITERS[key]
    is_sorted = key is int  # a Java hash table lists small integers in their order

    def read(value: Any, where: str) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise _mismatch(where, value, "an object")
        return {
            read_key(name, where): read_item(element, where) for name, element in value.items() if element is not None
        }

    def write(values: dict[Any, Any]) -> dict[Any, Any]:
        items = sorted(values.items()) if is_sorted else values.items()
        return {write_key(name): write_item(element) for name, element in items}

    return read, write


def _body_codec(cls: type[JsonBody]) -> tuple[Read, Write]:
    return lambda value, where: cls.from_json(value), lambda value: value.to_json()


def _enum_codec(cls: type[IntEnum]) -> tuple[Read, Write]:
    def read(value: Any, where: str) -> IntEnum:
        try:
            if isinstance(value, str) and not value.lstrip("-").isdecimal():
                return cls[value]
            return cls(int(value))
        except (KeyError, ValueError, TypeError) as error:
            if cls is LanguageCode:
                return LanguageCode.UNKNOWN
            raise _mismatch(where, value, f"one of {', '.join(cls.__members__)}") from error

    def write(value: int) -> str | None:
        found = cls(value)
        return None if found is LanguageCode.UNKNOWN else found.name

    return read, write
