"""The data source "rocketmq-store": the messages of store directories, read from their files, without a broker.

The store may be live, a backup, a copy from a dead machine, mqcore's or Apache's. Partitions are ranges of the commit
log, so that each stored message is one row, whether or not there are consume queues. The ranges end where the log ended
when the query was planned: a live store is read as of then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from mqcore.errors import CorruptFileError, CorruptRecordError, OffsetOutOfRangeError
from mqcore.spark.errors import DataLossError
from mqcore.spark.schema import SCHEMA, decoder_columns, schema_of
from mqcore.spark.store_options import StorePlace, StoreSettings, store_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from mqcore.store.columns import ColumnDecoder, MessageBatch
    from mqcore.store.reader import StoreReader
    from mqcore.store.reader_segments import Segment

FORMAT: Final = "rocketmq-store"

WALKED_FILES_MAX: Final = 8
"""Without consume queues, up to so many files are walked at planning to split them; more are parallel enough whole."""


@dataclass(frozen=True)
class LogRanges(InputPartition):
    """Ranges of one store's commit log, each [start, end) in bytes, in order."""

    place: StorePlace
    ranges: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        return sum(end - start for start, end in self.ranges)


class RocketMQStoreDataSource(DataSource):
    """Store directories as tables. The options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read for which the user gave no schema."""
        return default_schema(store_settings(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = store_settings(self.options)
        decoder_columns(schema)
        return StoreBatchReader(settings, schema)


def default_schema(settings: StoreSettings) -> StructType:
    """Return the columns that the options ask for: all usual ones without a word, properties only if wanted."""
    names = settings.columns
    if names is None:
        names = tuple(name for name in SCHEMA.names if name != "properties" or settings.include_properties)
    schema = schema_of(names)
    if settings.body_as_text:
        fields = [StructField("body", StringType()) if field.name == "body" else field for field in schema.fields]
        return StructType(fields)
    return schema


class StoreBatchReader(DataSourceReader):
    """Reads stores as they are when ``partitions`` is called. Nothing is opened before."""

    def __init__(self, settings: StoreSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the ranges to be read.

        Raises CorruptFileError for a directory that is no store; DataLossError if a file is missing between others and
        the query minds.
        """
        found: list[InputPartition] = []
        for place in self._settings.places:
            with open_store(place) as store:
                found += self._plan(place, store)
        return found

    def _plan(self, place: StorePlace, store: StoreReader) -> list[LogRanges]:
        settings = self._settings
        by_queues = settings.prune_by_queues
        whole = store.segments(self._settings.selection, by_queues=by_queues)
        if settings.fail_on_data_loss:
            try:
                store.check_gaps(whole)
            except CorruptFileError as error:
                raise DataLossError(f"store {place.path}: {error}") from error
        wanted = settings.min_partitions or 1
        size = sum(segment.size for segment in whole)
        size_max = max(1, min(settings.partition_bytes, -(-size // wanted)))
        may_walk = len(whole) < max(wanted, WALKED_FILES_MAX)
        segments = store.segments(self._settings.selection, size_max, by_queues=by_queues, may_walk=may_walk)
        return list(bundled(place, segments, size_max))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Iterate over a partition's rows. Spark makes one partition of none, which has none.

        Raises DataLossError, naming the place, for damage and deleted files if the query minds.
        """
        if not isinstance(partition, LogRanges):
            return
        from mqcore.spark.arrow import arrow_schema, to_record_batch
        from mqcore.store.columns import ColumnDecoder

        wanted = arrow_schema(self._schema)
        settings = self._settings
        with open_store(partition.place) as store:
            decoder = ColumnDecoder(
                decoder_columns(self._schema),
                broker_name=partition.place.broker_name,
                selection=store.alive(settings.selection),
                batch_bytes=settings.batch_bytes,
                decompress=settings.decompress,
                check_crc=settings.check_crc,
            )
            for batch in read_ranges(store, partition, decoder, settings.fail_on_data_loss):
                yield to_record_batch(batch, self._schema, wanted)


def open_store(place: StorePlace) -> StoreReader:
    """Return a reader of the store at *place*; nothing of it is read yet."""
    from mqcore.store.reader import StoreReader

    return StoreReader(place.path, place.commit_log or None)


def bundled(place: StorePlace, segments: Iterable[Segment], size_max: int) -> Iterator[LogRanges]:
    """Give partitions of about *size_max* bytes: small ranges, of small files say, together."""
    ranges: list[tuple[int, int]] = []
    size = 0
    for segment in segments:
        if ranges and size + segment.size > size_max:
            yield LogRanges(place, tuple(ranges))
            ranges, size = [], 0
        ranges.append((segment.start, segment.end))
        size += segment.size
    if ranges:
        yield LogRanges(place, tuple(ranges))


def read_ranges(
    store: StoreReader, partition: LogRanges, decoder: ColumnDecoder, minds: bool
) -> Iterator[MessageBatch]:
    """Give what *decoder* makes of a partition; what cannot be read is an error if the query *minds*, else left out."""
    from mqcore.store.reader_segments import Segment

    segments = [Segment(start, end) for start, end in partition.ranges]
    try:
        yield from store.read_segments(segments, decoder, "raise" if minds else "skip")
    except (CorruptRecordError, OffsetOutOfRangeError) as error:
        raise DataLossError(f"store {partition.place.path}: {error}") from error
