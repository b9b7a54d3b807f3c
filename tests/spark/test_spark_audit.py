"""The audit: on a store in good state it finds nothing, and it finds each kind of damage, where it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from mqcore.codes import SysFlag
from mqcore.spark.arrow import arrow_schema, to_record_batch
from mqcore.spark.jobs import audit
from mqcore.spark.jobs.audit_checks import PartAudit, messages_of
from mqcore.spark.jobs.audit_report import StoreReport, make_report, table
from mqcore.spark.schema import SCHEMA, decoder_columns, schema_of
from mqcore.store.columns import ColumnDecoder
from mqcore.store.reader import StoreReader
from mqcore.store.recovery import Recovery
from tests.compat.make_apache_store import ARCHIVE
from tests.unit.store_builder import GEOMETRY, StoreBuilder, memory_directory
from tests.unit.test_store_reader import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
SUBMIT_DEADLINE_S = 180.0
KINDS = ("clean", "killed")


@pytest.fixture
def store() -> Iterator[StoreBuilder]:
    with memory_directory() as directory:
        builder = StoreBuilder(directory / "store")
        fill(builder, 120)
        yield builder


def audited(store: StoreBuilder, batch_rows: int = 7, parts: int = 3) -> StoreReport:
    """The report on *store*, its tasks run here one after the other."""
    schema = schema_of(audit.COLUMNS)
    notes = []
    with StoreReader(store.paths.root) as reader:
        segments = reader.segments()
        for number in range(parts):
            own = segments[len(segments) * number // parts : len(segments) * (number + 1) // parts]
            decoder = ColumnDecoder(decoder_columns(schema), batch_rows=batch_rows, decompress=False)
            part = PartAudit()
            for batch in reader.read_segments(own, decoder, "skip"):
                part.add(messages_of(to_record_batch(batch, schema, arrow_schema(schema))))
            notes += part.finish()
        bounds = (reader.extent.start, reader.extent.end)
        return make_report("here", bounds, notes, (), lambda start: audit.behind_filler(reader, start))


def found(report: StoreReport) -> list[tuple[str, str | None, int | None, int, int]]:
    return [(one.kind, one.topic, one.queue_id, one.start, one.end) for one in report.findings]


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
@pytest.mark.parametrize("parts", [1, 4])
def test_nothing_is_found_on_a_store_in_good_state(store, batch_rows, parts):
    report = audited(store, batch_rows, parts)
    assert found(report) == []
    assert report.is_clean
    assert report.messages == 120
    totals = {topic.topic: (topic.messages, topic.queues) for topic in report.topics}
    names = [record.topic.decode() for record in store.records]
    assert {name: count for name, (count, _) in totals.items()} == {name: names.count(name) for name in set(names)}
    assert sum(topic.size for topic in report.topics) == sum(record.total_size for record in store.records)
    times = [record.store_timestamp for record in store.records if record.topic == b"Orders"]
    orders = next(topic for topic in report.topics if topic.topic == "Orders")
    assert (orders.first_time, orders.last_time) == (times[0], times[-1])


def test_a_gap_a_repeat_and_disorder_are_told_apart(store):
    end = store.next_offsets["Orders", 0]
    store.append("Orders", 0, queue_offset=end + 3)
    store.append("Orders", 0, queue_offset=end + 4)
    store.append("Orders", 0, queue_offset=end + 1)
    store.append("Orders", 0, queue_offset=end + 5)
    store.append("Orders", 0, queue_offset=end + 5)
    report = audited(store, parts=1)
    assert found(report) == [
        ("order", "Orders", 0, end + 1, end + 2),
        ("order", "Orders", 0, end + 5, end + 6),
        ("gap", "Orders", 0, end, end + 1),
        ("gap", "Orders", 0, end + 2, end + 3),
        ("repeat", "Orders", 0, end + 5, end + 6),
    ]
    orders = next(topic for topic in report.topics if topic.topic == "Orders")
    assert (orders.missing, orders.disordered, orders.repeated) == (2, 2, 1)
    assert not report.is_clean


def test_records_that_no_queue_counts_are_no_disorder(store):
    for flag in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK):
        store.append("Orders", 0, sys_flag=int(flag))
    store.append("Orders", 0, sys_flag=int(SysFlag.TRANSACTION_COMMIT))
    report = audited(store)
    assert found(report) == []
    assert report.messages == 123


def test_a_body_that_differs_from_its_crc_is_named(store):
    bad = next(record for record in store.records[40:] if record.body)
    store.flip(bad.physical_offset + 88)
    topic = bad.topic.decode()
    assert found(audited(store)) == [("crc", topic, bad.queue_id, bad.queue_offset, bad.queue_offset + 1)]


@pytest.mark.parametrize("where", ["middle", "end", "start"])
def test_damaged_ranges_and_the_messages_in_them_are_found(store, where):
    size = GEOMETRY.commit_log_file_size
    starts = [number for number, record in enumerate(store.records) if record.physical_offset % size == 0]
    number = {"middle": starts[1] + 3, "end": starts[2] - 1, "start": starts[1]}[where]
    bad = store.records[number]
    store.write(bad.physical_offset + 4, b"\0\0\0\0")
    report = audited(store)
    damage = [one for one in report.findings if one.kind == "damage"]
    end = 2 * size if where == "end" else bad.physical_offset + bad.total_size
    assert [(one.start, one.end) for one in damage] == [(bad.physical_offset, end)]
    assert report.messages == 119
    assert not report.is_clean
    assert report.damaged_bytes == end - bad.physical_offset


def test_steps_of_the_clock_are_noted_but_are_no_damage(store):
    store.append("Orders", 0, store_timestamp=store.timestamp - 60_000)
    report = audited(store)
    assert [one.kind for one in report.findings] == ["clock"]
    assert report.clock_steps == 1
    assert report.is_clean


def test_the_table_has_a_line_for_each_topic(store):
    report = audited(store)
    lines = table(report).splitlines()
    assert lines[0].startswith("store here, log [0, ")
    assert [line.split()[0] for line in lines[2:-1]] == [topic.topic for topic in report.topics]
    assert lines[-1].endswith("clean")


# As a program


def run(spark: SparkSession, store: Path, *more: str) -> int:
    return audit.main(["--store", str(store), *more], spark)


def test_the_program_reports_and_says_by_its_exit_code_what_it_found(spark, store, tmp_path, capsys):
    store.append("Orders", 0, UNIQ_KEY="U000001")
    store.append("Orders", 0, UNIQ_KEY="U000001")
    store.crash()
    Recovery(store.paths, GEOMETRY).run()
    arguments = ("--json", str(tmp_path / "a.json"), "--min-partitions", "3", "--strict")
    assert run(spark, store.paths.root, *arguments) == audit.NOT_CLEAN
    [report] = json.loads((tmp_path / "a.json").read_text())
    assert report["is_clean"]
    assert report["messages"] == 122
    keys = [one for one in report["findings"] if one["kind"] == "key"]
    own = sum("U000001" in r.properties.decode() and r.topic == b"Orders" for r in store.records)
    assert [(one["topic"], one["count"]) for one in keys] == [("Orders", own)]
    out, err = capsys.readouterr()
    assert "Orders" in out
    assert "have the unique key U000001" in out
    assert f"audit of {store.paths.root}: done" in err
    bad = next(record for record in store.records[40:] if record.body)
    store.flip(bad.physical_offset + 88)
    code = run(spark, store.paths.root, "--no-keys", "--quiet", "--parquet", str(tmp_path / "out"))
    assert code == audit.NOT_CLEAN
    findings = spark.read.parquet(str(tmp_path / "out" / "findings")).collect()
    assert [(row.kind, row.topic, row.start) for row in findings] == [("crc", bad.topic.decode(), bad.queue_offset)]
    topics = spark.read.parquet(str(tmp_path / "out" / "topics"))
    assert topics.where("crc_errors = 1").count() == 1
    assert capsys.readouterr().out == ""


def test_what_cannot_be_read_and_wrong_arguments_are_exit_code_2(spark, tmp_path, capsys):
    assert run(spark, tmp_path) == audit.WRONG_USE
    assert "not the directory of a store" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        audit.main(["--store", "/a", "--store", "/b", "--commit-log", "/c"], spark)
    assert caught.value.code == audit.WRONG_USE


@pytest.mark.compat
@pytest.mark.parametrize("kind", ["either", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS)])
def test_a_store_of_apaches_broker_is_clean(spark, tmp_path, kind, chance):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / (chance.choice(KINDS) if kind == "either" else kind)
    assert run(spark, store, "--quiet", "--json", str(tmp_path / "report.json")) == audit.CLEAN
    [report] = json.loads((tmp_path / "report.json").read_text())
    assert report["messages"] > 50


@pytest.mark.slow
def test_the_program_runs_under_spark_submit(spark_environment, store, tmp_path):
    # Not the script beside the interpreter: it is not there where the package comes from elsewhere on the path.
    home = Path(pyspark.__file__).parent
    submit = home / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[2]", str(ROOT / "spark" / "jobs" / "audit.py")]
    command += ["--store", str(store.paths.root), "--json", str(tmp_path / "report.json")]
    environment = os.environ | spark_environment | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=SUBMIT_DEADLINE_S)
    assert done.returncode == audit.CLEAN, done.stderr.decode()
    assert json.loads((tmp_path / "report.json").read_text())[0]["messages"] == 120


def test_the_audit_reads_no_column_that_it_does_not_need() -> None:
    assert "body" in SCHEMA.names
    assert "body" not in audit.COLUMNS
