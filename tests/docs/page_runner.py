"""Runs the Python blocks of a documentation page, in order, in one namespace, and compares what they print.

A block is ```` ```python ````; a ```` ```text ```` block right behind it is what it prints, where ``...`` stands for
anything. One with a title, ```` ```python title="worker.py" ````, is a file: it is written, for a later block to start.
``<!-- topics: Orders:4 Refunds -->`` names the topics that the page uses; no other page may use them.
``127.0.0.1:9876`` stands for the name server. A page with ``<!-- broker: apache -->`` needs what mqcore's broker does
not do yet.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import re
from dataclasses import dataclass
from pathlib import Path

ADDRESS = "127.0.0.1:9876"
BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL
)
COMMENT = re.compile(r"<!-- (\w+): (.*?) -->")
QUEUES = 4


@dataclass(frozen=True, slots=True)
class Block:
    """One block of Python, where it stands, and what it prints if the page says so; with a *title* it is a file."""

    source: str
    line: int
    prints: str | None
    title: str | None = None


def blocks(page: Path) -> list[Block]:
    """Return the Python blocks of *page*."""
    text = page.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    made = []
    for at, match in enumerate(found):
        if match["kind"] != "python":
            continue
        behind = found[at + 1] if at + 1 < len(found) else None
        has_text = behind is not None and behind["kind"] == "text" and not text[match.end() : behind.start()].strip()
        prints = behind["text"] if has_text and behind is not None else None
        made.append(Block(match["text"], text[: match.start()].count("\n") + 1, prints, match["title"]))
    return made


def remarks(page: Path) -> dict[str, list[str]]:
    """Return the comments for the runner: kind to words."""
    return {kind: words.split() for kind, words in COMMENT.findall(page.read_text(encoding="utf-8"))}


def topics(page: Path) -> dict[str, int]:
    """Return the topics of *page* with their numbers of queues."""
    pairs = (word.partition(":") for word in remarks(page).get("topics", []))
    return {name: int(queues or QUEUES) for name, _, queues in pairs}


def run(page: Path, name_server: str) -> None:
    """Run all blocks of *page*; an error names its line in the page."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        # Lines in front make the line numbers of tracebacks those of the page.
        source = "\n" * block.line + block.source.replace(ADDRESS, name_server)
        if block.title is not None:
            Path(block.title).write_text(source, encoding="utf-8")
            continue
        code = compile(source, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.prints is not None:
            wanted = block.prints.replace(ADDRESS, name_server).strip()
            got = printed.getvalue().strip()
            pattern = re.sub(r"([\[\]?*])", r"[\1]", wanted).replace("...", "*")
            assert fnmatch.fnmatchcase(got, pattern), f"{page}:{block.line} printed\n{got}\nwanted\n{wanted}"
