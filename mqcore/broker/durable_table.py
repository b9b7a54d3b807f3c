"""A table of configuration records whose changes are on disk before anyone sees them.

Changes are functions over a draft. All that wait are made on one draft, written in one file write, and shown
together: a hundred consumers that show up at once cost a few syncs and not a hundred. A change that cannot be written
is not made. Reads are plain look-ups in the last written state and never wait.

A master of a failover group does not make its changes by itself: it writes them into its journal, which is in the log,
and makes them when they come back from there, as all others of the group do.

Apache's broker shows a change first and leaves the writing to the page cache; a topic that was created, and filled,
just before a power cut is gone there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mqcore.broker.config_file import ConfigFile
from mqcore.broker.ports import Clock
from mqcore.broker.table_journal import TableJournal
from mqcore.protocol.bodies import DataVersion

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")


class Text(Protocol[T_contra]):
    """Makes the file of a table, in a thread."""

    def render(self, table: Mapping[str, T_contra], version: DataVersion) -> Buffer: ...


@dataclass(slots=True)
class Draft(Generic[T]):
    """The next state of a table, while changes are being made to it."""

    table: dict[str, T]
    version: DataVersion
    clock: Clock
    touched: dict[str, None]
    must_write: bool = False
    """Whether it counts only when it is on disk."""

    def put(self, name: str, record: T) -> None:
        self.table[name] = record
        self.touch(name)

    def remove(self, name: str) -> bool:
        """Take *name* out; False if it was not there."""
        if self.table.pop(name, None) is None:
            return False
        self.touch(name)
        return True

    def replace(self, table: Mapping[str, T], version: DataVersion) -> None:
        """Take another broker's table as it is, with its version."""
        self.touched.update(dict.fromkeys(self.table.keys() | table.keys()))
        self.table, self.version = dict(table), version
        self.must_write = True

    def show(self, name: str, record: T) -> None:
        """Put *record* without writing the table for it; it is written with the next change that is."""
        self.table[name] = record
        self._next_version(name)

    def touch(self, *names: str) -> None:
        """Give the table its next version, for changes of *names*."""
        self._next_version(*names)
        self.must_write = True

    def _next_version(self, *names: str) -> None:
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=self.clock())
        self.touched.update(dict.fromkeys(names))


class DurableTable(Generic[T]):
    """Name to record, and a data version."""

    def __init__(
        self,
        file: ConfigFile,
        text: Text[T],
        on_commit: Callable[[Iterable[str]], None],
        clock: Clock,
    ) -> None:
        """*text* renders the file, in a thread. *on_commit* is told the changed names, after the write.

        Records are replaced and never changed, so that a view of the table stays what it was while it is written.
        """
        self.records: dict[str, T] = {}
        self.version = DataVersion(counter=0, timestamp=clock())
        self.journal: TableJournal[T] | None = None
        """Of brokers of a failover group."""
        self._turn = asyncio.Lock()
        self._file = file
        self._text = text
        self._on_commit = on_commit
        self._clock = clock
        self._waiting: list[tuple[Callable[[Draft[T]], Any], asyncio.Future[Any]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def change(self, make: Callable[[Draft[T]], R]) -> R:
        """Call *make* on the next draft and return its result once the draft is on disk.

        *make* sees the changes of those who came before it. If it leaves the version alone nothing is written for it.
        Raises what *make* raises, or the OSError of a failed write, after which the table is as it was.
        """
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((make, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_waiting())
        return await future

    async def close(self) -> None:
        """Wait until every change that was asked for is on disk, or has failed."""
        if self._writer is not None:
            await self._writer

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            outcomes: list[tuple[asyncio.Future[Any], Any, Exception | None]]
            outcomes = [(future, None, None) for _, future in batch]
            try:
                async with self._settled():
                    draft = Draft(dict(self.records), self.version, self._clock, {})
                    outcomes = [(future, *_attempt(make, draft)) for make, future in batch]
                    is_told = draft.must_write and self._is_journal_open
                    if not is_told:
                        await self._commit(draft)
                if is_told:
                    await self._tell(draft)
            except Exception as error:  # a failure of the one write is one of every change in it
                outcomes = [(future, None, failure or error) for future, _, failure in outcomes]
            for future, result, failure in outcomes:
                _settle(future, result, failure)

    @property
    def _is_journal_open(self) -> bool:
        return self.journal is not None and self.journal.is_open

    @contextlib.asynccontextmanager
    async def _settled(self) -> AsyncIterator[None]:
        """Have the table for oneself, with nothing that was told of it outstanding: a draft is made of all there is."""
        if self.journal is not None and self.journal.is_open:
            await self.journal.settle()
        async with self._turn:
            yield

    async def _tell(self, draft: Draft[T]) -> None:
        assert self.journal is not None
        put = {name: draft.table[name] for name in draft.touched if name in draft.table}
        await self.journal.write(put, [name for name in draft.touched if name not in put], draft.version)

    async def apply(self, put: Mapping[str, T], gone: Iterable[str], version: DataVersion | None) -> None:
        """Make a change that was told; nothing happens if it is made. Without *version* the table keeps its own.

        Raises the OSError of a failed write, after which the table is as it was.
        """
        async with self._turn:
            changed = {name: record for name, record in put.items() if self.records.get(name) != record}
            removed = [name for name in gone if name in self.records]
            if not changed and not removed and version in (None, self.version):
                return
            draft = Draft({**self.records, **changed}, version or self.version, self._clock, {}, must_write=True)
            for name in removed:
                del draft.table[name]
            draft.touched.update(dict.fromkeys([*changed, *removed]))
            await self._commit(draft)

    async def _commit(self, draft: Draft[T]) -> None:
        if draft.must_write:
            # Nobody changes the draft any more: it is the frozen view, and becomes what everybody reads.
            await self._file.write_text(lambda: self._text.render(draft.table, draft.version))
        self.records, self.version = draft.table, draft.version
        if draft.touched:
            self._on_commit(draft.touched)


def _attempt(make: Callable[[Draft[Any]], Any], draft: Draft[Any]) -> tuple[Any, Exception | None]:
    try:
        return make(draft), None
    except Exception as error:
        return None, error


def _settle(future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
