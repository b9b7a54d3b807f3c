"""Where the encoder of batches is chosen: fast, or with ``MQ_PURE=1`` its plain twin; and Arrow's arrays as it wants
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqcore.protocol.batch_encoder import Maps, Texts
from mqcore.store.codec import PURE

if TYPE_CHECKING or PURE:
    from mqcore.protocol.batch_encoder import BatchEncoder
else:
    from mqcore._fast.columns.batch_encoder import BatchEncoder

__all__ = ["BatchEncoder", "maps_of", "texts_of", "validity_of"]


def validity_of(array: pa.Array) -> NDArray[np.uint8] | None:
    """Return one byte per value, 0 for null; None if nothing is null."""
    if not array.null_count:
        return None
    valid: NDArray[np.uint8] = pc.is_valid(array).cast(pa.uint8()).to_numpy()
    return valid


def texts_of(array: pa.Array) -> Texts:
    """Return a column of strings or binaries, large or not, without a copy of its data where Arrow allows it.

    Raises pyarrow.ArrowInvalid when large ones do not fit into 2 GiB.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    return Texts(_offsets(offsets, array), _bytes(data), validity_of(array))


def maps_of(array: pa.MapArray) -> Maps:
    """Return a column of maps from string to string."""
    _, offsets = array.buffers()[:2]
    return Maps(_offsets(offsets, array), texts_of(array.keys), texts_of(array.items), validity_of(array))


def _offsets(buffer: pa.Buffer | None, array: pa.Array) -> NDArray[np.int32]:
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1]


def _bytes(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.zeros(0, dtype=np.uint8) if buffer is None else np.frombuffer(buffer, dtype=np.uint8)
