from collections.abc import Sequence
from typing import TypedDict

from benchmarks.harness.frames import FrameTemplate

class RunCounts(TypedDict):
    messages: int
    answers: int
    elapsed_ns: int
    all_messages: int
    codes: dict[int, int]
    unsound: int
    bytes_in: int
    bytes_out: int
    slowest_ns: int
    buckets: list[int]

def bucket_of(value_ns: int) -> int: ...

class Engine:
    def __init__(
        self,
        fds: Sequence[int],
        window: int,
        templates: Sequence[FrameTemplate],
        end_offsets: Sequence[int],
        queue_count: int,
        messages_per_send: int = 1,
        ends_transactions: bool = False,
    ) -> None: ...
    def run(self, seconds: float, request_limit: int = 0) -> RunCounts: ...
