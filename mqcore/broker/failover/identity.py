"""Who this store is in its group, kept on disk: what is noted here outlives the process, and mostly the machine."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mqcore.errors import GroupIdentityError
from mqcore.store.failover_files import FailoverFiles, Identity

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class IdentityKeeper:
    """The identity as it is now. A change is on disk when the call returns."""

    def __init__(self, files: FailoverFiles, cluster: str, broker_name: str) -> None:
        """Raises GroupIdentityError for a store of another broker name, CorruptFileError."""
        self.files = files
        found = files.read_identity()
        self.is_new = found is None
        self.now = found or Identity(cluster, broker_name, None, uuid.uuid4().hex)
        wanted = (cluster, broker_name)
        if (self.now.cluster, self.now.broker_name) != wanted:
            raise GroupIdentityError(
                f"this store is of {self.now.broker_name} in {self.now.cluster}, and is started as {broker_name} in"
                f" {cluster}"
            )

    def change(self, **changes: Any) -> None:
        """Note *changes*, if they are any."""
        changed = replace(self.now, **changes)
        if changed != self.now or self.is_new:
            self.files.write_identity(changed)
            self.now, self.is_new = changed, False

    def begin(self, *, acks_flushed: bool) -> None:
        """Note that a process runs, and whether the log can have lost what it acknowledged.

        It cannot if the process before it stopped in order, or the kernel that had its pages is the same, or only what
        was on disk was acknowledged.
        """
        boot_id = BOOT_ID.read_text().strip()
        is_whole = self.now.stopped_cleanly or self.now.boot_id == boot_id or acks_flushed or not self.now.boot_id
        self.change(boot_id=boot_id, stopped_cleanly=False, is_trusted=self.now.is_trusted and is_whole)

    def raise_floor(self) -> None:
        """Note before a life what the store has had: what was confirmed was acknowledged before.

        A log that ends before it now has lost something, whatever the kernel says.
        """
        self.change(floor=max(self.now.floor, self.files.read_confirmed() or 0))
