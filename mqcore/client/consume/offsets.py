"""Where a group has got to in each queue, and where that is kept.

A clustering group's offsets live at the brokers; a broadcasting member's in a file of its own, if the user named a
place, else nowhere. Updates go to memory; the consumer persists what it holds every few seconds and when it gives up a
queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mqcore.cause_log import CauseLog
from mqcore.client.model.namespace import Namespace
from mqcore.client.session.failures import is_gone
from mqcore.errors import BrokerError, MQError, RemotingError, StoreError
from mqcore.files import backup_of, make_directory, write_atomically
from mqcore.protocol import fastjson
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.session.session import Session

log = CauseLog(logging.getLogger(__name__))

MASTER_WAIT_S = 2.0
"""How long a commit waits for a new master, for all queues of a broker together."""


class OffsetStore(Protocol):
    """The offset of the next message to consume, by queue."""

    async def load(self) -> None:
        """Raise StoreError when what is stored cannot be read; called once, before anything else."""

    def known(self, queue: MessageQueue) -> int | None:
        """Return the offset in memory."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the offset in memory; with *increase_only* never backwards."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory; what is stored stays."""

    async def stored(self, queue: MessageQueue) -> int | None:
        """Read what is stored, also into memory; None when nothing is. Raises MQError when that cannot be known."""

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets of *queues* and return when they are stored. Failures are logged; the next round mends."""


class MemoryOffsets:
    """The part that all stores share."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """Nothing is stored here."""

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    async def stored(self, queue: MessageQueue) -> int | None:
        return self.known(queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Nothing outlives a broadcasting member without a file."""


class RemoteOffsets(MemoryOffsets):
    """Offsets at the brokers. Source: RocketMQ RemoteBrokerOffsetStore.java."""

    def __init__(self, hub: Session, group: str) -> None:
        super().__init__()
        self._hub = hub
        self._group = group
        self._persisting = asyncio.Lock()

    async def stored(self, queue: MessageQueue) -> int | None:
        """Ask the queue's broker.

        Only the broker's "not found" means that nothing is stored. (4.9's Java client takes every refusal for that, and
        so may start a group at the end of a queue because its broker was busy; 5.x corrects it as we do.)
        """
        address = await self._hub.any_address(queue)
        offset = await self._hub.api.query_consumer_offset(address, self._group, queue)
        if offset is not None:
            self._offsets[queue] = offset
        return offset

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Send the offsets, also unchanged ones: a broker that lost its last seconds in a crash learns them again.

        One after the other for each broker, and each waits for its answer, which Java does not. Apache's broker may
        work on commits side by side: an older one can win, and of a group's first ones all but one can be lost. And who
        leaves the group can so be sure that the next owner finds what was committed.
        """
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            if queue in self._offsets:
                by_broker[queue.broker_name].append(queue)
        async with self._persisting:
            await asyncio.gather(*(self._persist_at_one_broker(held) for held in by_broker.values()))

    async def _persist_at_one_broker(self, queues: list[MessageQueue]) -> None:
        wait_until_s = asyncio.get_running_loop().time() + MASTER_WAIT_S
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is None:
                continue
            try:
                await self._store(queue, offset, wait_until_s)
            except BrokerError as error:
                log.warning("offset refused", group=self._group, queue=queue, offset=offset, error=error)
            except MQError as error:
                log.warning(
                    "offsets not persisted", group=self._group, broker=queue.broker_name, count=len(queues), error=error
                )
                return  # the broker does not answer: the others would wait in vain too

    async def _store(self, queue: MessageQueue, offset: int, wait_until_s: float) -> None:
        """Send one offset to the queue's broker. Its new master, if it has lost it, is waited for until then.

        What is sent then is what has been consumed by then: a pull may have committed that already.
        """
        clock = asyncio.get_running_loop().time
        while True:
            address = await self._hub.any_address(queue)
            offset = self._offsets.get(queue, offset)
            try:
                await self._hub.api.update_consumer_offset(address, self._group, queue, offset)
            except (BrokerError, RemotingError) as error:
                left_s = wait_until_s - clock()
                if not is_gone(error) or not await self._hub.masters.wait(queue.broker_name, address, left_s):
                    raise
            else:
                return


class FileOffsets(MemoryOffsets):
    """Offsets in ``<directory>/<client id>/<group>/offsets.json``, as Java writes it.

    Source: RocketMQ LocalFileOffsetStore.java.
    """

    def __init__(self, directory: Path, client_id: str, group: str, namespace: Namespace | None = None) -> None:
        super().__init__()
        self._names = Namespace() if namespace is None else namespace
        self._path = directory / client_id / self._names.wrap(group) / "offsets.json"
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        self._read()

    async def stored(self, queue: MessageQueue) -> int | None:
        offset = self._read().get(queue)
        if offset is not None:
            self._offsets[queue] = offset
        return offset

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Merge into the file; entries of queues that are not held stay."""
        held = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
        if not held:
            return
        async with self._writing:
            offsets = (self._read() | held).items()
            table = {self._names.wrap_queue(queue).json_key(): offset for queue, offset in offsets}
            await asyncio.to_thread(self._write, fastjson.dumps({"offsetTable": table}, pretty=True))

    def _write(self, content: bytes) -> None:
        make_directory(self._path.parent)
        write_atomically(self._path, content)

    def _read(self) -> dict[MessageQueue, int]:
        """Read the file, or its backup; StoreError when there is something and neither can be read."""
        failure: Exception | None = None
        for path in (self._path, backup_of(self._path)):
            try:
                table = fastjson.loads(path.read_bytes())["offsetTable"]
                unwrap = self._names.unwrap_queue
                return {unwrap(MessageQueue.from_json(key)): int(offset) for key, offset in table.items()}
            except FileNotFoundError:
                continue
            except (KeyError, TypeError, ValueError, AttributeError, MQError) as error:
                log.warning("offsets cannot be read", path=path, error=error)
                failure = error
        if failure is not None:
            raise StoreError(f"cannot read offsets from {self._path} or its backup: {failure}") from failure
        return {}
