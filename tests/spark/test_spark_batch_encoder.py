"""Columns to batches, both twins: what comes out reads back, and what cannot be a message is refused by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.protocol import batch_encoder as python_encoder
from mqcore.protocol.batch import decode_batch
from mqcore.protocol.batch_encoder import Fault, Maps, Texts
from mqcore.spark.encoder import maps_of, texts_of
from mqcore.store.codec import PURE

ENCODERS = [pytest.param(python_encoder.BatchEncoder, id="python")]
if not PURE:
    from mqcore._fast.columns import batch_encoder as fast_encoder

    ENCODERS.append(pytest.param(fast_encoder.BatchEncoder, id="cython"))

MAP_TYPE = pa.map_(pa.string(), pa.string())


def encoder(kind: Any, bodies: list[bytes | None], **columns: list[Any]) -> Any:
    texts = [
        (name.encode(), texts_of(pa.array(columns[name], pa.string()))) for name in ("TAGS", "KEYS") if name in columns
    ]
    maps = maps_of(pa.array(columns["maps"], MAP_TYPE)) if "maps" in columns else None
    flags = np.asarray(columns["flags"], dtype=np.int32) if "flags" in columns else None
    return kind(
        texts_of(pa.array(bodies, pa.binary())), texts, maps, flags, id_prefix=b"AB", id_base=10, id_suffix=b"FF"
    )


def every(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(count, dtype=np.int64)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_batch_reads_back_as_the_rows_it_was_made_of(kind: Any) -> None:
    made = encoder(
        kind, [b"one", None, b""], TAGS=["a", None, ""], KEYS=["k 1", "2", None],
        maps=[{"x": "1", "y": None}, None, {"TAGS": "no", "UNIQ_KEY": "no", "z": "ü"}], flags=[7, 0, -1],
    )  # fmt: skip
    body, following, fault = made.encode(every(3), 0, 1 << 20)
    messages = decode_batch(body)
    assert (following, fault) == (3, 0)
    assert [message.body for message in messages] == [b"one", b"", b""]
    assert [message.flag for message in messages] == [7, 0, -1]
    assert [message.properties for message in messages] == [
        {"UNIQ_KEY": "AB00000000000AFF", "TAGS": "a", "KEYS": "k 1", "x": "1"},
        {"UNIQ_KEY": "AB00000000000BFF", "KEYS": "2"},
        {"UNIQ_KEY": "AB00000000000CFF", "z": "ü"},
    ]


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_batch_ends_before_its_limit_but_takes_one_row_of_any_size(kind: Any) -> None:
    made = encoder(kind, [b"x" * 500] * 5)
    first = made.encode(every(5), 0, 1200)
    assert first.next == 2
    assert len(first.body) <= 1200
    assert made.encode(every(5), 4, 10).next == 5
    assert made.encode(every(5), 5, 10) == (b"", 5, 0)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"TAGS": ["a", "b\x01"]}, Fault.SEPARATOR),
        ({"maps": [{}, {"a\x02": "b"}]}, Fault.SEPARATOR),
        ({"maps": [{}, {"": "b"}]}, Fault.SEPARATOR),
        ({"KEYS": ["", "k" * 32_768]}, Fault.PROPERTIES_TOO_LONG),
        ({"maps": [{}, {str(number): "v" * 9000 for number in range(4)}]}, Fault.PROPERTIES_TOO_LONG),
    ],
)
def test_a_row_that_cannot_be_a_message_ends_the_batch_before_it(
    kind: Any, columns: dict[str, list[Any]], fault: Fault
) -> None:
    made = encoder(kind, [b"good", b"bad"], **columns)
    before = made.encode(every(2), 0, 1 << 20)
    assert (before.next, before.fault, len(decode_batch(before.body))) == (1, 0, 1)
    assert made.encode(every(2), 1, 1 << 20) == (b"", 1, fault)
    assert made.properties(1) == (b"", fault)
    assert fault.reason


@pytest.mark.parametrize("kind", ENCODERS)
def test_sliced_columns_give_the_rows_of_the_slice(kind: Any) -> None:
    bodies = pa.array([b"a", b"bb", None, b"dddd"], pa.binary()).slice(1)
    maps = pa.array([{"no": "no"}, {"x": "1"}, None, {"y": "2"}], MAP_TYPE).slice(1)
    made = kind(texts_of(bodies), [], maps_of(maps), None, id_prefix=b"", id_base=0, id_suffix=b"")
    messages = decode_batch(made.encode(every(3), 0, 1 << 20).body)
    assert [message.body for message in messages] == [b"bb", b"", b"dddd"]
    assert [message.properties.get("x") or message.properties.get("y") for message in messages] == ["1", None, "2"]


def test_offsets_that_lie_outside_of_their_data_are_refused() -> None:
    if PURE:
        pytest.skip("the twin reads through NumPy, which checks by itself")
    data = np.zeros(4, dtype=np.uint8)
    for bad in ([0, 5], [2, 1], [-1, 1], []):
        texts = Texts(np.asarray(bad, dtype=np.int32), data)
        with pytest.raises(ValueError, match="offsets"):
            fast_encoder.BatchEncoder(texts, [], None, None, id_prefix=b"", id_base=0, id_suffix=b"")
    good = Texts(np.asarray([0, 2], dtype=np.int32), data)
    bad_maps = Maps(np.asarray([0, 9], dtype=np.int32), good, good)
    with pytest.raises(ValueError, match="offsets"):
        fast_encoder.BatchEncoder(good, [], bad_maps, None, id_prefix=b"", id_base=0, id_suffix=b"")
    made = fast_encoder.BatchEncoder(good, [], None, None, id_prefix=b"", id_base=0, id_suffix=b"")
    for row in (-1, 1):
        with pytest.raises(IndexError):
            made.encode(np.asarray([row], dtype=np.int64), 0, 100)
        with pytest.raises(IndexError):
            made.properties(row)


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=50),
            texts,
            st.none() | st.dictionaries(st.text("ab\x01TAGS", max_size=4), texts),
        ),
        max_size=8,
    ),
    st.integers(1, 400),
)
def test_both_twins_make_the_same_bytes(rows: list[Any], size_max: int) -> None:
    columns = {"TAGS": [row[1] for row in rows], "maps": [row[2] for row in rows]}
    results = []
    for parameter in ENCODERS:
        made = encoder(parameter.values[0], [row[0] for row in rows], **columns)
        place, got = 0, []
        while place < len(rows):
            got.append(made.encode(every(len(rows)), place, size_max))
            place = got[-1].next + (1 if got[-1].fault else 0)
        results.append(got)
    assert all(result == results[0] for result in results)
