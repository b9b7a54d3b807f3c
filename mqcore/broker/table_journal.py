"""Where the changes of a table are told before they are made, so that others make the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from mqcore.protocol.bodies import DataVersion

T_contra = TypeVar("T_contra", contravariant=True)


class TableJournal(Protocol[T_contra]):
    """Changes that are written here come back by ``DurableTable.apply``, in their order, here as everywhere."""

    @property
    def is_open(self) -> bool:
        """Whether changes are to be written; otherwise they are this broker's own affair."""
        ...

    async def settle(self) -> None:
        """Wait until nothing that was written is outstanding. Raises MetadataError if that takes too long."""
        ...

    async def write(self, put: Mapping[str, T_contra], gone: Iterable[str], version: DataVersion) -> None:
        """Write one change; returns when it is made here, and will be wherever it counts.

        Raises MetadataError. Then it may yet be made, unless the error says that it is not stored.
        """
        ...
