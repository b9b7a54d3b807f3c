"""The properties file of a broker or a name server, as an administrator's changes are written to it."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from mqcore.config.properties import edit_properties
from mqcore.files import write_atomically

NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def rewrite_file(path: Path, changes: Mapping[str, str]) -> bool:
    """Make *changes* in the properties file *path*, whose old text stays as its .bak; the rest is left as it is.

    RocketMQ writes every setting that it has, defaults too: the address and the name that were found on one machine
    would then hold on another. False if the file may not be written, as where it is part of an image: RocketMQ, too,
    makes the change all the same. Raises OSError for everything else.
    """
    path = path.resolve()  # a link stays one
    # As bytes, one character each: whatever encoding it has, what is not changed stays what it was.
    text = path.read_bytes().decode("iso-8859-1") if path.exists() else ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, edit_properties(text, changes).encode("iso-8859-1"))
    except OSError as error:
        if error.errno not in NOT_ALLOWED:
            raise
        return False
    return True
