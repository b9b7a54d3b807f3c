"""Real text, line by line, from files that are installed on the machine: the messages of the interoperability tests.

Groups of files are read in a fixed order and each gives at most its share, so that the corpus has licences, tables,
code, prose and several languages and scripts; what is then missing comes from the groups that have more. Same
machine, same corpus.
"""

from __future__ import annotations

import gzip
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

EVERYDAY_LINES = 10_000
LINE_SIZE_MAX = 64 << 10

_DOC = Path("/usr/share/doc")
_PYTHON = Path(sysconfig.get_path("stdlib"))
_PACKAGES = Path(sysconfig.get_path("purelib"))


@dataclass(frozen=True, slots=True)
class Corpus:
    """A file of *count* non-empty lines, each ended by a line feed, and how many came from which group of files."""

    path: Path
    count: int
    sources: dict[str, int]

    def lines(self) -> list[bytes]:
        """The lines without their line feeds."""
        return self.path.read_bytes().split(b"\n")[:-1]


def _files(root: Path, *patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(root.glob(pattern))


GROUPS: dict[str, Callable[[], Iterator[Path]]] = {
    "licences": lambda: _files(Path("/usr/share/common-licenses"), "*"),
    "word lists": lambda: _files(Path("/usr/share/dict"), "*"),
    "manuals in other languages": lambda: _files(Path("/usr/share/man"), "??/man*/*", "??_??/man*/*"),
    "copyright notices": lambda: _files(_DOC, "*/copyright"),
    "package metadata": lambda: _files(_PACKAGES, "*.dist-info/**/*"),
    "changelogs": lambda: _files(_DOC, "*/changelog*.gz", "*/NEWS*.gz"),
    "documentation": lambda: _files(_DOC, "*/README*", "*/*.txt*", "*/*.html"),
    "the standard library": lambda: _files(_PYTHON, "pydoc_data/*.py", "*.py", "*/*.py", "*/*/*.py"),
}


def _file_lines(path: Path) -> Iterator[bytes]:
    """The non-empty lines of a text file, plain or gzipped; none of a directory, a binary or an unreadable file."""
    if not path.is_file():
        return
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return
    if b"\0" in data:
        return
    for line in data.split(b"\n"):
        text = line.rstrip(b"\r")
        if text and len(text) <= LINE_SIZE_MAX:
            yield text


def _group_lines(name: str) -> Iterator[bytes]:
    for path in GROUPS[name]():
        yield from _file_lines(path)


def gather(path: Path, count: int = EVERYDAY_LINES) -> Corpus:
    """Write *count* lines to the file *path*. Raises LookupError if the machine has not enough text."""
    open_groups = {name: _group_lines(name) for name in GROUPS}
    sources = dict.fromkeys(GROUPS, 0)
    missing = count
    with path.open("wb") as out:
        while missing and open_groups:
            share = max(1, missing // len(open_groups))
            for name in list(open_groups):
                lines = list(islice(open_groups[name], min(share, missing)))
                out.writelines(line + b"\n" for line in lines)
                sources[name] += len(lines)
                missing -= len(lines)
                if len(lines) < share:
                    del open_groups[name]
    if missing:
        raise LookupError(f"only {count - missing} of {count} lines of text on this machine: {sources}")
    return Corpus(path, count, {name: lines for name, lines in sources.items() if lines})
