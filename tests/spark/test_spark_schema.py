"""Schemas and record batches: the columns as Spark types, and batches with exactly the schema that Spark makes."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from mqcore.errors import ConfigError
from mqcore.spark.arrow import arrow_schema, to_record_batch
from mqcore.spark.schema import ALL_COLUMNS, SCHEMA, decoder_columns, schema_of
from mqcore.store.columns import COLUMNS, ColumnDecoder
from tests.unit.test_store_columns import VARIED, lay_out, make_record


def batch_of(schema: StructType, data: bytes, **options: object) -> pa.RecordBatch:
    decoder = ColumnDecoder(decoder_columns(schema), **options)  # type: ignore[arg-type]
    decoder.feed(data)
    return to_record_batch(decoder.take(), schema, arrow_schema(schema))


def test_the_default_schema_has_the_default_columns_in_order():
    assert SCHEMA.fieldNames() == [column.spark_name for column in COLUMNS if column.by_default]
    assert SCHEMA.simpleString() == (
        "struct<topic:string,brokerName:string,queueId:int,offset:bigint,msgId:string,tags:string,keys:string,"
        "body:binary,properties:map<string,string>,bornTimestamp:timestamp,storeTimestamp:timestamp,bornHost:string,"
        "reconsumeTimes:int,sysFlag:int>"
    )


def test_a_batch_of_every_column_has_the_schema_that_spark_makes():
    schema = schema_of(ALL_COLUMNS)
    batch = batch_of(schema, lay_out(VARIED[:10]), broker_name="broker-a")
    assert batch.schema.equals(arrow_schema(schema), check_metadata=True)
    batch.validate(full=True)
    assert batch.num_rows == 10
    assert batch.column("offset") == batch.column("queueOffset")


def test_values_arrive_as_they_were():
    batch = batch_of(SCHEMA, lay_out([make_record(3), make_record(1, properties=b"")]), broker_name="broker-a")
    first, second = batch.to_pylist()
    assert first["topic"] == "Orders"
    assert first["body"] == b"body 3"
    assert dict(first["properties"]) == {"TAGS": "T1", "KEYS": "k3 all", "UNIQ_KEY": "U00003"}
    assert first["bornTimestamp"] == datetime.datetime.fromtimestamp(1_700_000_000.003, datetime.UTC)
    assert (first["tags"], second["tags"]) == ("T1", None)
    assert second["properties"] == []
    assert first["brokerName"] == second["brokerName"] == "broker-a"


def test_an_empty_batch_has_the_schema_too():
    batch = batch_of(SCHEMA, b"")
    assert batch.num_rows == 0
    assert batch.schema.equals(arrow_schema(SCHEMA))


def test_a_body_may_be_asked_for_as_text():
    schema = StructType([StructField("body", StringType()), StructField("OFFSET", LongType(), False)])
    assert decoder_columns(schema) == ["body", "queue_offset"]
    batch = batch_of(schema, lay_out([make_record(1)]))
    assert batch.to_pylist() == [{"body": "body 1", "OFFSET": 1}]
    assert batch.schema.equals(arrow_schema(schema))
    with pytest.raises(ConfigError, match="not UTF-8"):
        batch_of(schema, lay_out([make_record(1, body=b"\xff")]))


@pytest.mark.parametrize(
    ("field", "match"),
    [
        (StructField("ofset", LongType()), "'ofset'"),
        (StructField("offset", StringType()), "offset: got type string, wanted bigint"),
        (StructField("topic", BinaryType()), "topic: got type binary, wanted string"),
        (StructField("properties", MapType(StringType(), LongType())), "properties: got type"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_by_name(field, match):
    with pytest.raises(ConfigError, match=match):
        decoder_columns(StructType([field]))


def test_properties_without_null_values_may_be_asked_for():
    schema = StructType([StructField("properties", MapType(StringType(), StringType(), False))])
    assert batch_of(schema, lay_out([make_record(1)])).schema.equals(arrow_schema(schema))


@pytest.mark.parametrize("names", [[], ["topic", "topic"], ["topic", "nothing"]])
def test_column_lists_that_cannot_be_are_refused(names):
    with pytest.raises(ConfigError, match="column"):
        schema_of(names)
