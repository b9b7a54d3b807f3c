from typing_extensions import Buffer

from mqcore._fast.segment.boards import SharedSegment

class OffsetText(Buffer):
    def __len__(self) -> int: ...

def offset_text(segment: SharedSegment, with_light: bool, foreign: bytes) -> OffsetText | None: ...
def committed_offsets(
    segment: SharedSegment, group: bytes | None, topic: bytes | None
) -> list[tuple[bytes, bytes, int, int]]: ...
