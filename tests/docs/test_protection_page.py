"""The table of limits in docs/protection.md: each setting, default, code, word and figure of it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqcore.broker.segment.pressure import FIGURES
from mqcore.codes import ResponseCode
from mqcore.config import SETTINGS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protection.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| What", "| ---"))
]
BY_KEY = {key: row for row in SETTINGS for key in row.properties}
SOURCES = "".join(path.read_text() for suffix in ("*.py", "*.pyx") for path in (ROOT / "mqcore").rglob(suffix))
NOT_OURS = ("closed", "the kernel's", "")
OTHER_FIGURES = {"slowGroupsSwitchedOff"}


def plain(cell: str) -> str:
    return cell.strip("`").strip()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_limit_is_what_the_page_says(row: list[str]) -> None:
    _, setting, default, answer, words, figure = row
    if setting:
        found = BY_KEY[plain(setting)]
        assert found.used
        assert found.default_text == plain(default)
    if answer not in NOT_OURS:
        assert answer in ResponseCode.__members__
    if words:
        assert plain(words) in SOURCES
    if figure:
        assert plain(figure) in {*FIGURES.values(), *OTHER_FIGURES}
        assert plain(figure) in SOURCES


@pytest.mark.parametrize(
    ("words", "number", "source"),
    [
        ("262,144", "WAITING_MAX = 1 << 18", "workers/send.py"),
        ("20,000", "REQUESTS_MAX = 20_000", "broker/server.py"),
        ("65,536", "TICKETS_MAX = 1 << 16", "layout/sizes.py"),
        ("64 MiB", "PARKED_BYTES_MAX = 64 << 20", "_fast/send/quota_gate.pyx"),
        ("64 MiB", "LINK_BYTES_MAX = 1 << 26", "_fast/send/connections.pyx"),
        ("512 MiB", "READ_BUDGET_BYTES = 512 * 2**20", "workers/send.py"),
        ("512 MiB", "WRITE_BUDGET_BYTES = 512 * 2**20", "workers/send.py"),
    ],
)
def test_limits_that_are_no_settings_are_those_of_the_sources(words: str, number: str, source: str) -> None:
    assert number in (ROOT / "mqcore" / source).read_text()
    assert any(words in row[2] for row in ROWS)


def test_every_figure_and_every_new_setting_stands_there() -> None:
    told = {plain(cell) for row in ROWS for cell in row}
    assert set(FIGURES.values()) | OTHER_FIGURES <= told
    keys = {row.key for row in SETTINGS if row.used and re.match("waitTimeMills|connections.*Max$|quota", row.key)}
    assert len(keys) >= 8
    assert keys <= told
