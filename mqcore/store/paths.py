"""Where everything lies under storePathRootDir. Source: RocketMQ store/config/StorePathConfigHelper.java."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mqcore.errors import StoreError
from mqcore.files import make_directory
from mqcore.layout import TOPIC_FORM
from mqcore.store.log.places import LogPlaces, file_name

if TYPE_CHECKING:
    from mqcore.config.groups import StoreSettings

__all__ = ["INDEX_NAME_DIGITS", "QUEUE_ID_MAX", "StorePaths", "file_name", "is_topic"]

INDEX_NAME_DIGITS = 17
QUEUE_ID_MAX = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The directories and files of one store. The commit log may lie elsewhere; all else hangs off the root."""

    root: Path
    log: LogPlaces

    @classmethod
    def at(cls, root: str | Path, commit_log: str | Path | LogPlaces | None = None) -> StorePaths:
        """Return the paths of the store in *root*, the commit log in ``commitlog`` unless told otherwise."""
        if not isinstance(commit_log, LogPlaces):
            commit_log = LogPlaces.of([commit_log or Path(root) / "commitlog"])
        return cls(Path(root), commit_log)

    @classmethod
    def of(cls, store: StoreSettings) -> StorePaths:
        """Return where the store of these settings lies."""
        return cls.at(store.root_dir, LogPlaces.of(store.commit_log_dirs, store.read_only_commit_log_dirs))

    @property
    def commit_log(self) -> Path:
        """The first directory of the commit log, as a rule the only one; *log* knows where its files are."""
        return self.log.directories[0]

    @property
    def consume_queue(self) -> Path:
        return self.root / "consumequeue"

    @property
    def consume_queue_ext(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def incarnations(self) -> Path:
        """A file of our own, which RocketMQ leaves alone."""
        return self.root / "mqcore" / "incarnations"

    @property
    def dispatched(self) -> Path:
        """How far a clean stop had dispatched the log; of ours, too."""
        return self.root / "mqcore" / "dispatched"

    @property
    def ha_identity(self) -> Path:
        """Who this store is in a failover group; of ours, as the next two."""
        return self.root / "mqcore" / "ha_identity"

    @property
    def epochs(self) -> Path:
        """Which mastership wrote which part of the log."""
        return self.root / "mqcore" / "epochs"

    @property
    def metadata(self) -> Path:
        """How far tables have followed the log."""
        return self.root / "mqcore" / "metadata"

    @property
    def confirmed(self) -> Path:
        """How far all members in sync are known to have had the log."""
        return self.root / "mqcore" / "confirmed"

    @property
    def timer_wheel(self) -> Path:
        return self.root / "timerwheel"

    @property
    def timer_log(self) -> Path:
        return self.root / "timerlog"

    @property
    def timer_check(self) -> Path:
        return self.config / "timercheck"

    @property
    def timer_metrics(self) -> Path:
        return self.config / "timermetrics"

    @property
    def timers(self) -> Path:
        """What we know of timers beyond RocketMQ's files, in a file of our own."""
        return self.root / "mqcore" / "timers"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def queue(self, topic: str, queue_id: int) -> Path:
        """Return the directory of one consume queue. Raises StoreError for what must not become the name of one."""
        if not is_topic(topic) or not 0 <= queue_id <= QUEUE_ID_MAX:
            raise StoreError(f"no directory for topic {topic!r} queue {queue_id}")
        return self.consume_queue / topic / str(queue_id)

    def queue_ext(self, topic: str, queue_id: int) -> Path:
        """Return the directory of the ext files of one consume queue. Raises StoreError as ``queue``."""
        return self.consume_queue_ext / self.queue(topic, queue_id).relative_to(self.consume_queue)

    def make_directories(self) -> None:
        """Make the directories that are always there, durably. Raises CorruptFileError, see LogPlaces."""
        self.log.make_directories()
        for directory in (self.root, self.consume_queue, self.index, self.config):
            make_directory(directory)


def is_topic(topic: str) -> bool:
    """Whether *topic* may become the name of a directory."""
    return TOPIC_FORM.fullmatch(topic) is not None
