from mqcore._fast.queues.dispatch import Dispatcher
from mqcore._fast.segment.boards import SharedSegment
from mqcore.store.geometry import StoreGeometry
from mqcore.store.paths import StorePaths

class LogTail(Dispatcher):
    def __init__(self, paths: StorePaths, geometry: StoreGeometry, segment: SharedSegment) -> None: ...
    def next_offsets(self) -> list[tuple[int, int]]: ...
