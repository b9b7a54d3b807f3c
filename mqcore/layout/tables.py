"""What tables of layouts are made of."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

WIDTHS = {"b": 1, "h": 2, "i": 4, "q": 8}
C_TYPES = {"b": "int8_t", "h": "int16_t", "i": "int32_t", "q": "int64_t"}
CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a layout: *code* is the struct code (b=1, h=2, i=4, q=8 bytes), or ``Ns`` for N raw bytes."""

    name: str
    code: str
    doc: str

    @property
    def size(self) -> int:
        return int(self.code[:-1]) if self.code.endswith("s") else WIDTHS[self.code]

    @property
    def c_declaration(self) -> str:
        return f"uint8_t {self.name}[{self.size}]" if self.code.endswith("s") else f"{C_TYPES[self.code]} {self.name}"


@dataclass(frozen=True)
class Layout:
    """A run of fields without padding. *size* is stated by hand on purpose: two witnesses, checked on import."""

    name: str
    size: int
    source: str
    fields: tuple[Field, ...]
    place: Literal["disk", "wire", "shared"] = "disk"
    doc: str = ""
    offsets: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        at = 0
        offsets: dict[str, int] = {}
        for member in self.fields:
            if member.name in offsets:
                raise ValueError(f"layout {self.name}: field {member.name} stands twice")
            if self.place == "shared" and not member.code.endswith("s") and at % member.size != 0:
                raise ValueError(f"layout {self.name}: field {member.name} at {at} is not aligned to {member.size}")
            offsets[member.name] = at
            at += member.size
        if at != self.size:
            raise ValueError(f"layout {self.name}: fields add up to {at} bytes, stated size is {self.size}")
        object.__setattr__(self, "offsets", offsets)

    @property
    def byte_order(self) -> str:
        return "=" if self.place == "shared" else ">"

    @cached_property
    def struct(self) -> struct.Struct:
        return struct.Struct(self.byte_order + "".join(member.code for member in self.fields))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        import numpy  # workers that never scan with NumPy do not pay for its import

        order = "<" if self.place == "shared" and sys.byteorder == "little" else ">"
        return numpy.dtype(
            [(m.name, f"V{m.size}") if m.code.endswith("s") else (m.name, f"{order}i{m.size}") for m in self.fields]
        )


def line(*members: Field) -> tuple[Field, ...]:
    """*members* and a pad up to the next cache line, so that two writers never share one."""
    used = sum(member.size for member in members)
    pad = -used % CACHE_LINE
    return members if pad == 0 else (*members, Field(f"pad_{members[0].name}", f"{pad}s", "to the next cache line"))


@dataclass(frozen=True, slots=True)
class Region:
    """A run of equal rows in the shared segment."""

    name: str
    row: Layout | None
    count: int
    row_size: int

    @property
    def size(self) -> int:
        return self.count * self.row_size


@dataclass(frozen=True, slots=True)
class Constants:
    """A named set of integers that both sides use; becomes a ``cdef enum`` with the name as prefix."""

    name: str
    doc: str
    values: dict[str, int]
