"""The shape of one row of the settings table, and how its text becomes a value.

A row says everything about one setting; the modules ``*_rows`` hold the rows, and nothing else knows a default, a range
or a spelling. A row never reads files, the environment or other rows: that is ``loading``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntFlag, StrEnum
from typing import NamedTuple, TypeAlias

from mqcore.errors import ConfigError

Value: TypeAlias = bool | int | str

INT_MAX = 2**31 - 1  # Java int
LONG_MAX = 2**63 - 1  # Java long
ANY_TEXT = "*"  # in Setting.refused_values: every value but the empty one


class Program(StrEnum):
    """Which program a set of settings is for."""

    BROKER = "broker"
    NAMESRV = "name server"


class Group(StrEnum):
    """RocketMQ's class of settings that a row belongs to; FAILOVER and MQCORE have no counterpart there."""

    BROKER = "broker"
    STORE = "store"
    NETTY_SERVER = "netty_server"
    NETTY_CLIENT = "netty_client"
    NAMESRV = "namesrv"
    TLS = "tls"
    FAILOVER = "failover"
    MQCORE = "mqcore"


class Kind(StrEnum):
    """The type of a value. ENUM values are StrEnum members and so also text."""

    BOOL = "bool"
    INT = "int"
    STR = "str"
    ENUM = "enum"


class Unit(StrEnum):
    """The unit of a number. All but bytes, pages and count end the attribute's name."""

    NONE = ""
    MS = "ms"
    SECONDS = "seconds"
    HOURS = "hours"
    PERCENT = "percent"
    BYTES = "bytes"
    PAGES = "pages"


SUFFIXED_UNITS = frozenset({Unit.MS, Unit.SECONDS, Unit.HOURS, Unit.PERCENT})


class Mark(IntFlag):
    """What is special about a row."""

    NONE = 0
    LIVE = 1  # a remote update may change it while the broker runs
    SHOWN = 2  # printed by -m
    LONG = 4  # a Java long rather than an int
    CLAMPED = 8  # out of range is moved to the nearer end with a warning, as RocketMQ does, instead of refused
    # Of a live setting: who goes by it, each time that it is needed or from when other settings are published.
    BY_BROKER = 16
    BY_SEND = 32
    BY_PULL = 64
    BY_FLUSH = 128
    BY_NAMESRV = 256
    BY_HA = 512
    BY_TIMER = 1024
    FOLLOWS = 2048  # from other settings, whatever is given
    SECRET = 4096  # never printed, listed or logged
    BY_WORKERS = 16384  # by every worker that follows settings, whatever its kind
    EMPTY = 8192  # a text that RocketMQ lists without a value, too: its default is empty there, not null


READERS = {
    Mark.BY_BROKER: "broker",
    Mark.BY_SEND: "send",
    Mark.BY_PULL: "pull",
    Mark.BY_FLUSH: "flush",
    Mark.BY_NAMESRV: "name server",
    Mark.BY_HA: "ha",
    Mark.BY_TIMER: "timer",
    Mark.BY_WORKERS: "workers",
}
"""Who reads a live setting, in words: the broker process, a kind of worker, or the name server."""

LIVE = Mark.LIVE
BY_BROKER = Mark.LIVE | Mark.BY_BROKER
BY_SEND = Mark.LIVE | Mark.BY_SEND
BY_PULL = Mark.LIVE | Mark.BY_PULL
BY_FLUSH = Mark.LIVE | Mark.BY_FLUSH
BY_NAMESRV = Mark.LIVE | Mark.BY_NAMESRV
BY_HA = Mark.LIVE | Mark.BY_HA
BY_TIMER = Mark.LIVE | Mark.BY_TIMER
BY_WORKERS = Mark.LIVE | Mark.BY_WORKERS
SHOWN = Mark.SHOWN
LONG = Mark.LONG
CLAMPED = Mark.CLAMPED
SECRET = Mark.SECRET


class Context(NamedTuple):
    """What a computed default may look at: values already settled, by property name, and the machine's environment."""

    known: Mapping[str, Value]
    environment: Mapping[str, str]
    program: Program


