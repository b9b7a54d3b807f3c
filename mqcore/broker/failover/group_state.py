"""What the brokers of a group agree on: one value, changed by compare-and-swap alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson

from mqcore.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class GroupState:
    """One mastership. *nonce* names the process that holds it: one that has its id and not its nonce is not it."""

    epoch: int
    master: int
    nonce: str
    address: str
    isr: frozenset[int]
    """Ids of the brokers one of which must be the next master: an acknowledgement needs all of them."""

    def encode(self) -> bytes:
        """Return the value as it is stored, JSON."""
        return orjson.dumps({**asdict(self), "isr": sorted(self.isr)})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a stored value. Raises ProtocolError for what no broker of this group has written."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            state = cls(
                epoch=fields["epoch"],
                master=fields["master"],
                nonce=fields["nonce"],
                address=fields["address"],
                isr=frozenset(fields["isr"]),
            )
            numbers = (state.epoch, state.master, *state.isr)
            is_right = all(type(number) is int and number >= 0 for number in numbers) and state.master in state.isr
            is_right = is_right and isinstance(state.nonce, str) and isinstance(state.address, str)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ProtocolError(f"group state: got {data[:200]!r}, wanted what a broker writes: {error}") from error
        if not is_right:
            raise ProtocolError(f"group state: got {data[:200]!r}, wanted numbers from 0 on, and a master of its set")
        return state
