"""The ```` ```console ```` blocks of a page: commands behind ``$``, and what each prints, where ``...`` is anything."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """One line that is typed, and what the page says that it prints."""

    words: str
    prints: str

    @property
    def is_background(self) -> bool:
        return self.words.endswith("&")

    def check(self, printed: str) -> None:
        """Raise AssertionError if that is not what the page says."""
        pattern = re.sub(r"([\[\]?*])", r"[\1]", self.prints.strip()).replace("...", "*")
        assert fnmatch.fnmatchcase(printed.strip(), pattern), f"{self.words} printed\n{printed}\nwanted\n{self.prints}"


def sections(page: Path) -> dict[str, list[Command]]:
    """Return the commands under each heading of *page*, in their order."""
    parts = HEADING.split(page.read_text(encoding="utf-8"))
    return {
        title: [command for block in BLOCK.findall(text) for command in commands(block)]
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def commands(block: str) -> list[Command]:
    """Return the commands of one block."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        words, _, prints = part.partition("\n")
        found.append(Command(words, prints))
    return found
