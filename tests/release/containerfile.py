"""The instructions of docs/deploy/Containerfile, as far as the tests ask for them."""

from __future__ import annotations

import json
from typing import Final

from tests.release.source_tree import ROOT

PATH: Final = ROOT / "docs" / "deploy" / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the last stage with its words, in their order."""
    text = PATH.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
    pairs = (line.strip().partition(" ") for line in lines[last:])
    return [(name, words.strip()) for name, _, words in pairs]


def words_of(name: str) -> str:
    """The words of the one instruction *name*."""
    (words,) = (words for found, words in instructions() if found == name)
    return words


def command_of(name: str) -> list[str]:
    """The command of an instruction in its JSON form; of HEALTHCHECK the one behind CMD."""
    words = words_of(name)
    found: list[str] = json.loads(words[words.index("[") :])
    return found
