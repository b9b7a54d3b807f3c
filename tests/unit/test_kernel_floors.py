"""The rooms of the kernels stand on each other as pyproject.toml says, and who takes from above is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.kernel_floors import ROOT, breaches, floors_of

FLOORS = {"base": [], "log": ["base"], "client": ["base", "log.record"]}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for room in FLOORS:
        folder = tmp_path / "mqcore" / "_fast" / room
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    return tmp_path


def test_every_room_stands_on_the_floors_below_it() -> None:
    assert list(breaches(ROOT, floors_of(ROOT))) == []


@pytest.mark.parametrize(
    "line",
    [
        "from mqcore._fast.log.append cimport append_record\n",
        "from mqcore._fast.log.append cimport (append_record,\n    append_batch)\n",
        "from mqcore._fast.log.append import CommitLogWriter\n",
        "    from mqcore._fast.log.append cimport append_record\n",
        "cimport mqcore._fast.log.append as append\n",
    ],
)
@pytest.mark.parametrize("suffix", ["pyx", "pxd"])
def test_what_a_room_takes_from_above_is_named_with_its_line(house: Path, line: str, suffix: str) -> None:
    source = house / f"mqcore/_fast/base/bytes.{suffix}"
    source.write_text(f"# A comment.\n{line}")
    assert list(breaches(house, FLOORS)) == [
        f"mqcore/_fast/base/bytes.{suffix}:2: base takes from log.append, which is not below it"
    ]


def test_a_room_may_be_open_in_part(house: Path) -> None:
    source = house / "mqcore/_fast/client/frames.pyx"
    source.write_text("from mqcore._fast.log.record cimport decode_record\nfrom mqcore._fast.base.bytes cimport load\n")
    assert list(breaches(house, FLOORS)) == []
    source.write_text("from mqcore._fast.log.append cimport append_record\n")
    assert [line.partition(": ")[2] for line in breaches(house, FLOORS)] == [
        "client takes from log.append, which is not below it"
    ]


def test_a_room_without_a_floor_and_a_floor_that_leads_upwards_are_named(house: Path) -> None:
    upwards = {"base": ["log"], "log": ["base"]}
    assert list(breaches(house, upwards)) == [
        "pyproject.toml: base may take from log, which is not below it",
        "mqcore/_fast/client: has no floor in pyproject.toml",
    ]
