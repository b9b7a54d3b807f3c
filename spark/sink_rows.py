"""The rows of a task, cut into batches for the queues they go to.

Columns: ``body`` (or ``value``) is all that must be there. ``topic``, ``tags``, ``keys``, ``properties``, ``queueId``
and ``brokerName``, ``shardingKey``, ``flag``, ``delayLevel``, ``deliverTimestamp`` may be. Rows without a queue or a
sharding key take turns, batch by batch. Other columns of the source (offset, msgId, times) are ignored, so that what
was read can be written; unknown ones are an error.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from mqcore.errors import ConfigError
from mqcore.protocol import properties as names
from mqcore.protocol.batch_encoder import Fault
from mqcore.protocol.compression import CompressionType, compress
from mqcore.protocol.hashing import java_string_hash
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import validate_topic
from mqcore.spark.encoder import BatchEncoder, maps_of, texts_of
from mqcore.spark.errors import SinkError
from mqcore.spark.pace import Pace
from mqcore.spark.schema import ALL_COLUMNS
from mqcore.spark.sending import Sender, Work
from mqcore.spark.settings import SinkSettings
from mqcore.spark.sink_keys import ROWS_MAX, TaskKeys, UniqueIds

TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""The property by which RocketMQ 5 delivers at a time, ms since 1970. RocketMQ 4 and mqcore deliver at once."""

NO_QUEUE: Final = -1

TEXT: Final[tuple[type[DataType], ...]] = (StringType, BinaryType)
WHOLE: Final[tuple[type[DataType], ...]] = (ByteType, ShortType, IntegerType, LongType)
COLUMN_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": TEXT,
    "value": TEXT,
    "topic": (StringType,),
    "tags": (StringType,),
    "keys": (StringType,),
    "properties": (MapType,),
    "queueId": WHOLE,
    "brokerName": (StringType,),
    "shardingKey": (StringType,),
    "flag": WHOLE,
    "delayLevel": WHOLE,
    "deliverTimestamp": (TimestampType, TimestampNTZType, LongType),
}
PROPERTY_COLUMNS: Final = {
    "tags": names.PROPERTY_TAGS,
    "keys": names.PROPERTY_KEYS,
    "shardingKey": names.PROPERTY_SHARDING_KEY,
}


def check_schema(schema: StructType, settings: SinkSettings) -> None:
    """Raise ConfigError for a column that is missing, unknown or of a type that cannot be meant."""
    for field in schema.fields:
        wanted = COLUMN_TYPES.get(field.name)
        if wanted is None:
            if field.name in ALL_COLUMNS:
                continue
            close = difflib.get_close_matches(field.name, [*COLUMN_TYPES, *ALL_COLUMNS], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"column {field.name!r} means nothing to the sink{hint}")
        if not isinstance(field.dataType, wanted):
            allowed = " or ".join(kind.typeName() for kind in wanted)
            raise ConfigError(f"column {field.name}: got {field.dataType.simpleString()}, wanted {allowed}")
    if not {"body", "value"} & set(schema.names):
        raise ConfigError("the sink needs a column body (or value)")
    if settings.topic is None and "topic" not in schema.names:
        raise ConfigError("the sink needs a column topic, or the option topic")
    if settings.topic is not None and (fault := validate_topic(settings.topic)):
        raise ConfigError(f"option topic: got {settings.topic!r}: {fault}")
    if settings.dedup and {"delayLevel", "deliverTimestamp"} & set(schema.names):
        raise ConfigError("option dedup: delayed messages arrive in another order than they are sent, which the guard "
                          "against repeats would take for repeats")  # fmt: skip


