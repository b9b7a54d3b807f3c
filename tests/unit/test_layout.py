"""Layouts are written once: what is generated from the tables says what they say, to C, to struct and to NumPy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcore import layout, layout_files
from mqcore.layout import Field, Layout
from tests.rows import walked

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = list(layout.layouts())
SHARED = [item for item in LAYOUTS if item.place == "shared"]
EVERY_LAYOUT = pytest.mark.parametrize("item", LAYOUTS, ids=lambda item: item.name)
BITS = {"b": 7, "h": 15, "i": 31, "q": 63}


def test_generated_files_say_what_the_tables_say() -> None:
    assert layout_files.stale_files(ROOT) == []


def test_a_stale_file_is_named_and_written_anew(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"stale.*shared_layout\.h.*layout\.pxd.*LAYOUT\.md"):
        layout_files.main(tmp_path, ["--check"])
    layout_files.main(tmp_path, ["--write"])
    layout_files.main(tmp_path, ["--check"])
    (tmp_path / "LAYOUT.md").write_text("changed by hand")
    with pytest.raises(SystemExit, match=r"LAYOUT\.md"):
        layout_files.main(tmp_path, ["--check"])
    with pytest.raises(SystemExit, match="usage"):
        layout_files.main(tmp_path, [])


def test_c_places_every_field_where_the_table_says(tmp_path: Path) -> None:
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
    if compiler is None:
        pytest.skip("no C compiler")
    source, program = tmp_path / "offsets.c", tmp_path / "offsets"
    lines = ["#include <stdio.h>", '#include "shared_layout.h"', "int main(void) {"]
    wanted = {}
    for item in SHARED:
        name = layout_files.struct_name(item)
        lines.append(f'printf("{item.name} %zu\\n", sizeof({name}));')
        wanted[item.name] = item.size
        for field in item.fields:
            place = f"offsetof({name}, {field.name})"
            lines.append(
                f'printf("{item.name}.{field.name} %zu %zu\\n", {place}, sizeof((({name} *)0)->{field.name}));'
            )
            wanted[f"{item.name}.{field.name}"] = (item.offsets[field.name], field.size)
    source.write_text("\n".join([*lines, "return 0;", "}", ""]))
    include = ROOT / "mqcore" / "_fast" / "include"
    subprocess.run([compiler, "-std=c11", f"-I{include}", "-o", program, source], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    got: dict[str, object] = {}
    for line in printed.splitlines():
        name, *numbers = line.split()
        got[name] = int(numbers[0]) if len(numbers) == 1 else tuple(map(int, numbers))
    assert got == wanted


@EVERY_LAYOUT
def test_struct_and_dtype_have_the_size_of_the_table(item: Layout) -> None:
    assert item.struct.size == item.dtype.itemsize == item.size
    assert item.dtype.names == tuple(field.name for field in item.fields)
    assert {name: item.dtype.fields[name][1] for name in item.offsets} == item.offsets


@EVERY_LAYOUT
@settings(max_examples=20)
@given(data=st.data())
def test_numpy_reads_what_struct_writes(item: Layout, data: st.DataObject) -> None:
    values = [
        data.draw(st.binary(min_size=field.size, max_size=field.size))
        if field.code.endswith("s")
        else data.draw(st.integers(-(1 << BITS[field.code]), (1 << BITS[field.code]) - 1))
        for field in item.fields
    ]
    packed = item.struct.pack(*values)
    (row,) = np.frombuffer(packed, item.dtype)
    read = [row[field.name].tobytes() if field.code.endswith("s") else int(row[field.name]) for field in item.fields]
    assert read == values
    assert row.tobytes() == packed


@EVERY_LAYOUT
def test_disk_and_wire_are_big_endian_and_memory_is_native(item: Layout) -> None:
    field = next(field for field in item.fields if not field.code.endswith("s"))
    packed = item.struct.pack(*(b"" if each.code.endswith("s") else int(each is field) for each in item.fields))
    at = item.offsets[field.name]
    ones = [position for position, byte in enumerate(packed) if byte]
    assert ones == [at if item.place == "shared" else at + field.size - 1]


@walked("item", SHARED)
def test_shared_fields_are_aligned(item: Layout) -> None:
    for field in item.fields:
        if not field.code.endswith("s"):
            assert item.offsets[field.name] % field.size == 0


def test_locks_and_watermarks_have_cache_lines_of_their_own() -> None:
    board = layout.STORE_BOARD
    alone = (
        "wrote_offset",
        "flushed_offset",
        "dispatched_offset",
        "min_offset",
        "config_epoch",
        "put_lock",
        "board_lock",
    )
    assert [board.offsets[name] % layout.CACHE_LINE for name in alone] == [0] * len(alone)
    assert len({board.offsets[name] // layout.CACHE_LINE for name in alone}) == len(alone)


def test_regions_start_on_pages_and_do_not_overlap() -> None:
    offsets = layout.region_offsets()
    ends = [offsets[region.name] + region.size for region in layout.REGIONS]
    starts = [*(offsets[region.name] for region in layout.REGIONS[1:]), offsets["end"]]
    assert all(end <= start < end + layout.PAGE_SIZE for end, start in zip(ends, starts, strict=True))
    assert all(offset % layout.PAGE_SIZE == 0 for offset in offsets.values())
    assert all(region.row is None or region.row.size == region.row_size for region in layout.REGIONS)


def test_every_layout_and_constant_is_on_the_page() -> None:
    page = (ROOT / "LAYOUT.md").read_text()
    titles = re.findall(r"^### (\w+)", page, re.MULTILINE)
    assert titles == [
        *(item.name for place in ("disk", "wire", "shared") for item in LAYOUTS if item.place == place),
        *(entry.name for entry in layout.CONSTANTS),
    ]


SEGMENT_ROWS = (
    "store_board",
    "topic_row",
    "queue_row",
    "cradle_row",
    "group_row",
    "offset_row",
    "slave_row",
    "quota_row",
    "latency_row",
    "epoch_row",
    "worker_row",
    "settings_head",
    "ring_head",
    "ring_entry",
)


def sharing_sections() -> dict[str, str]:
    """workers/SHARING.md by headings."""
    parts = re.split(r"^## (.+)$", (ROOT / "workers" / "SHARING.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", SEGMENT_ROWS)
def test_sharing_says_who_writes_every_field(name: str) -> None:
    (text,) = [text for title, text in sharing_sections().items() if name in title]
    (item,) = [item for item in SHARED if item.name == name]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    told = [field for row in rows for field in re.findall(r"`(\w+)`", row)]
    assert len(told) == len(set(told)), "a field stands twice"
    assert {field.name for field in item.fields if not field.name.startswith("pad")} <= set(told)
    assert set(told) <= {field.name for row in SHARED if row.name in SEGMENT_ROWS for field in row.fields}


ROOMS_OF = {"S": "send", "P": "pull", "R": "reput", "H": "ha", "T": "timer"}
"""The rooms of mqcore/_fast that one kind of process alone runs, by its letter in SHARING.md."""

READING = re.compile(r"\b(?:observe|peek)\(&[\w.]*\bboard\.(\w+)")
WRITING = re.compile(r"\b(?:publish|put_relaxed|(?:add|or|and|raise)_\w+)\(&[\w.]*\bboard\.(\w+)")


@pytest.mark.parametrize("letter", ROOMS_OF)
def test_sharing_names_the_workers_that_read_and_write_words_of_the_board(letter: str) -> None:
    lines = [line.split("|") for line in sharing_sections()["store_board"].splitlines() if line.startswith("| `")]
    told = {field: columns for columns in lines for field in re.findall(r"`(\w+)`", columns[1])}
    room = ROOT / "mqcore" / "_fast" / ROOMS_OF[letter]
    code = "".join(path.read_text() for path in sorted(room.iterdir()) if path.suffix in (".pyx", ".pxd"))
    read, written = set(READING.findall(code)), set(WRITING.findall(code))
    assert read
    unknown = {field for field in read if not re.search(rf"\b(all|{letter})\b", told[field][3] + told[field][4])}
    assert unknown == set(), f"{letter} reads them"
    unknown = {field for field in written if not re.search(rf"\b(all|{letter})\b", told[field][3])}
    assert unknown == set(), f"{letter} writes them"


def test_sharing_names_tests_that_exist() -> None:
    text = (ROOT / "workers" / "SHARING.md").read_text()
    named = set(re.findall(r"`((?:\w+/)?test_\w+)`", text))
    assert named
    missing = [
        name for name in named if not (ROOT / "tests" / f"{name if '/' in name else 'unit/' + name}.py").exists()
    ]
    assert missing == []


@pytest.mark.parametrize("entry", [*layout.CONSTANTS], ids=lambda entry: entry.name)
def test_constants_are_told_apart(entry: layout.Constants) -> None:
    assert len(set(entry.values.values())) == len(entry.values)
    if entry.name == "StoreFlag":
        assert all(value.bit_count() == 1 for value in entry.values.values())


A, B = Field("a", "i", ""), Field("b", "q", "")


@pytest.mark.parametrize(
    ("fields", "size", "place", "message"),
    [
        ((A, B), 11, "disk", "add up to 12 bytes, stated size is 11"),
        ((A, A), 8, "disk", "field a stands twice"),
        ((A, B), 12, "shared", "field b at 4 is not aligned to 8"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(
    fields: tuple[Field, ...], size: int, place: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Layout("wrong", size, "test", fields, place=place)  # type: ignore[arg-type]
