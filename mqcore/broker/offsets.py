"""How far each group has consumed each queue.

The offsets themselves are in an ``OffsetTable``, which the pull worker writes too; this reads and writes them for
requests, finds topics and groups among them, and keeps ``consumerOffset.json``.
Source: RocketMQ broker/offset/ConsumerOffsetManager.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqcore.broker.config_file import ConfigFile
from mqcore.broker.ports import OffsetTable
from mqcore.protocol import fastjson
from mqcore.protocol.names import is_lmq

logger = logging.getLogger(__name__)

NO_OFFSET = -1
SEPARATOR = "@"
LIGHT_TABLE = "lmqOffsetTable"
"""In lmqConsumerOffset.json: the offsets of groups named like light queues, of the one queue that a light queue has."""

LIGHT_QUEUE_ID = 0


class ConsumerOffsetManager:
    """The consumer offsets of one broker."""

    def __init__(self, table: OffsetTable, file: ConfigFile, light_file: ConfigFile | None = None) -> None:
        """*light_file*, given where light queues are enabled, takes the place of *file*."""
        self._table = table
        self._file = file
        self._light_file = light_file
        self._foreign: dict[str, dict[int, int]] = {}

    def load(self) -> None:
        """Fill the table from the file. Entries whose key is not ``topic@group`` are kept for the file only.

        A store whose light queues have just been enabled goes on with what the other file says.
        """
        self.merge((self._light_file and self._light_file.load()) or self._file.load() or {})

    def merge(self, loaded: Mapping[str, Any]) -> None:
        """Put the offsets of *loaded*, the content of such a file, over those that are there."""
        for key, offset in (loaded.get(LIGHT_TABLE) or {}).items():
            topic, _, group = key.partition(SEPARATOR)
            self._table.put(group, topic, LIGHT_QUEUE_ID, int(offset))
        for key, queues in (loaded.get("offsetTable") or {}).items():
            offsets = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            topic, separator, group = key.partition(SEPARATOR)
            if not (topic and separator and group):
                self._foreign[key] = offsets
                continue
            for queue_id, offset in offsets.items():
                self._table.put(group, topic, queue_id, offset)

    async def persist(self) -> None:
        """Write the file. The table may be large: it becomes text in a thread that leaves the interpreter alone."""
        file = self._light_file or self._file
        foreign = fastjson_entries(self._foreign)
        if not await file.write_text(lambda: self._table.text(self._light_file is not None, foreign, True)):
            await file.write(self.to_json())

    async def all_text(self) -> bytes:
        """Return the table as GET_ALL_CONSUMER_OFFSET has it."""
        foreign = fastjson.dumps(self._foreign)[1:-1]
        text = await asyncio.to_thread(self._text, foreign)
        return fastjson.dumps(self.to_json()) if text is None else text

    def _text(self, foreign: bytes) -> bytes | None:
        text = self._table.text(self._light_file is not None, foreign, False)
        return None if text is None else bytes(text)

    def to_json(self) -> dict[str, Any]:
        """Return the table as its file has it; an object for each offset."""
        table: dict[str, dict[int, int]] = {}
        light: dict[str, int] = {}
        for group, topic, queue_id, offset in self._table.items():
            key = f"{topic}{SEPARATOR}{group}"
            if self._light_file is not None and is_lmq(group) and queue_id == LIGHT_QUEUE_ID:
                light[key] = offset
            else:
                table.setdefault(key, {})[queue_id] = offset
        value = {"offsetTable": {key: dict(sorted(queues.items())) for key, queues in (table | self._foreign).items()}}
        return value if self._light_file is None else {LIGHT_TABLE: light} | value

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, NO_OFFSET if there is none."""
        offset = self._table.get(group, topic, queue_id)
        return NO_OFFSET if offset is None else offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset that the group's last pull was told to go on at, 0 if it has not pulled since the start."""
        return self._table.pulled(group, topic, queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str) -> None:
        """Store *offset*; a lower one than before is stored too, and logged."""
        before = self.query(group, topic, queue_id)
        if offset < before:
            logger.warning(
                "offset goes back group=%s topic=%s queue_id=%d from=%d to=%d client=%s",
                group, topic, queue_id, before, offset, client,
            )  # fmt: skip
        self._table.put(group, topic, queue_id, offset)

    def accept(self, group: str, topic: str, queue_id: int, offset: int, client: str) -> None:
        """Store what a client has come to; less, if this broker has other messages there than it has read."""
        self.commit(group, topic, queue_id, self._table.believed(group, topic, queue_id, offset), client)

    def follow(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store what the master of a group of brokers has; NO_OFFSET takes it away."""
        self._table.put(group, topic, queue_id, offset)

    def take_changed(self) -> Iterable[tuple[str, str, int, int]]:
        """Take (group, topic, queue_id, offset) of what has changed since the last time; NO_OFFSET was taken away."""
        return self._table.take_changed()

    async def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return queue id to offset for one group and topic; empty if it has none."""
        return {q: offset for _, _, q, offset in await self._table.find(group, topic)}

    async def topics_of(self, group: str) -> list[str]:
        """Return the topics that *group* has offsets for."""
        return list(dict.fromkeys(topic for _, topic, _, _ in await self._table.find(group, None)))

    async def topics_by_group(self) -> dict[str, list[str]]:
        """Return every group's topics in one walk over the table."""
        topics: dict[str, list[str]] = {}
        for group, topic in await self._table.pairs():
            topics.setdefault(group, []).append(topic)
        return topics

    async def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets for *topic*."""
        return list(dict.fromkeys(group for group, _, _, _ in await self._table.find(None, topic)))

    async def clone(self, source: str, target: str, topic: str) -> None:
        """Give *target* the offsets of *source* for *topic*; what it had for other queues of the topic goes."""
        queues = await self.queues(source, topic)
        if not queues:
            return
        await self._table.remove(target, topic)
        for queue_id, offset in queues.items():
            self._table.put(target, topic, queue_id, offset)

    async def remove_group(self, group: str) -> None:
        """Forget every offset of *group*."""
        await self._table.remove(group, None)

    async def remove_topic(self, topic: str) -> None:
        """Forget every group's offsets of *topic*.

        4.9.8 keeps them, so that a topic made again under the name is skipped up to the old offsets; 5.x does this.
        """
        await self._table.remove(None, topic)

    async def lowest_offsets(
        self, topic: str, filtered_groups: Iterable[str], min_offset: Callable[[str, int], int]
    ) -> dict[int, int]:
        """Return per queue the smallest offset of any group that is not below the queue's own *min_offset*.

        Source: queryMinOffsetInAllGroup. There the filtered groups lose their offsets for good; here they are only
        left out, since a query must not make a consumer start anew. The answer is the same.
        """
        filtered = set(filtered_groups)
        lowest: dict[int, int] = {}
        for group, _, queue_id, offset in await self._table.find(None, topic):
            if group not in filtered and offset >= min_offset(topic, queue_id):
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return lowest


def fastjson_entries(table: Mapping[str, Mapping[int, int]]) -> bytes:
    """Return entries of an offset table as they are written in its file."""
    entries = []
    for key, queues in table.items():
        offsets = ",".join(f"{queue_id}:{offset}" for queue_id, offset in sorted(queues.items()))
        shown = f"{{{offsets}\n\t\t}}" if offsets else "{}"
        entries.append(f"\n\t\t{fastjson.dumps(key).decode()}:{shown}")
    return ",".join(entries).encode()
