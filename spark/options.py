"""Every option of the format "rocketmq", in one table: names, aliases, types, defaults, ranges.

Names follow Spark's Kafka source; those of rocketmq-spark and some of Kafka's own are aliases, so that a query can be
moved by changing its format. As everywhere in Spark, upper and lower case do not matter. ``read_options`` checks what a
query gave; docs/spark.md lists the table (``python -m mqcore.spark.options`` prints it, a test compares).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Final

from mqcore.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class Use(Flag):
    """Where an option means something. An option given elsewhere is an error: it would be ignored in silence."""

    BATCH = auto()
    STREAM = auto()
    SINK = auto()
    SOURCE = BATCH | STREAM
    ALL = SOURCE | SINK


class Kind(Flag):
    """How the text of an option is read."""

    TEXT = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    DURATION = auto()
    CHOICE = auto()


@dataclass(frozen=True, slots=True)
class Option:
    """One option. *default* is the value (None: not set), *minimum* and *maximum* belong to numbers, in *unit*."""

    name: str
    use: Use
    kind: Kind
    default: Any
    doc: str
    aliases: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = INT64_MAX
    choices: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """Return the value of *text*; ConfigError names the option, what it got and what it wanted."""
        return _READERS[self.kind](self, text.strip())

    def refuse(self, got: str, wanted: str) -> ConfigError:
        return ConfigError(f"option {self.name}: got {got!r}, wanted {wanted}")


_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _number(option: Option, text: str) -> int:
    wanted = f"an integer from {option.minimum} to {option.maximum}"
    try:
        value = int(text)
    except ValueError:
        raise option.refuse(text, wanted) from None
    if not option.minimum <= value <= option.maximum:
        raise option.refuse(text, wanted)
    return value


def _boolean(option: Option, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise option.refuse(text, "true or false")
    return text.lower() == "true"


def _duration_ms(option: Option, text: str) -> int:
    """Read ``90s``, ``15m``, ``1h``, ``250 ms``; a number alone is milliseconds."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(digits) :].strip() or "ms"
    if not digits.isdecimal() or unit not in _UNITS_MS:
        raise option.refuse(text, f"a time such as 15m; units are {', '.join(_UNITS_MS)}")
    return int(digits) * _UNITS_MS[unit]


def _choice(option: Option, text: str) -> str:
    if text.lower() not in option.choices:
        raise option.refuse(text, " or ".join(option.choices))
    return text.lower()


_READERS: Final[Mapping[Kind, Callable[[Option, str], Any]]] = {
    Kind.TEXT: lambda option, text: text,
    Kind.NUMBER: _number,
    Kind.BOOLEAN: _boolean,
    Kind.DURATION: _duration_ms,
    Kind.CHOICE: _choice,
}

T, N, B, D, C = Kind.TEXT, Kind.NUMBER, Kind.BOOLEAN, Kind.DURATION, Kind.CHOICE

