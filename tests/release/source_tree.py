"""The tracked files of this checkout somewhere else, and a source distribution of them that is the same each time."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
OWN_MODE: Final = 0o644
RUN_MODE: Final = 0o755


def copy_tree(target: Path) -> Path:
    """Copy what git knows of, and new files that it does not ignore, as they are now, links as links."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not os.path.lexists(ROOT / name):
            continue  # deleted, and not committed yet
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


def source_date() -> str:
    """Return SOURCE_DATE_EPOCH: what is set, else the time of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    log = ("git", "log", "-1", "--format=%ct")
    return subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def make_sdist(tree: Path, target: Path) -> Path:
    """Make the source distribution of *tree* in the directory *target*; its path."""
    made = target / "made"
    # Nothing is compiled for it, and so Cython need not look at anything.
    run = ("-c", f"import setuptools.build_meta as b; b.build_sdist({str(made)!r})")
    made.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, *run],
        cwd=tree, env={**os.environ, "MQ_BUILD_EXTENSIONS": "0"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (path,) = made.glob("*.tar.gz")
    return same_each_time(path, target / path.name)


def same_each_time(source: Path, target: Path) -> Path:
    """Pack *source* anew, without the times, users and order of this build, which setuptools leaves in."""
    date = int(source_date())
    packed = io.BytesIO()
    with tarfile.open(source) as archive, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as anew:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = date, 0, 0, "", ""
            member.mode = RUN_MODE if member.isdir() or member.mode & 0o100 else OWN_MODE
            member.pax_headers = {}
            anew.addfile(member, archive.extractfile(member) if member.isfile() else None)
    target.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=date))
    source.unlink()
    source.parent.rmdir()
    return target
