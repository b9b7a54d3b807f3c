"""Where a group has got to in each queue, and where that is kept.

A clustering group's offsets live at the brokers; a broadcasting member's in a file of its own, if the user named a
place, else nowhere. Updates go to memory; the consumer persists what it holds every few seconds and when it gives up a
queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mqcore.errors import MQError, StoreError
from mqcore.files import read_with_backup, write_atomically
from mqcore.protocol import fastjson
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.instance import ClientInstance

logger = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """The offset of the next message to consume, by queue."""

    def known(self, queue: MessageQueue) -> int | None:
        """Return the offset in memory."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the offset in memory; with *increase_only* never backwards."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory; what is stored stays."""

    async def stored(self, queue: MessageQueue) -> int | None:
        """Read what is stored, also into memory; None when nothing is. Raises MQError when that cannot be known."""

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Store the offsets of *queues*, with *wait* until that is done. Failures are logged; the next round mends."""


class MemoryOffsets:
    """The part that all stores share."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    async def stored(self, queue: MessageQueue) -> int | None:
        return self.known(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Nothing outlives a broadcasting member without a file."""


class RemoteOffsets(MemoryOffsets):
    """Offsets at the brokers. Source: RocketMQ RemoteBrokerOffsetStore.java."""

    def __init__(self, hub: ClientInstance, group: str) -> None:
        super().__init__()
        self._hub = hub
        self._group = group

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

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Send the offsets, also unchanged ones: a broker that lost its last seconds in a crash learns them again.

        Java never waits. Whoever leaves or gives a queue up should: the next owner reads the offset a moment later.
        """
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is None:
                continue
            try:
                address = await self._hub.any_address(queue)
                await self._hub.api.update_consumer_offset(address, self._group, queue, offset, wait=wait)
            except MQError as error:
                logger.warning(
                    "offset not persisted group=%s queue=%s offset=%d: %s", self._group, queue, offset, error
                )


class FileOffsets(MemoryOffsets):
    """Offsets in ``<directory>/<client id>/<group>/offsets.json``, as Java writes it.

    Source: RocketMQ LocalFileOffsetStore.java.
    """

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        super().__init__()
        self._path = directory / client_id / group / "offsets.json"

    async def stored(self, queue: MessageQueue) -> int | None:
        offset = self._read().get(queue)
        if offset is not None:
            self._offsets[queue] = offset
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Merge into the file; entries of queues that are not held stay."""
        held = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
        if not held:
            return
        table = self._read() | held
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"offsetTable": {queue.json_key(): offset for queue, offset in table.items()}}
        write_atomically(self._path, fastjson.dumps(content, pretty=True))

    def _read(self) -> dict[MessageQueue, int]:
        """Read the file, or its backup; StoreError when both exist and neither can be read."""
        try:
            data = read_with_backup(self._path)
            if not data:
                return {}
            table = fastjson.loads(data)["offsetTable"]
            return {MessageQueue.from_json(key): int(offset) for key, offset in table.items()}
        except FileNotFoundError:
            return {}
        except (KeyError, TypeError, ValueError, MQError) as error:
            raise StoreError(f"cannot read offsets from {self._path}: {error}") from error
