"""A store to test on: a commit log written by the rules, in small files, with verbs to damage it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.layout import BLANK_MAGIC, BLANK_RECORD, FILE_END_MIN_BLANK_SIZE
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.record import PackedHost, Record, decode, encode, record_size
from mqcore.store.paths import StorePaths, file_name
from mqcore.store.queues.index_file import IndexGeometry

GEOMETRY = StoreGeometry(
    commit_log_file_size=4096, consume_queue_file_size=20 * 10, index=IndexGeometry(slot_count=50, entry_count=40)
)
HOST = PackedHost(b"\x7f\x00\x00\x01", 10911)
FIRST_TIMESTAMP = 1_700_000_000_000
STEP_MS = 1000
COUNTED = (0, int(SysFlag.TRANSACTION_COMMIT))


@contextlib.contextmanager
def memory_directory() -> Iterator[Path]:
    """A temporary directory, in memory where there is such a thing."""
    parent = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=parent if parent.is_dir() else None) as path:
        yield Path(path)


def properties_text(properties: dict[str, str]) -> bytes:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()


class StoreBuilder:
    """Appends records as a broker does: file ends with fillers, dense queue offsets, rising store times."""

    def __init__(self, root: Path, geometry: StoreGeometry = GEOMETRY, start: int = 0) -> None:
        self.paths = StorePaths.at(root)
        self.geometry = geometry
        self.paths.make_directories()
        self.end = start
        self.timestamp = FIRST_TIMESTAMP
        self.records: list[Record] = []
        self.next_offsets: dict[tuple[str, int], int] = {}

    # Writing

    def append(
        self,
        topic: str = "TopicA",
        queue_id: int = 0,
        body: bytes = b"hello",
        sys_flag: int = 0,
        queue_offset: int | None = None,
        store_timestamp: int | None = None,
        flag: int = 0,
        **properties: str,
    ) -> Record:
        """Append one message and return it as stored."""
        counted = sys_flag & TRANSACTION_MASK in COUNTED
        next_offset = self.next_offsets.get((topic, queue_id), 0) if queue_offset is None else queue_offset
        record = Record(
            queue_id=queue_id,
            flag=flag,
            queue_offset=next_offset if counted else 0,
            physical_offset=0,
            sys_flag=sys_flag,
            born_timestamp=self.timestamp - 1,
            born_host=HOST,
            store_timestamp=self.timestamp if store_timestamp is None else store_timestamp,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=body,
            topic=topic.encode(),
            properties=properties_text(properties),
        )
        self.timestamp += STEP_MS
        if counted:
            self.next_offsets[(topic, queue_id)] = next_offset + 1
        return self._write(record)

    def append_many(self, count: int, **options: object) -> list[Record]:
        """Append *count* messages to queues 0 and 1 in turn, each with a tag, a key and a unique key."""
        start = len(self.records)
        return [
            self.append(queue_id=number % 2, body=b"body %d" % number, TAGS=f"T{number % 3}", KEYS=f"k{number}",
                        UNIQ_KEY=f"U{number}", **options)  # type: ignore[arg-type]
            for number in range(start, start + count)
        ]  # fmt: skip

    def _write(self, record: Record) -> Record:
        free = self.geometry.commit_log_file_size - self.end % self.geometry.commit_log_file_size
        if record_size(record) + FILE_END_MIN_BLANK_SIZE > free:
            self.write(self.end, BLANK_RECORD.struct.pack(free, BLANK_MAGIC))
            self.end += free
        fields = {name: getattr(record, name) for name in Record.__slots__} | {"physical_offset": self.end}
        data = encode(Record(**fields))
        self.write(self.end, data)
        stored = decode(data, self.end)
        self.records.append(stored)
        self.end += len(data)
        return stored

    def write(self, offset: int, data: bytes) -> None:
        """Write *data* at *offset* of the commit log; the file is made if it is not there."""
        path = self.log_file(offset)
        if not path.exists():
            path.write_bytes(bytes(self.geometry.commit_log_file_size))
        with path.open("r+b") as file:
            file.seek(offset % self.geometry.commit_log_file_size)
            file.write(data)

    # Looking

    def log_file(self, offset: int) -> Path:
        """Return the commit log file that holds *offset*."""
        return self.paths.commit_log / file_name(offset - offset % self.geometry.commit_log_file_size)

    def log_bytes(self, start: int, end: int) -> bytes:
        """Return a range of the commit log that lies in one file."""
        position = start % self.geometry.commit_log_file_size
        return self.log_file(start).read_bytes()[position : position + end - start]

    def runs(self) -> Iterator[tuple[int, bytes]]:
        """Give the records of each file: where they start, and their bytes."""
        size = self.geometry.commit_log_file_size
        for start in sorted({record.physical_offset // size * size for record in self.records}):
            own = [record for record in self.records if start <= record.physical_offset < start + size]
            end = own[-1].physical_offset + own[-1].total_size
            yield own[0].physical_offset, self.log_bytes(own[0].physical_offset, end)

    def files(self) -> dict[str, bytes]:
        """Return every file of the store by its path under the root."""
        root = self.paths.root
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}

    # Damaging

    def crash(self) -> None:
        """Leave the store as a broker leaves it that did not stop cleanly."""
        self.paths.abort.touch()

    def flip(self, offset: int, bits: int = 0x01) -> None:
        """Flip bits of one byte of the commit log."""
        byte = self.log_bytes(offset, offset + 1)[0]
        self.write(offset, bytes([byte ^ bits]))

    def copy_to(self, root: Path) -> StoreBuilder:
        """Return a copy of the store under *root*, in the same state."""
        shutil.copytree(self.paths.root, root)
        other = StoreBuilder(root, self.geometry)
        other.end, other.timestamp = self.end, self.timestamp
        other.records = list(self.records)
        other.next_offsets = dict(self.next_offsets)
        return other
