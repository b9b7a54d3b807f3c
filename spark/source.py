"""The data source "rocketmq": what ``spark.read.format("rocketmq")`` and its siblings reach.

Spark makes a DataSource in each process that plans or writes, with the options as texts; it is pickled by reference, so
mqcore must be installed on the executors too.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from mqcore.errors import ConfigError
from mqcore.spark.options import Use
from mqcore.spark.schema import SCHEMA, decoder_columns, schema_of
from mqcore.spark.settings import SourceSettings, sink_settings, source_settings

FORMAT = "rocketmq"


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ and mqcore: batch and streaming, reading and writing. The options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read for which the user gave no schema."""
        return default_schema(source_settings(self.options, Use.SOURCE))

    def reader(self, schema: StructType) -> DataSourceReader:
        from mqcore.spark.batch import BatchReader

        settings = source_settings(self.options, Use.BATCH)
        decoder_columns(schema)
        return BatchReader(settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from mqcore.spark.stream import StreamReader

        decoder_columns(schema)
        return StreamReader(source_settings(self.options, Use.STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mqcore.spark.sink import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(sink_settings(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from mqcore.spark.sink import new_stream_writer

        _refuse_overwrite(overwrite)
        return new_stream_writer(sink_settings(self.options), schema)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError("a topic cannot be overwritten: use the mode append")


def default_schema(settings: SourceSettings) -> StructType:
    """Return the columns that the options ask for: ``columns``, or all usual ones, the map of properties only when
    ``includeProperties`` says so, because it costs more than all others together."""
    if settings.columns is not None:
        names = [name.strip() for name in settings.columns.split(",") if name.strip()]
        if not names:
            raise ConfigError("option columns: got no name")
    else:
        names = [name for name in SCHEMA.names if name != "properties" or settings.include_properties]
    schema = schema_of(names)
    if settings.decode == "utf8":
        from pyspark.sql.types import StringType, StructField

        fields = [StructField("body", StringType()) if field.name == "body" else field for field in schema.fields]
        schema = StructType(fields)
    return schema
