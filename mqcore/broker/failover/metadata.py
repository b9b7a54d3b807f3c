"""What the brokers of a failover group know besides messages: told in the log by its master, followed by all.

Topics, groups, consumer offsets, delay offsets and drops of queues are records of a topic of our own, so they are
copied, confirmed and cut with the messages around them, and a topic is there before its first message is.

- A topic or group changes when its record comes back out of the log, on the master too: what is not confirmed is not
  seen, and a master whose tail is cut has nothing to take back. Offsets are the other way round: they are the master's,
  which tells five times a second what has changed.
- Followers apply records in order as these become readable. A place on disk says how far they are; behind it records
  are applied again after a crash, and come out the same.
- A new master applies all that its log has, readable or not, before it appends anything. From there on offsets in
  records are its own, and older than what it knows.
- Tables are copied whole as well, since the log does not keep its records for ever. That is done only when the other
  side had applied all that this one has, so no change is lost by it; what it is ahead of comes by the log again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from mqcore.broker.durable_table import DurableTable
from mqcore.broker.failover.metadata_records import MetadataKind, MetadataRecord
from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.offsets import ConsumerOffsetManager
from mqcore.broker.periodic import PeriodicTasks
from mqcore.broker.ports import (
    Channel,
    Clock,
    InnerMessage,
    MessageSink,
    PutResult,
    PutStatus,
    QueueDropper,
    QueueUnit,
    StoreView,
)
from mqcore.broker.services.delay_levels import ScheduleMessageService
from mqcore.broker.services.system_queues import DONE, Pace, SystemQueues
from mqcore.broker.services.table_copies import TableCopies
from mqcore.broker.topics import TopicConfigManager
from mqcore.errors import MetadataError, MetadataNotStoredError
from mqcore.layout import METADATA_DROP_FLAG, METADATA_FLAG
from mqcore.protocol.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import METADATA_TOPIC
from mqcore.store.metadata_place import MetadataPlace

logger = logging.getLogger(__name__)

CONFIRM_S: Final = 3.0
"""How long a change waits for the members in sync."""

LOOK_S: Final = 0.002
TELL_S: Final = 0.2
"""How often offsets that have changed are told."""

PERSIST_S: Final = 5.0
QUEUE_ID: Final = 0
NAMES_MAX: Final = 500
OFFSETS_MAX: Final = 4096
"""At most so many in one record."""

WALK_MAX: Final = 20_000
"""Records that are looked at before others get their turn."""

METADATA_OFFSET: Final = "metadataOffset"
"""A field of answers with a whole table: all records before it are in the table."""

PACE: Final = Pace(first_turn=0.0, retry=LOOK_S, error_pause=1.0, idle_poll=0.05)

Handler = Callable[[Channel, RemotingCommand], Awaitable[RemotingCommand | None]]
R = TypeVar("R", TopicConfig, SubscriptionGroupConfig)


class Confirmation(Protocol):
    """What of a group's log is needed here: how far it goes, and how far all members in sync have it."""

    @property
    def end(self) -> int: ...

    @property
    def confirmed(self) -> int: ...