class Computed(NamedTuple):
    """A default that depends on the machine or on other settings; *text* says how in the documentation."""

    text: str
    value: Callable[[Context], Value]


class Setting(NamedTuple):
    """One row. ``properties`` are the spellings in files: RocketMQ's own (``key``), then accepted aliases."""

    name: str
    properties: tuple[str, ...]
    kind: Kind
    default: Value | Computed
    effect: str
    marks: Mark = Mark.NONE
    unit: Unit = Unit.NONE
    minimum: int = 0
    maximum: int = INT_MAX
    enum: type[StrEnum] | None = None
    environment_variable: str = ""
    refused_values: tuple[str, ...] = ()
    refused_because: str = ""
    used: bool = True
    since: str = "4.9"
    group: Group = Group.BROKER
    programs: tuple[Program, ...] = ()

    @property
    def key(self) -> str:
        """RocketMQ's spelling, by which values are kept everywhere."""
        return self.properties[0]

    @property
    def changeable(self) -> bool:
        return Mark.LIVE in self.marks

    @property
    def readers(self) -> tuple[str, ...]:
        """Who goes by a change of it while the program runs."""
        return tuple(name for mark, name in READERS.items() if mark in self.marks)

    @property
    def annotation(self) -> str:
        """The annotation that the field of this name must carry in the class of its group."""
        return self.enum.__name__ if self.enum is not None else self.kind.value

    @property
    def wanted(self) -> str:
        """What a value must be, as a noun phrase."""
        if self.kind is Kind.BOOL:
            return "true or false"
        if self.enum is not None:
            return "one of " + ", ".join(self.enum)
        if self.kind is Kind.INT:
            unit = f" {self.unit}" if self.unit else ""
            return f"an integer from {self.minimum} to {self.maximum}{unit}"
        return "text"

    def parse(self, text: str, where: str, warnings: list[str]) -> Value:
        """The value that *text* stands for; blanks around it do not count. Appends to *warnings* what was bent.

        Raises ConfigError naming key, got, wanted and *where*. RocketMQ drops a malformed number in silence and reads
        every text but "true" as false: a typing error there becomes a default that nobody asked for.
        """
        text = text.strip()
        value = self._convert(text)
        if value is None:
            raise self.error(text, where)
        if self.kind is Kind.INT and not self.minimum <= int(value) <= self.maximum:
            if Mark.CLAMPED not in self.marks:
                raise self.error(text, where)
            bent = min(max(int(value), self.minimum), self.maximum)
            warnings.append(f"{self.key}: {value} is out of range, {bent} is used instead ({where})")
            value = bent
        settled = format_value(value)  # so that TRUE is refused where true is
        if settled in self.refused_values or (ANY_TEXT in self.refused_values and settled):
            raise ConfigError(f"{self.key}: got {text}, which is refused: {self.refused_because} ({where})")
        return value

    def _convert(self, text: str) -> Value | None:
        if self.kind is Kind.BOOL:
            return {"true": True, "false": False}.get(text.lower())
        if self.enum is not None:
            return next((member for member in self.enum if member.value == text), None)
        if self.kind is Kind.INT:
            return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        return text

    def error(self, got: str, where: str, wanted: str = "") -> ConfigError:
        """The error for a value that this setting cannot take."""
        shown = "what is not shown" if Mark.SECRET in self.marks else repr(got)
        return ConfigError(f"{self.key}: got {shown}, wanted {wanted or self.wanted} ({where})")

    def default_value(self, context: Context) -> Value:
        return self.default.value(context) if isinstance(self.default, Computed) else self.default

    @property
    def default_text(self) -> str:
        return self.default.text if isinstance(self.default, Computed) else format_value(self.default)


