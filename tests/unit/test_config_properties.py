"""The properties syntax: what java.util.Properties.load reads, and that what we write is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.config import decode_properties, edit_properties, format_properties, parse_properties
from mqcore.errors import ConfigError
from mqcore.java_properties import read_entries

JAVA_READS = [
    pytest.param("a=b", {"a": "b"}, id="equals"),
    pytest.param("a:b", {"a": "b"}, id="colon"),
    pytest.param("a b", {"a": "b"}, id="blank"),
    pytest.param("a \t=\f b", {"a": "b"}, id="blanks-around-equals"),
    pytest.param("a = = b", {"a": "= b"}, id="only-the-first-equals-separates"),
    pytest.param("a=b ", {"a": "b "}, id="trailing-blank-belongs-to-the-value"),
    pytest.param("a", {"a": ""}, id="no-value"),
    pytest.param("  a=b", {"a": "b"}, id="leading-blanks"),
    pytest.param("# a=b\n! c=d\n\n \t\ne=f", {"e": "f"}, id="comments-and-blank-lines"),
    pytest.param("a=b#c", {"a": "b#c"}, id="no-comment-behind-a-value"),
    pytest.param("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}, id="all-line-ends"),
    pytest.param("a=b\\\n   c", {"a": "bc"}, id="continued-line-loses-its-indent"),
    pytest.param("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}, id="even-backslashes-do-not-continue"),
    pytest.param("a=b\\\n# c", {"a": "b# c"}, id="a-continuation-is-no-comment"),
    pytest.param("# a\\\nb=c", {"b": "c"}, id="a-comment-is-not-continued"),
    pytest.param("a=b\\", {"a": "b"}, id="backslash-at-the-end"),
    pytest.param("a=b\\\n\nc=d", {"a": "b", "c": "d"}, id="continued-by-a-blank-line"),
    pytest.param("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}, id="escapes"),
    pytest.param("a\\=\\:\\ b=c", {"a=: b": "c"}, id="escaped-separators-in-the-key"),
    pytest.param("a=\\u0041\\u00e9", {"a": "A\u00e9"}, id="unicode-escapes"),
    pytest.param("a=\\uD83D\\uDE00", {"a": "\U0001f600"}, id="surrogate-pair"),
    pytest.param("a=1\na=2", {"a": "2"}, id="the-last-one-wins"),
    pytest.param("a=b\x0bc\x85d\u2028e", {"a": "b\x0bc\x85d\u2028e"}, id="other-separators-do-not-end-a-line"),
]


@pytest.mark.parametrize(("text", "wanted"), JAVA_READS)
def test_text_is_read_as_java_reads_it(text: str, wanted: dict[str, str]) -> None:
    assert parse_properties(text) == wanted


@pytest.mark.parametrize("escape", ["\\u", "\\u00", "\\u00g1", "\\uzzzz"])
def test_malformed_unicode_escape_is_refused_with_its_line(escape: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.conf:2"):
        list(read_entries(f"a=b\nc={escape}", "broker.conf"))


def test_entries_know_their_lines() -> None:
    entries = list(read_entries("# one\na=b\\\n c\n\nd=e\n"))
    assert [(entry.key, entry.first_line, entry.last_line) for entry in entries] == [("a", 2, 3), ("d", 5, 5)]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        pytest.param("a=\u00e9".encode(), "a=\u00e9", id="utf-8"),
        pytest.param("a=\u00e9".encode("iso-8859-1"), "a=\u00e9", id="iso-8859-1"),
        pytest.param(b"\xef\xbb\xbfa=b", "a=b", id="byte-order-mark"),
    ],
)
def test_bytes_are_utf_8_if_they_can_be_and_iso_8859_1_otherwise(data: bytes, wanted: str) -> None:
    assert decode_properties(data) == wanted


characters = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(characters, characters, max_size=5))
def test_written_properties_are_ascii_and_read_back(values: dict[str, str]) -> None:
    text = format_properties(values)
    assert text.isascii()
    assert parse_properties(text) == values


@given(
    st.dictionaries(characters, characters, max_size=5),
    st.dictionaries(characters, characters, min_size=1, max_size=3),
)
def test_edited_properties_hold_the_changes_and_everything_else(
    values: dict[str, str], changes: dict[str, str]
) -> None:
    assert parse_properties(edit_properties(format_properties(values), changes)) == values | changes


def test_edit_keeps_comments_order_and_blank_lines() -> None:
    text = "# retention\nfileReservedTime = 48\n\n! hours\ndeleteWhen: 04\n"
    wanted = "# retention\nfileReservedTime=24\n\n! hours\ndeleteWhen: 04\ntraceOn=false\n"
    assert edit_properties(text, {"fileReservedTime": "24", "traceOn": "false"}) == wanted


def test_edit_replaces_continued_and_repeated_and_aliased_entries() -> None:
    text = "mapedFileSizeCommitLog=1\nx=y\nmappedFileSizeCommitLog=\\\n  2\nz=1"
    assert edit_properties(text, {"mapedFileSizeCommitLog": "4096"}) == "x=y\nmappedFileSizeCommitLog=4096\nz=1\n"
