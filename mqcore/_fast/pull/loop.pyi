from typing import Any

from mqcore._fast.segment.boards import SharedSegment

class PullLoop:
    def __init__(self, segment: SharedSegment, options: dict[str, Any]) -> None: ...
    def run(self) -> None: ...