class Metadata:
    """Tells what changes while this broker leads, and applies what is told."""

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        schedule: ScheduleMessageService,
        copies: TableCopies,
        sink: MessageSink,
        store: StoreView,
        drops: QueueDropper,
        log: Confirmation,
        path: Path,
        store_host: HostAddress,
        clock: Clock,
    ) -> None:
        """*path* is the file of the place up to which records are applied."""
        self._offsets = offsets
        self._schedule = schedule
        self._sink = sink
        self._store = store
        self._drops = drops
        self._log = log
        self._path = path
        self._store_host = store_host
        self._clock = clock
        self._queues = SystemQueues(METADATA_TOPIC, [QUEUE_ID], store, self._consume, self._persist, PACE)
        self._periodic = PeriodicTasks()
        self._applying = asyncio.Lock()
        self._applied_to = 0
        self._epoch_start: int | None = None
        self._copies_tables = True
        self._told_levels: dict[int, int] = {}
        self._untold: dict[tuple[str, str, int], int] = {}
        self._passed_over: set[str] = set()
        self._writing: asyncio.Future[None] | None = None
        self._appliers: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = {
            MetadataKind.TOPICS: self._applier(topics.table, TopicConfig),
            MetadataKind.GROUPS: self._applier(groups.table, SubscriptionGroupConfig),
            MetadataKind.CONSUMER_OFFSETS: self._apply_consumer_offsets,
            MetadataKind.DELAY_OFFSETS: self._apply_delay_offsets,
            MetadataKind.DROPPED_QUEUES: self._apply_drop,
        }
        topics.table.journal = Journal(self, MetadataKind.TOPICS)
        groups.table.journal = Journal(self, MetadataKind.GROUPS)
        drops.announce = self._tell_drop
        copies.judge = self._judge_copy
        self.copies = copies
        """Of whole tables."""

    # Life -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read how far records are applied; the store must have recovered, and tables been read."""
        place = MetadataPlace.read(self._path)
        # A log that was cut has other records behind its end now.
        self._applied_to = min(place.applied_to, self._log.end)
        self._queues.positions[QUEUE_ID] = min(place.next_offset, self._store.max_offset(METADATA_TOPIC, QUEUE_ID))
        self._drops.applied(self._applied_to)

    def start(self) -> None:
        """Follow the log."""
        self._queues.start()
        self._periodic.every(TELL_S, self._tell_offsets, "tell offsets")
        self._periodic.every(PERSIST_S, self._queues.save, "persist metadata")

    async def stop(self) -> None:
        """Follow it no more, and write down how far that was."""
        self.stop_leading()
        await self._periodic.stop()
        await self._queues.stop()

    @property
    def is_leading(self) -> bool:
        return self._epoch_start is not None

    @property
    def next_offset(self) -> int:
        """The queue offset before which all records are applied."""
        return self._queues.positions[QUEUE_ID]

    async def apply_all_to_end(self) -> None:
        """Apply every record that the log has, readable or not; nothing may be appended meanwhile.

        Tables are copied no more: those of a master before may tell of what this log has not. To be called once, before
        this broker leads. Raises StoreError, MetadataError, OSError.
        """
        dispatched = self._store.dispatched_end()
        end = self._log.end
        while self.next_offset < self._store.max_offset(METADATA_TOPIC, QUEUE_ID):
            await self._queues.turn(QUEUE_ID)
        async with self._applying:
            at = max(self._applied_to, dispatched)
            while at < end:
                found, at = self._store.find_written(at, (METADATA_FLAG, METADATA_DROP_FLAG), WALK_MAX)
                for physical_offset in found:
                    record = self._store.look_written(physical_offset)
                    if record is None:
                        raise MetadataError(f"the record at {physical_offset} in the log cannot be read")
                    await self._apply(record)
                await asyncio.sleep(0)
            self._applied_to = max(self._applied_to, end)
            self._drops.applied(self._applied_to)
            self._copies_tables = False
        for _ in self._offsets.take_changed():
            pass  # what was applied, and copied from masters, stands in the log or with all others

    def lead(self, epoch_start: int) -> None:
        """Tell what changes from here on, where this broker's epoch begins in the log.

        What was lowered to the ends of queues when it began is told first.
        """
        self._untold = {}
        self._told_levels = dict(self._schedule.offsets)
        self._epoch_start = epoch_start

    def stop_leading(self) -> None:
        """Tell nothing more: changes are refused, or this broker's own."""
        self._epoch_start = None

    # Applying ---------------------------------------------------------------------------------------------------

    async def _consume(self, queue_id: int, unit: QueueUnit) -> float:
        end = unit.physical_offset + unit.record_size
        async with self._applying:
            if unit.physical_offset >= self._applied_to:
                record = self._store.look_message(unit.physical_offset, unit.record_size)
                if record is None:
                    logger.error("a metadata record is gone physical_offset=%d", unit.physical_offset)
                else:
                    await self._apply(record)
                self._applied_to = end
            # Also behind what is passed over: dispatch may stand there.
            self._drops.applied(end)
        return DONE

    async def _apply(self, record: bytes) -> None:
        message = decode_message(record)
        if message.topic != METADATA_TOPIC:
            return  # a client's message that has the flag
        is_own = self._epoch_start is not None and message.physical_offset >= self._epoch_start
        told = MetadataRecord.decode(message.body)
        if is_own and told.kind in (MetadataKind.CONSUMER_OFFSETS, MetadataKind.DELAY_OFFSETS):
            return  # it has newer ones
        apply = self._appliers.get(told.kind)
        if apply is not None:
            await apply(told.content)
        elif told.kind not in self._passed_over:
            self._passed_over.add(told.kind)
            logger.warning(
                "metadata of another version passed over kind=%s physical_offset=%d", told.kind, message.physical_offset
            )

    def _applier(self, table: DurableTable[R], record: type[R]) -> Callable[[Mapping[str, Any]], Awaitable[None]]:
        async def apply(content: Mapping[str, Any]) -> None:
            put = {name: record.from_json(value) for name, value in content["put"].items()}
            version = content["version"]
            await table.apply(put, content["gone"], None if version is None else DataVersion.from_json(version))

        return apply

    async def _apply_consumer_offsets(self, content: Mapping[str, Any]) -> None:
        for topic, group, queue_id, offset in content["offsets"]:
            self._offsets.follow(group, topic, queue_id, offset)

    async def _apply_delay_offsets(self, content: Mapping[str, Any]) -> None:
        self._schedule.follow(dict(content["offsets"]))

    async def _apply_drop(self, content: Mapping[str, Any]) -> None:
        await self._drops.carry_out(content["born"], [(topic, queue_id) for topic, queue_id in content["queues"]])

    async def _persist(self, positions: Mapping[int, int]) -> None:
        """Write down how far the records are applied; the tables first, of which they have been."""
        dispatched = self._store.dispatched_end()
        next_offset, applied_to = positions[QUEUE_ID], self._applied_to
        if next_offset >= self._store.max_offset(METADATA_TOPIC, QUEUE_ID):
            applied_to = max(applied_to, dispatched)
        await self._offsets.persist()
        await self._schedule.persist()
        if self._writing is not None:
            # That of a task that was cancelled is under way all the same, into the same temporary file.
            await asyncio.wait([self._writing])
        self._writing = asyncio.ensure_future(
            asyncio.to_thread(MetadataPlace(next_offset, applied_to).write, self._path)
        )
        await asyncio.shield(self._writing)

    # Telling ----------------------------------------------------------------------------------------------------

    async def tell(self, kind: MetadataKind, content: Mapping[str, Any], flag: int = METADATA_FLAG) -> PutResult:
        """Append a record. Raises MetadataNotStoredError."""
        if not self.is_leading:
            raise MetadataNotStoredError(f"{kind}: not changed, this broker is not the master of its group")
        result = await self._sink.put(
            InnerMessage(
                topic=METADATA_TOPIC,
                queue_id=QUEUE_ID,
                body=MetadataRecord(kind, dict(content)).encode(),
                born_timestamp=self._clock(),
                born_host=self._store_host,
                store_host=self._store_host,
                flag=flag,
                wait_store_ok=False,
            )
        )
        if result.status is not PutStatus.PUT_OK:
            raise MetadataNotStoredError(f"{kind}: not changed, the log has refused the record: {result.status}")
        return result

    async def applied(self, kind: MetadataKind, result: PutResult) -> None:
        """Wait until what was told is confirmed, and applied here. Raises MetadataError."""
        end = result.physical_offset + result.size
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_S):
                while self.is_leading:
                    if self._log.confirmed >= end and self.next_offset > result.queue_offset:
                        return
                    self._queues.tell(QUEUE_ID)
                    await asyncio.sleep(LOOK_S)
        if not self.is_leading:
            raise MetadataError(f"{kind}: the mastership has ended, the next master may have the change or not")
        raise MetadataError(
            f"{kind}: the members in sync have not confirmed the change within {CONFIRM_S:g} s (log up to {end}, "
            f"confirmed {self._log.confirmed}); it counts once they do"
        )

    async def _tell_drop(self, born: int, queues: Sequence[tuple[str, int]]) -> None:
        content = {"born": born, "queues": queues}
        await self.applied(
            MetadataKind.DROPPED_QUEUES, await self.tell(MetadataKind.DROPPED_QUEUES, content, METADATA_DROP_FLAG)
        )

    async def _tell_offsets(self) -> None:
        if not self.is_leading:
            return
        for group, topic, queue_id, offset in self._offsets.take_changed():
            self._untold[topic, group, queue_id] = offset
        try:
            while self._untold:
                keys = list(islice(self._untold, OFFSETS_MAX))
                changed = [[*key, self._untold[key]] for key in keys]
                await self.tell(MetadataKind.CONSUMER_OFFSETS, {"offsets": changed})
                for key in keys:
                    del self._untold[key]
                await asyncio.sleep(0)
            levels = self._schedule.offsets
            moved = [[level, offset] for level, offset in levels.items() if self._told_levels.get(level) != offset]
            if moved:
                await self.tell(MetadataKind.DELAY_OFFSETS, {"offsets": moved})
                self._told_levels = levels
        except MetadataNotStoredError as error:
            logger.debug("offsets not told, they will be error=%s", error)

    # Whole tables -----------------------------------------------------------------------------------------------

    def marking(self, handler: Handler) -> Handler:
        """Let the answers of *handler*, with a whole table each, say what is in it."""

        async def handle(channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
            next_offset = self.next_offset  # of the table as it is before it becomes text
            reply = await handler(channel, request)
            if reply is not None:
                reply.ext_fields = {**(reply.ext_fields or {}), METADATA_OFFSET: str(next_offset)}
            return reply

        return handle

    async def _judge_copy(self, fields: Mapping[str, str], put: Callable[[], Awaitable[None]]) -> None:
        """Put a copy that is no older than what is applied here."""
        async with self._applying:
            if self._copies_tables and not self.is_leading and int(fields.get(METADATA_OFFSET, -1)) >= self.next_offset:
                await put()


class Journal(Generic[R]):
    """The journal of one table."""

    def __init__(self, metadata: Metadata, kind: MetadataKind) -> None:
        self._metadata = metadata
        self._kind = kind
        self._outstanding: PutResult | None = None

    @property
    def is_open(self) -> bool:
        return self._metadata.is_leading

    async def settle(self) -> None:
        """See TableJournal."""
        if self._outstanding is not None:
            await self._metadata.applied(self._kind, self._outstanding)
            self._outstanding = None

    async def write(self, put: Mapping[str, R], gone: Iterable[str], version: DataVersion) -> None:
        """See TableJournal. What needs several records gives its version with the last of them."""
        contents: list[dict[str, Any]] = [
            {"version": None, "put": {name: put[name].to_json() for name in names}, "gone": []}
            for names in parts(list(put), NAMES_MAX)
        ]
        contents += [{"version": None, "put": {}, "gone": names} for names in parts(list(gone), NAMES_MAX)]
        contents = contents or [{"version": None, "put": {}, "gone": []}]
        contents[-1]["version"] = version.to_json()
        for content in contents:
            self._outstanding = await self._metadata.tell(self._kind, content)
        await self.settle()


def parts(names: Sequence[str], count_max: int) -> list[Sequence[str]]:
    """Return *names* in pieces of at most *count_max*."""
    return [names[first : first + count_max] for first in range(0, len(names), count_max)]
