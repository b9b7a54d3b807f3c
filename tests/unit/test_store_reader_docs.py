"""docs/store-reader.md: its examples run, its tables are those of the code. And batches in pandas, polars, Arrow."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.store.message_columns import COLUMNS
from mqcore.store.reader import StoreReader
from mqcore.store.recovery import Recovery
from tests.unit.store_builder import FIRST_TIMESTAMP, GEOMETRY, StoreBuilder, memory_directory
from tests.unit.test_store_reader import fill

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "store-reader.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def column_rows() -> list[str]:
    return [
        f"| `{column.name}`{mark} | `{column.spark_name}` | {column.kind.value} | {column.doc} |"
        for column in COLUMNS
        for mark in ["*" if column.by_default else ""]
    ]


@pytest.fixture(scope="module")
def store() -> Iterator[StoreBuilder]:
    with memory_directory() as directory:
        builder = StoreBuilder(directory / "store")
        fill(builder)
        builder.crash()
        Recovery(builder.paths, GEOMETRY).run()
        yield builder


def test_the_examples_run_one_after_the_other(store, capsys):
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    names: dict[str, Any] = {}
    assert len(EXAMPLES) == 6
    for example in EXAMPLES:
        assert '"/var/store"' in example
        exec(compile(example.replace('"/var/store"', repr(str(store.paths.root))), PAGE.name, "exec"), names)
        assert capsys.readouterr().out.strip()


def test_the_table_of_columns_is_that_of_the_code():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `") and line.count("|") == 5]
    assert rows[: len(COLUMNS)] == column_rows()


def test_reading_needs_neither_spark_nor_arrow(store):
    """As on a machine that has NumPy alone."""
    code = (
        "import sys\n"
        "for name in ('pyarrow', 'pyspark', 'pandas', 'polars'): sys.modules[name] = None\n"
        "from mqcore.store.reader import StoreReader\n"
        f"with StoreReader({str(store.paths.root)!r}) as store:\n"
        "    print(sum(len(batch.to_dict()['properties']) for batch in store.batches()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == len(store.records)


def test_values_become_those_of_python(store):
    with StoreReader(store.paths.root) as reader:
        [batch] = reader.batches(
            ["topic", "queue_offset", "tags", "body", "properties", "store_timestamp", "broker_name"], topics="Rare"
        )
    own = [record for record in store.records if record.topic == b"Rare"]
    columns = batch.to_dict()
    assert columns["topic"] == ["Rare"] * len(own)
    assert columns["queue_offset"].tolist() == [record.queue_offset for record in own]
    assert columns["body"] == [record.body for record in own]
    assert columns["tags"] == [record.properties.split(b"\x02")[0][5:].decode() for record in own]
    assert columns["broker_name"] == [None] * len(own)
    assert columns["properties"][0]["KEYS"] == "k17"
    time = datetime.datetime.fromtimestamp((FIRST_TIMESTAMP + 17_000) / 1000, datetime.UTC).replace(tzinfo=None)
    assert columns["store_timestamp"][0].item() == time


def test_arrow_has_the_same_values_without_a_copy(store):
    pa = pytest.importorskip("pyarrow")
    with StoreReader(store.paths.root) as reader:
        [batch] = reader.batches([column.name for column in COLUMNS])
    record_batch = batch.to_arrow()
    record_batch.validate(full=True)
    columns = batch.to_dict()
    for name in ("topic", "body", "tags", "broker_name", "store_host"):
        assert record_batch.column(name).to_pylist() == columns[name]
    assert [dict(pairs) for pairs in record_batch.column("properties").to_pylist()] == columns["properties"]
    assert record_batch.schema.field("store_timestamp").type == pa.timestamp("us", tz="UTC")
    for name in ("queue_offset", "body"):
        data = record_batch.column(name).buffers()[-1]
        assert data.address == batch.columns[name].values.ctypes.data
    assert batch.nbytes > 0


def test_pandas_and_polars_take_the_columns_as_they_are(store):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    with StoreReader(store.paths.root) as reader:
        [batch] = reader.batches(["topic", "queue_offset", "tags", "body", "store_timestamp"])
    frame = pandas.DataFrame(batch.to_dict())
    assert frame["queue_offset"].sum() == sum(record.queue_offset for record in store.records)
    table = polars.DataFrame(batch.to_dict())
    assert table.schema["body"] == polars.Binary
    assert table.schema["topic"] == polars.String
    assert table["body"].to_list() == [record.body for record in store.records]
