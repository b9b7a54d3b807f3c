"""How far a job is, on a stream, every few seconds: for programs that run for hours without a word of their own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S: Final = 5.0


def task_counts(spark: SparkSession) -> tuple[int, int]:
    """Return the finished tasks and all tasks of the stages that are running now."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


@contextmanager
def progress(
    spark: SparkSession, what: str, stream: TextIO = sys.stderr, interval_s: float = INTERVAL_S
) -> Iterator[None]:
    """Print a line about *what* every *interval_s* seconds while tasks run, and one at the end."""
    done = threading.Event()

    def report() -> None:
        last = (0, 0)
        while not done.wait(interval_s):
            counts = task_counts(spark)
            if counts[1] and counts != last:
                print(f"{what}: {counts[0]} of {counts[1]} tasks done", file=stream, flush=True)
                last = counts

    thread = threading.Thread(target=report, name=f"progress of {what}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    print(f"{what}: done", file=stream, flush=True)
