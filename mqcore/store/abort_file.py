"""The file ``abort``: it exists while a broker runs, so one that is found at start tells of a crash."""

from __future__ import annotations

from pathlib import Path

from mqcore.files import delete_file, sync_directory


class AbortFile:
    """Make it before the first byte is written, remove it as the last act of a clean stop. Its content is not read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        return self.path.exists()

    def create(self) -> None:
        """Make the file, durably; one that is there stays."""
        self.path.touch()
        sync_directory(self.path.parent)

    def remove(self) -> None:
        """Remove the file, durably."""
        delete_file(self.path)
