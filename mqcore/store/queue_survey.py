"""The bounds of every consume queue of a store at rest: a glance at each, and a close look where the glance wonders.

A store may have hundreds of thousands of queues. The glance (``_fast/queues/survey.pyx``) maps nothing and takes some
15 us for a queue; the close look is ``ConsumeQueue``, and with ``MQ_PURE=1`` it is all there is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mqcore.layout import PRE_FILL_SIZE
from mqcore.store.codec import cut_topic, survey_topic
from mqcore.store.geometry import StoreGeometry
from mqcore.store.incarnations import QueueKey
from mqcore.store.paths import StorePaths, file_name, is_topic
from mqcore.store.queues.consume_queue import ConsumeQueue, QueueState
from mqcore.store.queues.units import Unit

NO_BIRTHS: Final[Mapping[QueueKey, int]] = {}
THREADS: Final = 8
"""The glances of several topics run side by side: a store that has just been mounted is read from the disk."""

logger = logging.getLogger(__name__)


def survey(
    paths: StorePaths, geometry: StoreGeometry, commit_log_min: int, births: Mapping[QueueKey, int] = NO_BIRTHS
) -> Iterator[QueueState]:
    """Give the bounds of each queue, in order of topic and number.

    *births* say from where in the log on a queue that was dropped has its records. A queue's files are checked as
    ``MappedFileQueue.load`` does; raises CorruptFileError as that, and OSError.
    """
    size = geometry.consume_queue_file_size

    def glance(topic: Path) -> list[tuple[int, bool, int, int, int]]:
        return survey_topic(os.fsencode(topic), size, commit_log_min)

    with ThreadPoolExecutor(THREADS) as pool:
        topics = topic_directories(paths)
        for topic, found in zip(topics, pool.map(glance, topics), strict=True):
            for queue_id, is_odd, min_offset, max_offset, max_physical in found:
                born = births.get((topic.name, queue_id), 0)
                if is_odd or born:
                    yield look_closely(paths, topic.name, queue_id, geometry, max(commit_log_min, born))
                else:
                    yield QueueState(
                        topic=topic.name,
                        queue_id=queue_id,
                        min_offset=min_offset,
                        max_offset=max_offset,
                        max_physical=max_physical,
                    )


def cut(
    paths: StorePaths, geometry: StoreGeometry, end: int, is_record: Callable[[Unit], bool] | None = None
) -> list[str | Path]:
    """Drop the units of records at *end* or behind it from all queues; the files that have to be synced.

    With *is_record* torn units before it go, too. It is what ``ConsumeQueue.truncate`` does for one, done at a glance
    where that is enough. Raises OSError.
    """
    size = geometry.consume_queue_file_size

    def glance(topic: Path) -> list[tuple[int, bool, int, bool, int, int]]:
        return cut_topic(os.fsencode(topic), size, end)

    changed: list[str | Path] = []
    with ThreadPoolExecutor(THREADS) as pool:
        topics = topic_directories(paths)
        for topic, found in zip(topics, pool.map(glance, topics), strict=True):
            for queue_id, is_odd, start, is_cut, physical_offset, record_size in found:
                if is_cut and not is_odd:
                    # As text: there may be 200,000, and to join paths takes longer than to cut.
                    changed.append(f"{topic}/{queue_id}/{file_name(start)}")
                if is_odd or (
                    is_record is not None
                    and record_size not in (0, PRE_FILL_SIZE)
                    and not is_record(Unit(physical_offset, record_size, 0))
                ):
                    queue = ConsumeQueue(paths, topic.name, queue_id, size, geometry.ext_file_size)
                    changed += queue.truncate(end, is_record)
                    queue.close()
    return changed


def look_closely(
    paths: StorePaths, topic: str, queue_id: int, geometry: StoreGeometry, commit_log_min: int
) -> QueueState:
    """Return the bounds of one queue as its last three files tell, read through. Raises CorruptFileError, OSError."""
    queue = ConsumeQueue(paths, topic, queue_id, geometry.consume_queue_file_size, geometry.ext_file_size)
    queue.files.load()
    return queue.recover(commit_log_min)


def topic_directories(paths: StorePaths) -> list[Path]:
    """Return the directories of the topics that have consume queues, in order. Other entries are passed over."""
    if not paths.consume_queue.is_dir():
        return []
    found = []
    for entry in sorted(os.scandir(paths.consume_queue), key=lambda entry: entry.name):
        if not entry.is_dir() or not is_topic(entry.name):
            logger.warning("not the directory of a topic path=%s", entry.path)
            continue
        found.append(Path(entry.path))
    return found
