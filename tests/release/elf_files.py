"""What the linker wants of a shared library: which processor, which libraries, which symbols of the C library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MACHINES: Final = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
VERSION: Final = re.compile(r"GLIBC_(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Elf:
    """The facts of one file."""

    machine: str
    needed: tuple[str, ...]
    newest_glibc: tuple[int, int]
    """(0, 0) if it wants no version."""

    @classmethod
    def read(cls, path: Path) -> Elf:
        # auditwheel brings it; everyday tests have no use for it.
        from elftools.elf.dynamic import DynamicSection
        from elftools.elf.elffile import ELFFile
        from elftools.elf.gnuversions import GNUVerNeedSection

        needed: list[str] = []
        versions = {(0, 0)}
        with path.open("rb") as opened:
            file = ELFFile(opened)
            for section in file.iter_sections():
                if isinstance(section, DynamicSection):
                    needed += [tag.needed for tag in section.iter_tags("DT_NEEDED")]
                elif isinstance(section, GNUVerNeedSection):
                    names = (entry.name for _, entries in section.iter_versions() for entry in entries)
                    versions |= {(int(found[1]), int(found[2])) for name in names if (found := VERSION.fullmatch(name))}
            return cls(MACHINES[file["e_machine"]], tuple(needed), max(versions))