class TaskRows:
    """Sends the record batches of one task. Used in a ``with``."""

    def __init__(self, settings: SinkSettings, partition: int, keys: TaskKeys) -> None:
        self._settings = settings
        self._partition = partition
        self._keys = keys
        self._ids: dict[tuple[str, int], UniqueIds] = {}  # by topic and way
        self._sender = Sender(settings, partition)
        self._turn: dict[str, int] = {}
        self._queues: dict[str, list[MessageQueue]] = {}
        self._named: defaultdict[str, list[MessageQueue]] = defaultdict(list)  # of brokers that rows waited for
        self._pace = Pace(settings.max_messages_per_second)
        self._row = 0  # of the task, where the record batch in hand begins
        self._portion: int | None = None  # the rows of the first record batch: what Spark hands over at a time
        self._codec = None if settings.compression == "none" else CompressionType[settings.compression.upper()]

    @property
    def stored(self) -> int:
        return self._sender.stored

    def __enter__(self) -> Self:
        self._sender.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sender.__exit__(kind, error, traceback)

    def finish(self) -> None:
        """Wait until all is stored. Raises SinkError."""
        self._sender.finish()

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of *batch*, in their order for each queue. Raises SinkError, which names the row."""
        if self._portion is None:
            self._portion = batch.num_rows
        if self._settings.dedup and batch.num_rows > ROWS_MAX - self._row:
            raise self._error(0, "", f"option dedup: the keys of a task hold {ROWS_MAX} rows and no more")
        columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        single = self._singles(columns, batch.num_rows)
        for topic, rows in self._by_topic(columns, batch.num_rows):
            for queue, some in self._by_queue(topic, columns, rows):
                alone = single[some]
                if not alone.all():
                    self._send_batches(columns, topic, queue, some[~alone])
                if alone.any():
                    self._send_singles(columns, topic, queue, some[alone])
        self._row += batch.num_rows

    # What goes where.

    def _by_topic(self, columns: dict[str, pa.Array], count: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
        everything = np.arange(count, dtype=np.int64)
        if self._settings.topic is not None:
            yield self._settings.topic, everything
            return
        encoded = pc.fill_null(columns["topic"], "").dictionary_encode()
        codes = encoded.indices.to_numpy()
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            rows = everything[codes == code]
            if not topic:
                raise self._error(int(rows[0]), "", "the row has no topic, and the option topic is not set")
            yield topic, rows

    def _by_queue(
        self, topic: str, columns: dict[str, pa.Array], rows: NDArray[np.int64]
    ) -> Iterator[tuple[MessageQueue | None, NDArray[np.int64]]]:
        """Iterate over the queues that rows name, and None for those whose rows take turns."""
        chosen = self._chosen_queues(topic, columns, rows)
        if chosen is None:
            yield None, rows
            return
        for number in np.unique(chosen):
            queues = self._queues_of(topic, int(rows[0])) + self._named[topic]
            yield None if number == NO_QUEUE else queues[number], rows[chosen == number]

    def _chosen_queues(
        self, topic: str, columns: dict[str, pa.Array], rows: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Return, for each row, the place of its queue among the topic's, NO_QUEUE for any; None if all may be any."""
        chosen = np.full(len(rows), NO_QUEUE, dtype=np.int64)
        keys = columns.get("shardingKey")
        if keys is not None:
            encoded = keys.take(pa.array(rows)).dictionary_encode()
            count = len(self._queues_of(topic, int(rows[0])))
            places = [(java_string_hash(key) & 0x7FFFFFFF) % count if key else NO_QUEUE
                      for key in encoded.dictionary.to_pylist()]  # fmt: skip
            codes = pc.fill_null(encoded.indices, len(places)).to_numpy()
            chosen = np.asarray([*places, NO_QUEUE], dtype=np.int64)[codes]
        numbers = columns.get("queueId")
        if numbers is not None:
            wanted = pc.fill_null(numbers.take(pa.array(rows)).cast(pa.int64()), NO_QUEUE).to_numpy()
            for number in np.unique(wanted[wanted != NO_QUEUE]):
                at = wanted == number
                chosen[at] = self._place_of(topic, int(number), columns.get("brokerName"), rows[at])
        return None if (chosen == NO_QUEUE).all() else chosen

    def _place_of(
        self, topic: str, queue_id: int, brokers: pa.Array | None, rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the place of the queue *queue_id* on each row's broker; on the first broker if a row names none.

        A broker that is not there is waited for, as long as the options allow retries. Raises SinkError.
        """
        queues = self._queues_of(topic, int(rows[0])) + self._named[topic]
        places = {queue.broker_name: at for at, queue in enumerate(queues) if queue.queue_id == queue_id}
        if brokers is None:
            named = pa.array([""])
            codes = np.zeros(len(rows), dtype=np.int64)
        else:
            encoded = pc.fill_null(brokers.take(pa.array(rows)), "").dictionary_encode()
            named, codes = encoded.dictionary, encoded.indices.to_numpy()
        by_code = np.zeros(len(named), dtype=np.int64)
        for code, name in enumerate(named.to_pylist()):
            row = int(rows[codes == code][0])
            if name and name not in places:
                found = MessageQueue(topic, name, queue_id)
                self._sender.wait_for(found, self._row + row)
                places[name] = len(queues)
                queues.append(found)
                self._named[topic].append(found)
            elif not places:
                raise self._error(row, topic, f"the topic has no queue {queue_id} to be written to")
            by_code[code] = places[name] if name else min(places.values())
        return by_code[codes]

    def _queues_of(self, topic: str, row: int) -> list[MessageQueue]:
        if topic not in self._queues:
            fault = validate_topic(topic)
            if fault:
                raise self._error(row, topic, fault)
            self._queues[topic] = list(self._sender.queues(topic, self._row + row))
        return self._queues[topic]

    def _next_queue(self, topic: str, row: int) -> MessageQueue:
        """Return the queue whose turn it is. Tasks begin at different ones, and a repeated task at the same again."""
        queues = self._queues_of(topic, row)
        turn = self._turn.get(topic, self._partition)
        self._turn[topic] = turn + 1
        return queues[turn % len(queues)]

    # Batches.

    def _encoder(
        self, columns: dict[str, pa.Array], topic: str, queue: MessageQueue | None, first: int, *, alone: bool
    ) -> BatchEncoder:
        # What is sent in different ways does not come to a queue in the order of the rows. Each way has keys of its
        # own, so that the rows of a way ascend in each queue, which the guard against repeats counts on.
        way = 2 * alone + (queue is not None)
        if (topic, way) not in self._ids:
            self._ids[topic, way] = self._keys.ids(way, self._layout(topic, first, takes_turns=queue is None))
        ids = self._ids[topic, way]
        flags = columns.get("flag")
        return BatchEncoder(
            texts_of(_bodies(columns)),
            [(name.encode(), texts_of(columns[column])) for column, name in PROPERTY_COLUMNS.items()
             if column in columns],
            maps_of(columns["properties"]) if "properties" in columns else None,
            None if flags is None else pc.fill_null(flags.cast(pa.int32()), 0).to_numpy(),
            id_prefix=ids.prefix.encode(),
            id_base=ids.base + self._row,
            id_suffix=ids.suffix.encode(),
        )  # fmt: skip

    def _layout(self, topic: str, row: int, *, takes_turns: bool) -> list[object]:
        """Return what decides, beside the rows themselves, which queue each row goes to."""
        if not self._settings.dedup:
            return []
        layout: list[object] = [self._settings.compression, self._settings.compress_over_bytes]
        layout += [(queue.broker_name, queue.queue_id) for queue in self._queues_of(topic, row)]
        if takes_turns:
            layout += [self._settings.batch_bytes, self._settings.max_messages_per_second, self._portion]
        return layout

    def _send_batches(
        self, columns: dict[str, pa.Array], topic: str, queue: MessageQueue | None, rows: NDArray[np.int64]
    ) -> None:
        encoder = self._encoder(columns, topic, queue, int(rows[0]), alone=False)
        place = 0
        while place < len(rows):
            encoded = encoder.encode(rows[: self._pace.end(place)], place, self._settings.batch_bytes)
            if encoded.fault:
                raise self._error(int(rows[place]), topic, Fault(encoded.fault).reason)
            row = int(rows[place])
            work = Work(
                queue=queue or self._next_queue(topic, row),
                body=encoded.body,
                row=self._row + row,
                count=encoded.next - place,
                is_pinned=queue is not None or self._settings.dedup,
                properties=names.PROPERTY_WAIT_STORE_MSG_OK + names.NAME_VALUE_SEPARATOR + "true",
            )
            self._sender.submit(work)
            self._pace.wait(work.count)
            place = encoded.next

    # Messages that cannot be in a batch.

    def _singles(self, columns: dict[str, pa.Array], count: int) -> NDArray[np.bool_]:
        """Return which rows go alone: delayed ones, and compressed ones, since a batch has one flag for all."""
        alone = np.zeros(count, dtype=np.bool_)
        for name in ("delayLevel", "deliverTimestamp"):
            if name in columns:
                alone |= pc.is_valid(columns[name]).to_numpy(zero_copy_only=False)
        if self._codec is not None:
            sizes = pc.fill_null(pc.binary_length(_bodies(columns)), 0).to_numpy()
            alone |= sizes >= self._settings.compress_over_bytes
        return alone

    def _send_singles(
        self, columns: dict[str, pa.Array], topic: str, queue: MessageQueue | None, rows: NDArray[np.int64]
    ) -> None:
        encoder = self._encoder(columns, topic, queue, int(rows[0]), alone=True)
        bodies = _bodies(columns)
        for row in rows.tolist():
            text, fault = encoder.properties(row)
            if fault:
                raise self._error(row, topic, Fault(fault).reason)
            body, sys_flag = bodies[row].as_buffer().to_pybytes() if bodies[row].is_valid else b"", 0
            if self._codec is not None and len(body) >= self._settings.compress_over_bytes:
                body, sys_flag = compress(body, self._codec), self._codec.sys_flag
            flag = columns["flag"][row].as_py() if "flag" in columns else 0
            work = Work(
                queue=queue or self._next_queue(topic, row),
                body=body,
                row=self._row + row,
                count=1,
                is_batch=False,
                is_pinned=queue is not None or self._settings.dedup,
                properties=text.decode("utf-8", "replace") + self._delay(columns, row),
                sys_flag=sys_flag,
                flag=flag or 0,
            )
            self._sender.submit(work)
            self._pace.wait(1)

    def _delay(self, columns: dict[str, pa.Array], row: int) -> str:
        """Return the properties of a delay, to be put behind the others."""
        level = columns["delayLevel"][row].as_py() if "delayLevel" in columns else None
        when = columns["deliverTimestamp"][row] if "deliverTimestamp" in columns else None
        if when is not None and when.is_valid:
            if pa.types.is_timestamp(when.type):
                when = when.cast(pa.timestamp("ms", when.type.tz), safe=False).cast(pa.int64())
            return f"{names.PROPERTY_SEPARATOR}{TIMER_DELIVER_MS}{names.NAME_VALUE_SEPARATOR}{when.as_py()}"
        if level:
            return f"{names.PROPERTY_SEPARATOR}{names.PROPERTY_DELAY_TIME_LEVEL}{names.NAME_VALUE_SEPARATOR}{level}"
        return ""

    def _error(self, row: int, topic: str, reason: str) -> SinkError:
        return SinkError(self._partition, self._row + row, topic, -1, reason)


def _bodies(columns: dict[str, pa.Array]) -> pa.Array:
    return columns["body"] if "body" in columns else columns["value"]
