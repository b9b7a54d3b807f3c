"""Queues whose messages have all expired: no record says any more where they go on, and consumers stand there.

A backup has no consume queues, for records tell the place of each message. Of these it notes the last unit, and a
restored store begins with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mqcore.errors import OffsetOutOfRangeError
from mqcore.files import make_directory, make_sized_file
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.backup.manifest import OldQueue
from mqcore.store.codec import survey_topic
from mqcore.store.paths import StorePaths, file_name, is_topic
from mqcore.store.queue_directories import is_queue_id
from mqcore.store.queue_survey import topic_directories
from mqcore.store.queues.consume_queue import to_unit
from mqcore.store.reader_files import list_files
from mqcore.store.reader_queues import QueueUnits

LOG_END_MAX = 1 << 62


def queue_file_size(paths: StorePaths) -> int:
    """Return mappedFileSizeConsumeQueue, as the first file that is met shows it; 0 without one."""
    for topic in topic_directories(paths):
        for queue in _entries(topic):
            for _, _, size in list_files(queue):
                if size % CONSUME_QUEUE_UNIT.size == 0:
                    return size
    return 0


def find_old_queues(paths: StorePaths, file_size: int, log_start: int) -> list[OldQueue]:
    """Return the queues that have no record at *log_start* or behind it, and had some."""
    found = []
    for topic in topic_directories(paths):
        for queue_id, is_odd, _, max_offset, max_physical in survey_topic(os.fsencode(topic), file_size, 0):
            if is_odd or (max_offset > 0 and max_physical <= log_start):
                queue = _look(paths, topic.name, queue_id)
                if queue is not None and queue.physical_offset + queue.record_size <= log_start:
                    found.append(queue)
    return found


def _look(paths: StorePaths, topic: str, queue_id: int) -> OldQueue | None:
    """Return a queue by its last unit; None if it has none that is of a record."""
    units = QueueUnits(paths.queue(topic, queue_id), topic, queue_id, 0, LOG_END_MAX, paths.queue_ext(topic, queue_id))
    try:
        end, unit = 0, None
        for first, run in units.runs():
            end, unit = first + len(run), to_unit(run[-1])
        if unit is None:
            return None
        return OldQueue(topic, queue_id, end, unit.physical_offset, unit.record_size, unit.tags_code)
    except (FileNotFoundError, OffsetOutOfRangeError):
        return None  # dropped meanwhile
    finally:
        units.close()


def _entries(topic: Path) -> Iterator[Path]:
    try:
        for entry in sorted(topic.iterdir()):
            if is_queue_id(entry.name):
                yield entry
    except FileNotFoundError:
        return


def write_old_queue(paths: StorePaths, file_size: int, queue: OldQueue) -> None:
    """Make the queue's last file, as long as it was: places are held, and the last unit is what it was."""
    assert is_topic(queue.topic)
    last = queue.max_offset - 1
    start = last * CONSUME_QUEUE_UNIT.size // file_size * file_size
    held = last - start // CONSUME_QUEUE_UNIT.size
    place = CONSUME_QUEUE_UNIT.struct.pack(0, PRE_FILL_SIZE, 0)
    unit = CONSUME_QUEUE_UNIT.struct.pack(queue.physical_offset, queue.record_size, queue.tags_code)
    directory = paths.queue(queue.topic, queue.queue_id)
    make_directory(directory)
    make_sized_file(directory / file_name(start), file_size, head=place * held + unit)
