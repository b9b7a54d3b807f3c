"""``mqcore store show`` and ``export``: what a store holds, and its messages as JSON lines and Parquet."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from mqcore.admin.command_line import cli
from mqcore.store.checking import log_part
from mqcore.store.codec import property_value
from mqcore.store.log.record import Record
from mqcore.store.recovery import Recovery
from tests.page_cache import evict, keeps_pages, resident_share
from tests.rows import walked
from tests.suite.seeds import chance_of_run
from tests.unit.store_builder import FIRST_TIMESTAMP, GEOMETRY, STEP_MS, StoreBuilder, memory_directory

COUNT = 150
TOPICS = ("Orders", "Events")
TRIES = 5


@pytest.fixture(scope="module")
def original() -> Iterator[StoreBuilder]:
    chance = chance_of_run("store that is shown")
    with memory_directory() as directory:
        store = StoreBuilder(directory / "store")
        for number in range(COUNT):
            body = chance.randbytes(40) if number % 3 else f"text {number} é".encode()
            store.append(
                TOPICS[number % 5 == 0], number % 2, body, TAGS=f"T{number % 2}", KEYS=f"a{number} b", NAME="ü"
            )
        store.crash()
        Recovery(store.paths, GEOMETRY).run()
        store.paths.abort.unlink()
        yield store


def mqcore(*arguments: object) -> tuple[int, bytes, str]:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout_bytes, done.stderr


def export(store: StoreBuilder, *more: object) -> list[dict[str, Any]]:
    code, out, err = mqcore("store", "export", store.paths.root, "--quiet", *more)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def body_of(line: dict[str, Any]) -> bytes:
    return base64.b64decode(line["bodyBase64"]) if "bodyBase64" in line else line["body"].encode()


def assert_same(lines: list[dict[str, Any]], records: list[Record]) -> None:
    assert [body_of(line) for line in lines] == [record.body for record in records]
    for line, record in zip(lines, records, strict=True):
        assert (line["topic"], line["queueId"], line["offset"]) == (
            record.topic.decode(), record.queue_id, record.queue_offset,
        )  # fmt: skip
        assert line["storeTimestamp"] == record.store_timestamp
        assert line["bornTimestamp"] == record.born_timestamp
        assert line["properties"]["NAME"] == "ü"
        assert line["tag"] == (property_value(record.properties, b"TAGS") or b"").decode()
        assert line["keys"] == (property_value(record.properties, b"KEYS") or b"").decode().split()
        assert ("body" in line) == is_text(record.body)


def is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_what_is_shown_adds_up(original):
    code, out, err = mqcore("store", "show", original.paths.root, "--output", "json")
    assert code == 0, err
    shown = json.loads(out)
    total = sum(record.total_size for record in original.records)
    assert shown["endOffset"] == original.end
    for section in ("segments", "topics", "queues"):
        assert sum(one["messages"] for one in shown[section]) == COUNT
        assert sum(one["bytes"] for one in shown[section]) == total
    assert [one["topic"] for one in shown["topics"]] == ["Orders", "Events"]
    queues = {(one["topic"], one["queueId"]): (one["minOffset"], one["maxOffset"]) for one in shown["queues"]}
    assert queues == {key: (0, end) for key, end in original.next_offsets.items()}
    assert shown["segments"][0]["firstStored"] == "2023-11-14T22:13:20.000Z"
    files = sorted({record.physical_offset // GEOMETRY.commit_log_file_size for record in original.records})
    assert [one["startOffset"] // GEOMETRY.commit_log_file_size for one in shown["segments"]] == files
    # By its log alone it holds the same.
    with memory_directory() as directory:
        copy = original.copy_to(directory / "store")
        copy.paths.consume_queue.rename(directory / "elsewhere")
        code, out, err = mqcore("store", "show", copy.paths.root, "--output", "json")
        assert code == 0, err
        walked_log = json.loads(out)
    for section in ("topics", "queues"):
        assert walked_log[section] == shown[section]
    assert [one | {"file": ""} for one in walked_log["segments"]] == [one | {"file": ""} for one in shown["segments"]]


def test_a_table_has_sections_and_expired_messages_do_not_count(original, tmp_path):
    store = original.copy_to(tmp_path / "store")
    gone = GEOMETRY.commit_log_file_size
    store.log_file(0).unlink()
    code, out, err = mqcore("store", "show", store.paths.root, "--queues")
    assert code == 0, err
    for heading in ("SEGMENT", "TOPIC", "SHARE", "MIN"):
        assert heading in out.decode()
    _, out, _ = mqcore("store", "show", store.paths.root, "--topic", "Orders", "--output", "json")
    shown = json.loads(out)
    left = [record for record in store.records if record.physical_offset >= gone and record.topic == b"Orders"]
    assert sum(one["messages"] for one in shown["queues"]) == len(left)
    assert {one["queueId"]: one["minOffset"] for one in shown["queues"]} == {
        number: min(record.queue_offset for record in left if record.queue_id == number) for number in (0, 1)
    }


def test_an_export_has_every_message_in_order(original):
    assert_same(export(original), original.records)


def test_records_and_fillers_that_lie_across_windows_are_exported(tmp_path, monkeypatch):
    monkeypatch.setattr(log_part, "WINDOW_SIZE", 700)
    geometry = replace(GEOMETRY, commit_log_file_size=1 << 14)
    store = StoreBuilder(tmp_path, geometry)
    chance = chance_of_run("windows")
    for number in range(80):
        store.append("Big", 0, chance.randbytes(chance.randrange(1, 6000)), TAGS=f"T{number}", NAME="ü")
    store.crash()
    Recovery(store.paths, geometry).run()
    store.paths.abort.unlink()
    assert_same(export(store), store.records)
    damaged = store.records[40]
    store.flip(damaged.physical_offset + 90)
    target = tmp_path / "most.jsonl"
    assert mqcore("store", "export", tmp_path, "--quiet", "--to", target, "--skip-damaged")[0] == 4
    lines = [json.loads(line) for line in target.read_bytes().splitlines()]
    assert_same(lines, [record for record in store.records if record is not damaged])
    found = mqcore("store", "check", tmp_path, "--quiet", "--output", "json")[1]
    assert [one["physicalOffset"] for one in json.loads(found)["damage"]] == [damaged.physical_offset]


@walked(
    "options, is_wanted",
    [
        (["--topic", "Orders"], lambda record: record.topic == b"Orders"),
        (["--topic", "Orders", "--topic", "Events", "--queue", 1], lambda record: record.queue_id == 1),
        (["--topic", "Events", "--from", 3, "--until", 7],
         lambda record: record.topic == b"Events" and 3 <= record.queue_offset < 7),
        (["--from", "2023-11-14T22:14:00", "--until", "2023-11-14T22:15:00+00:00"],
         lambda record: 40 <= (record.store_timestamp - FIRST_TIMESTAMP) // STEP_MS < 100),
        (["--tag", "T1"], lambda record: b"TAGS\x01T1" in record.properties),
        (["--from", "1m"], lambda record: False),
    ],
)  # fmt: skip
def test_an_export_has_what_was_asked_for(options, is_wanted, original):
    assert_same(export(original, *options), [record for record in original.records if is_wanted(record)])


def test_parquet_has_the_same_messages(original, tmp_path):
    import pyarrow.parquet as parquet

    target = tmp_path / "orders.parquet"
    code, out, err = mqcore("store", "export", original.paths.root, "--topic", "Orders", "--to", target, "-o", "json")
    assert code == 0, err
    count = sum(record.topic == b"Orders" for record in original.records)
    assert json.loads(out) == {"file": str(target), "messages": count, "damaged": []}
    wanted = [record for record in original.records if record.topic == b"Orders"]
    table = parquet.read_table(target)
    assert table["body"].to_pylist() == [record.body for record in wanted]
    assert table["offset"].to_pylist() == [record.queue_offset for record in wanted]
    assert [int(time.timestamp() * 1000) for time in table["storeTimestamp"].to_pylist()] == [
        record.store_timestamp for record in wanted
    ]
    assert dict(table["properties"].to_pylist()[0])["NAME"] == "ü"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    # None at all is a table of no rows.
    code, _, err = mqcore("store", "export", original.paths.root, "--from", "1m", "--to", tmp_path / "none.parquet")
    assert code == 0, err
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0


def test_without_pyarrow_a_sentence_says_what_to_install(original, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = mqcore("store", "export", original.paths.root, "--to", tmp_path / "x.parquet")
    assert code == 1
    assert "mqcore[parquet]" in err
    assert not list(tmp_path.iterdir())


def test_damage_stops_an_export_unless_it_may_be_passed_over(original, tmp_path):
    store = original.copy_to(tmp_path / "store")
    damaged = store.records[30]
    store.flip(damaged.physical_offset + 90)
    target = tmp_path / "all.jsonl"
    code, _, err = mqcore("store", "export", store.paths.root, "--quiet", "--to", target)
    assert code == 1
    assert f"physical_offset={damaged.physical_offset}" in err
    assert not target.exists()
    code, _, err = mqcore("store", "export", store.paths.root, "--quiet", "--to", target, "--skip-damaged")
    assert code == 4
    assert f"from offset {damaged.physical_offset} to {store.records[31].physical_offset}" in err
    lines = [json.loads(line) for line in target.read_bytes().splitlines()]
    assert_same(lines, [record for record in store.records if record is not damaged])
    store.log_file(GEOMETRY.commit_log_file_size).unlink()
    assert mqcore("store", "export", store.paths.root, "--quiet")[0] == 1


@walked(
    "options, code, words",
    [
        (["store", "check", "/nowhere"], 1, "not the directory of a store"),
        (["store", "show", "/nowhere"], 1, "not the directory of a store"),
        (["store", "export", "/nowhere"], 1, "not the directory of a store"),
        (["store", "export", "{store}", "--topic", "Nope"], 3, "no topic Nope"),
        (["store", "show", "{store}", "--topic", "Nope"], 3, "no topic Nope"),
        (["store", "export", "{store}", "--from", "yesterday"], 2, "wanted a time"),
        (["store", "export", "{store}", "--to", "/nowhere/x"], 1, "/nowhere is no directory"),
        (["store", "export", "{store}", "--to", "{store}/checkpoint"], 1, "is there already"),
        (["store", "check", "{store}", "--jobs", "0"], 2, "--jobs"),
        (["store", "check", "{store}", "--delay-levels", "x"], 2, "wanted"),
    ],
)
def test_what_cannot_be_done_is_said(options, code, words, original):
    got, _, err = mqcore(*(str(option).format(store=original.paths.root) for option in options))
    assert (got, words in err) == (code, True), err


def test_pages_that_were_not_in_memory_leave_it_again(original, tmp_path):
    if keeps_pages(tmp_path):
        pytest.skip("files here lie in memory anyway")
    store = original.copy_to(tmp_path / "store")
    files = [path for path in store.paths.root.rglob("*") if path.is_file() and path.parent != store.paths.root]
    warm = store.log_file(0)
    for path in files:
        evict(path)
    warm.read_bytes()
    # The kernel is asked, and may keep a page that another processor has just had.
    for _ in range(TRIES):
        assert mqcore("store", "check", store.paths.root, "--quiet", "--jobs", 1)[0] == 0
        assert resident_share(warm) == 1
        kept = [path for path in files if path != warm and resident_share(path) > 0]
        if len(kept) < len(files) / 3:
            break
        for path in kept:
            evict(path)
    else:
        pytest.fail(f"in memory after {TRIES} checks: {kept}")
    code, _, err = mqcore("store", "export", store.paths.root, "--quiet", "--topic", "Orders", "--until", 3)
    assert code == 0, err
    # Of what is exported the places are looked up first, in consume queues and in the last files of the log.
    came = [path for path in files if path not in kept and resident_share(path) > 0]
    assert {path.parent.name for path in came} <= {"commitlog", "0", "1"}