OPTIONS: Final[tuple[Option, ...]] = (
    # Where, and what.
    Option("nameServer", Use.ALL, T, None, "name servers, `host:port;host:port`, or a page that names them; required",
           ("rocketmq.nameserver", "nameserver.addr", "namesrvAddr")),
    Option("subscribe", Use.SOURCE, T, None, "topics to read, separated by commas", ("topics",)),
    Option("subscribePattern", Use.SOURCE, T, None, "a regular expression that whole topic names must match"),
    Option("assign", Use.SOURCE, T, None, 'queues to read, `{"T":{"broker-a":[0,1]}}`'),
    Option("topic", Use.ALL, T, None, "sink: the topic of all rows, whatever the column `topic` says; source: alias of "
           "`subscribe`"),
    Option("group", Use.ALL, T, None, "the consumer group of `committed` offsets and of the mirror; the producer group "
           "of the sink", ("kafka.group.id", "consumer.group", "producer.group")),
    Option("accessKey", Use.ALL, T, None, "for brokers that check who asks (ACL), with `secretKey`"),
    Option("secretKey", Use.ALL, T, None, "requests are signed with it; it is not sent"),
    Option("securityToken", Use.ALL, T, None, "a token of a session, if the keys belong to one"),
    Option("tls", Use.ALL, B, False, "connections have TLS; files are looked for on the driver and on every executor"),
    Option("tls.caFile", Use.ALL, T, None, "PEM file with the authorities to trust; the system's when absent"),
    Option("tls.verify", Use.ALL, B, True, "check servers' certificates; without it anybody may listen in"),
    Option("tls.checkHostname", Use.ALL, B, True, "servers' certificates must have the host name or address that is "
           "connected to"),
    Option("tls.certFile", Use.ALL, T, None, "PEM file with the certificate to show to servers that ask for one"),
    Option("tls.keyFile", Use.ALL, T, None, "PEM file with its key; the same file when absent"),
    Option("tls.keyPassword", Use.ALL, T, None, "password of that key"),
    # From where to where.
    Option("startingOffsets", Use.SOURCE, T, None, "`earliest`, `latest`, `committed` (the group's offsets) or "
           '`{"T":{"broker-a":{"0":42}}}` with -2 earliest, -1 latest; batch: earliest, stream: latest'),
    Option("endingOffsets", Use.BATCH, T, "latest", "as `startingOffsets`; a range ends before its ending offset"),
    Option("startingTimestamp", Use.SOURCE, T, None, "ms since 1970 or ISO 8601: the first message stored then or "
           "later, in all queues"),
    Option("endingTimestamp", Use.BATCH, T, None, "as `startingTimestamp`"),
    Option("startingOffsetsByTimestamp", Use.SOURCE, T, None, 'timestamps by queue, `{"T":{"broker-a":{"0":'
           '1700000000000}}}`, or by topic, `{"T":1700000000000}`'),
    Option("endingOffsetsByTimestamp", Use.BATCH, T, None, "as `startingOffsetsByTimestamp`"),
    Option("startingOffsetsByTimestampStrategy", Use.SOURCE, C, "error", "where a queue begins that has nothing stored "
           "at the timestamp or later", choices=("error", "latest")),
    Option("failOnDataLoss", Use.SOURCE, B, True, "fail when messages to be read are gone; else warn and go on"),
    # What of it.
    Option("subExpression", Use.SOURCE, T, None, "tags, `TagA || TagB`: filtered at the broker, checked by exact text "
           "on the executors"),
    Option("sqlExpression", Use.SOURCE, T, None, "an SQL92 filter on properties, evaluated by the broker",
           ("filter.sql",)),
    Option("columns", Use.SOURCE, T, None, "the columns to build, separated by commas; others cost nothing"),
    Option("includeProperties", Use.SOURCE, B, False, "add the column `properties` (a map)", ("includeHeaders",)),
    Option("decode", Use.SOURCE, C, "raw", "type of the column `body`: binary, or string", choices=("raw", "utf8")),
    Option("where", Use.SOURCE, T, None, "conditions on `topic`, `queueId`, `offset`, `tags` and `storeTimestamp`, "
           "joined by AND, that leave messages out before rows are made of them; tags at the broker"),
    Option("dedup", Use.SOURCE | Use.SINK, B, False, "sink: keys made of query, batch, partition and row instead of "
           "random ones, so that a repeated row has the same key; source: drop repeats of such keys"),
    Option("dedupLookback", Use.SOURCE, D, None, "how long before the first message of a range its rows' first copies "
           "are looked for, `2d` say; not set: in all that the broker still holds"),
    # How much at once.
    Option("minPartitions", Use.SOURCE, N, None, "split large queue ranges until there are so many partitions",
           minimum=1, maximum=1_000_000),
    Option("maxRecordsPerPartition", Use.SOURCE, N, None, "split queue ranges above so many offsets", minimum=1),
    Option("maxOffsetsPerTrigger", Use.STREAM, N, None, "at most so many offsets per micro-batch, shared out by "
           "backlog", minimum=1),
    Option("maxBytesPerTrigger", Use.STREAM, N, None, "at most about so many bytes per micro-batch, by the mean "
           "record size read so far", minimum=1),
    Option("minOffsetsPerTrigger", Use.STREAM, N, None, "wait until so many offsets are there", minimum=1),
    Option("maxTriggerDelay", Use.STREAM, D, 900_000, "but not longer than this since the last micro-batch"),
    Option("commitOffsets", Use.STREAM, B, False, "mirror progress to `group`, so that its lag shows in mqadmin; "
           "Spark's checkpoint remains what a restart goes by"),
    # How.
    Option("batchBytes", Use.ALL, N, None, "source: size of an Arrow record batch, 4 MiB by default; sink: size of a "
           "batch to a broker, 1 MiB by default (brokers mostly refuse more than 4 MiB)", minimum=4 << 10,
           maximum=256 << 20),
    Option("pullBatchSize", Use.SOURCE, N, 1024, "messages of one pull at most; the broker's own limit is mostly lower",
           ("pullMaxMessages",), minimum=1, maximum=100_000),
    Option("fetchMaxBytes", Use.SOURCE, N, 8 << 20, "bytes of answers that a task may hold unread", minimum=256 << 10,
           maximum=1 << 30),
    Option("pullsInFlight", Use.SOURCE, N, 16, "pulls that a task keeps under way", minimum=1, maximum=256),
    Option("pollTimeoutMs", Use.ALL, N, 10_000, "how long an answer of a broker may take",
           ("kafkaConsumer.pollTimeoutMs", "pullTimeoutMs"), minimum=100, maximum=600_000),
    Option("numRetries", Use.ALL, N, 30, "how often a call that failed is tried again", ("fetchOffset.numRetries",),
           maximum=10_000),
    Option("retryIntervalMs", Use.ALL, N, 1000, "pause before a call is tried again", ("fetchOffset.retryIntervalMs",),
           maximum=600_000),
    # The sink's.
    Option("sendsInFlight", Use.SINK, N, 8, "batches that a task keeps under way", minimum=1, maximum=256),
    Option("maxMessagesPerSecond", Use.SINK, N, None, "a task sends at most so many messages per second", minimum=1),
    Option("compression", Use.SINK, C, "none", "codec for bodies of `compressOverBytes` and more",
           choices=("none", "zlib", "lz4", "zstd")),
    Option("compressOverBytes", Use.SINK, N, 4096, "smaller bodies are sent as they are", maximum=INT32_MAX),
    Option("queryId", Use.SINK, T, None, "the name in the keys of `dedup`; needed in batch writes, where a repeated "
           "job gives the same name and no other job does; a stream has its query id"),
)  # fmt: skip