def format_value(value: Value) -> str:
    """The text of *value* in a properties file."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def attribute_name(property_name: str, unit: Unit = Unit.NONE) -> str:
    """The attribute for a property: snake_case, spelled right, with the unit at the end.

    waitTimeMillsInSendQueue in ms -> wait_time_in_send_queue_ms; warmMapedFileEnable -> warm_mapped_file_enable;
    tls.server.keyPath -> tls_server_key_path.
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", property_name).lower().replace(".", "_")
    snake = re.sub(r"_mill(i)?s\b|_mill(i)?s(?=_)", "", snake).replace("maped_", "mapped_")
    if unit in SUFFIXED_UNITS and not snake.endswith(f"_{unit}"):
        snake += f"_{unit}"
    return snake


# The constructors of the row modules. *properties* is the property name followed by its aliases, separated by blanks.


def flag(properties: str, default: bool | Computed, effect: str, marks: Mark = Mark.NONE) -> Setting:
    names = tuple(properties.split())
    return Setting(attribute_name(names[0]), names, Kind.BOOL, default, effect, marks)


def number(
    properties: str,
    default: int | Computed,
    effect: str,
    marks: Mark = Mark.NONE,
    *,
    unit: Unit = Unit.NONE,
    minimum: int = 0,
    maximum: int | None = None,
) -> Setting:
    names = tuple(properties.split())
    if maximum is None:
        maximum = LONG_MAX if Mark.LONG in marks else INT_MAX
    return Setting(
        attribute_name(names[0], unit), names, Kind.INT, default, effect, marks, unit, minimum=minimum, maximum=maximum
    )


def text(
    properties: str, default: str | Computed, effect: str, marks: Mark = Mark.NONE, *, environment_variable: str = ""
) -> Setting:
    names = tuple(properties.split())
    return Setting(
        attribute_name(names[0]), names, Kind.STR, default, effect, marks, environment_variable=environment_variable
    )


def choice(properties: str, default: StrEnum, effect: str, marks: Mark = Mark.NONE) -> Setting:
    names = tuple(properties.split())
    return Setting(attribute_name(names[0]), names, Kind.ENUM, default, effect, marks, enum=type(default))


def unused(properties: str, default: Value | Computed, effect: str, marks: Mark = Mark.NONE) -> Setting:
    """A key that RocketMQ 4.9.8 has and mqcore has no use for. *effect* says why. Only its type is checked.

    The kind follows the default; a computed default of an unused row is always a number. Remote updates of numbers and
    switches are taken, so that tools written for RocketMQ go on working; text may be a path or an address, and is not.
    """
    kind = Kind.INT if isinstance(default, Computed) else _kind_of(default)
    if kind is not Kind.STR:
        marks |= Mark.LIVE
    names = tuple(properties.split())
    return Setting(
        attribute_name(names[0]), names, kind, default, effect, marks, minimum=-(2**63), maximum=LONG_MAX, used=False
    )


def later(properties: str, default: Value, effect: str) -> Setting:
    """A key of RocketMQ 5.x that 4.9.8 does not know; accepted for the sake of shared configuration files."""
    return unused(properties, default, effect)._replace(since="5.x")


def _kind_of(default: Value) -> Kind:
    if isinstance(default, bool):
        return Kind.BOOL
    return Kind.INT if isinstance(default, int) else Kind.STR


def fixed(row: Setting) -> Setting:
    """*row*, never changed by a remote update: a number that is an address."""
    return row._replace(marks=row.marks & ~Mark.LIVE)


def following(row: Setting) -> Setting:
    """*row*, a number that follows from other settings: what is given for it has no effect, and is not shown."""
    return row._replace(marks=fixed(row).marks | Mark.FOLLOWS)


def refusing(row: Setting, values: str, because: str) -> Setting:
    """*row*, which stops the start for *values* (blank-separated; ``*`` is any text): obeying half would be worse."""
    return row._replace(refused_values=tuple(values.split()), refused_because=because)


def in_group(group: Group, rows: Iterable[Setting], *programs: Program) -> tuple[Setting, ...]:
    """*rows* with their group and the programs that know them; a row that already names its programs keeps them."""
    return tuple(row._replace(group=group, programs=row.programs or programs) for row in rows)
