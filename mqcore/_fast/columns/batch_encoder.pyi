from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mqcore.protocol.batch_encoder import Encoded, Maps, Texts

class BatchEncoder:
    def __init__(
        self,
        bodies: Texts,
        texts: Sequence[tuple[bytes, Texts]],
        maps: Maps | None,
        flags: NDArray[np.int32] | None,
        *,
        id_prefix: bytes,
        id_base: int,
        id_suffix: bytes,
    ) -> None: ...
    def encode(self, rows: NDArray[np.int64], first: int, size_max: int) -> Encoded: ...
    def properties(self, row: int) -> tuple[bytes, int]: ...