TLS_OPTIONS: Final = {
    "ca_file": "tls.caFile",
    "verify": "tls.verify",
    "check_hostname": "tls.checkHostname",
    "cert_file": "tls.certFile",
    "key_file": "tls.keyFile",
    "key_password": "tls.keyPassword",
}
"""The options of ClientTls, by its fields."""

# What Spark puts among the options for its own use.
SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "mode"})

_BY_NAME: Final = {name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)}
assert len(_BY_NAME) == sum(1 + len(option.aliases) for option in OPTIONS), "a name or alias stands twice"


def read_options(given: Mapping[str, str], use: Use) -> dict[str, Any]:
    """Return the values of all options by their names, defaults filled in; ``settings`` gives them their types.

    Raises ConfigError for an unknown name (with the nearest known one), a name given twice by way of an alias, an
    option of another use, and a value that is malformed or out of range.
    """
    values: dict[str, Any] = {option.name: option.default for option in OPTIONS}
    seen: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            raise ConfigError(f"unknown option {name!r}" + nearest(name))
        if option.name in seen and seen[option.name] != name:
            raise ConfigError(f"option {option.name} is given twice: as {seen[option.name]!r} and as {name!r}")
        if not option.use & use:
            raise ConfigError(f"option {option.name} means nothing in a {_use_name(use)}")
        seen[option.name] = name
        values[option.name] = option.read(str(text))
    return values


def nearest(name: str) -> str:
    """Return a hint at the known name that is most like *name*, empty if none is."""
    spelled = {known.lower(): known for option in OPTIONS for known in (option.name, *option.aliases)}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"; did you mean {spelled[close[0]]}?" if close else ""


def _use_name(use: Use) -> str:
    return {Use.BATCH: "batch read", Use.STREAM: "stream", Use.SINK: "write"}.get(use, "query")


def option_table(options: Iterable[Option] = OPTIONS) -> str:
    """Return the table of docs/spark.md, Markdown."""
    rows = ["| Option | Used in | Default | Meaning |", "| --- | --- | --- | --- |"]
    for option in options:
        used = ", ".join(str(use.name).lower() for use in (Use.BATCH, Use.STREAM, Use.SINK) if use & option.use)
        default = "" if option.default is None else f"`{_shown(option.default)}`"
        doc = option.doc.replace("|", "\\|")
        if option.choices:
            doc += f" ({', '.join(f'`{choice}`' for choice in option.choices)})"
        if option.aliases:
            doc += f". Also {', '.join(f'`{alias}`' for alias in option.aliases)}"
        rows.append(f"| `{option.name}` | {used} | {default} | {doc} |")
    return "\n".join(rows) + "\n"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    import sys

    sys.stdout.write(option_table())
