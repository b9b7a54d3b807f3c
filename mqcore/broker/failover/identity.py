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

    def begin(self, *, mount: str, acks_flushed: bool) -> None:
        """Note that a process runs, over files of *mount*, and whether the log can have lost what it acknowledged.

        It cannot if the process before it stopped in order, or its pages are still where they were, with the same
        kernel and mount, or if it acknowledged only what was on disk.
        """
        now, boot_id = self.now, BOOT_ID.read_text().strip()
        has_pages = (now.boot_id, now.mount) == (boot_id, mount)
        is_whole = now.stopped_cleanly or has_pages or now.acks_flushed or not now.boot_id
        self.change(
            boot_id=boot_id,
            mount=mount,
            acks_flushed=acks_flushed,
            stopped_cleanly=False,
            is_trusted=now.is_trusted and is_whole,
        )

    def raise_floor(self) -> None:
        """Note before a life what the store has had: what was confirmed was acknowledged before.

        A log that ends before it now has lost something, whatever the kernel says.
        """
        self.change(floor=max(self.now.floor, self.files.read_confirmed() or 0))
