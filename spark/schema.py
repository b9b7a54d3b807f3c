"""The rows that mqcore's Spark sources give: Spark's types for the one table of columns.

Importing this costs nothing beyond pyspark.sql.types. Every column may be null, as with Spark's Kafka source: so that a
frame that was read can be written, and united with others, without a complaint about nullability.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mqcore.errors import ConfigError
from mqcore.store.message_columns import COLUMNS, Column, ColumnKind

QUEUE_OFFSET_ALIAS: Final = "queueOffset"
"""The old connector's name of the column ``offset``."""

SPARK_TYPES: Final[dict[ColumnKind, DataType]] = {
    ColumnKind.INT32: IntegerType(),
    ColumnKind.INT64: LongType(),
    ColumnKind.TIMESTAMP: TimestampType(),
    ColumnKind.STRING: StringType(),
    ColumnKind.BINARY: BinaryType(),
    ColumnKind.MAP: MapType(StringType(), StringType(), True),
}
# A binary column may be asked for as text: its bytes are then taken for UTF-8.
ALSO_ALLOWED: Final[dict[ColumnKind, DataType]] = {ColumnKind.BINARY: StringType()}

ALL_COLUMNS: Final[dict[str, Column]] = {column.spark_name: column for column in COLUMNS} | {
    QUEUE_OFFSET_ALIAS: next(column for column in COLUMNS if column.name == "queue_offset")
}
_BY_LOWER_NAME: Final = {name.lower(): name for name in ALL_COLUMNS}


def find_column(name: str) -> Column:
    """Return the column that Spark calls *name*, in whatever case. Raises ConfigError."""
    spelled = _BY_LOWER_NAME.get(name.lower())
    if spelled is None:
        raise ConfigError(f"column {name!r}: wanted one of {', '.join(ALL_COLUMNS)}")
    return ALL_COLUMNS[spelled]


def schema_of(names: Iterable[str]) -> StructType:
    """Return the schema of the columns called *names* in Spark, in this order. Raises ConfigError."""
    fields = [
        StructField(_BY_LOWER_NAME.get(name.lower(), name), SPARK_TYPES[find_column(name).kind], True) for name in names
    ]
    doubles = {field.name for field in fields if [other.name for other in fields].count(field.name) > 1}
    if doubles or not fields:
        raise ConfigError(
            f"columns: {', '.join(sorted(doubles)) or 'nothing'} named {'twice' if doubles else 'at all'}"
        )
    return StructType(fields)


SCHEMA: Final[StructType] = schema_of(column.spark_name for column in COLUMNS if column.by_default)


def is_allowed(kind: ColumnKind, wanted: DataType) -> bool:
    """Whether a column of *kind* can be given as the Spark type *wanted*; whether map values may be null is all one."""
    if isinstance(wanted, MapType):
        wanted = MapType(wanted.keyType, wanted.valueType, True)
    return wanted in (SPARK_TYPES[kind], ALSO_ALLOWED.get(kind))


def decoder_columns(schema: StructType) -> list[str]:
    """Return the decoder's names of the columns of *schema*, which a user may have given, each once, in its order.

    Raises ConfigError, naming the column, for one that does not exist or cannot be given as the type that is asked for.
    """
    names: list[str] = []
    for field in schema.fields:
        column = find_column(field.name)
        if not is_allowed(column.kind, field.dataType):
            allowed = [SPARK_TYPES[column.kind], ALSO_ALLOWED.get(column.kind)]
            wanted = " or ".join(kind.simpleString() for kind in allowed if kind is not None)
            raise ConfigError(f"column {field.name}: got type {field.dataType.simpleString()}, wanted {wanted}")
        if column.name not in names:
            names.append(column.name)
    return names
