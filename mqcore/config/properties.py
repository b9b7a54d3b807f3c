"""Changing a setting in a properties file, while leaving the rest of the file alone."""

from __future__ import annotations

from collections.abc import Mapping

from mqcore.config.index import preferred_spelling
from mqcore.java_properties import format_entry, read_entries, split_lines


def edit_properties(text: str, changes: Mapping[str, str]) -> str:
    """*text* with the keys of *changes* set, everything else, comments included, as it was.

    A key that stands in the file is changed where it stands last and dropped elsewhere; one that does not is appended.
    An alias in the file counts as its setting, and gives way to RocketMQ's present spelling.
    """
    lines: list[str | None] = list(split_lines(text))
    named = {preferred_spelling(key): value for key, value in changes.items()}
    wanted = {key: format_entry(key, value) for key, value in named.items()}
    pending = dict(wanted)
    for entry in reversed(list(read_entries(text))):
        key = preferred_spelling(entry.key)
        if key in wanted:
            lines[entry.first_line - 1 : entry.last_line] = [None] * (entry.last_line - entry.first_line + 1)
            lines[entry.first_line - 1] = pending.pop(key, None)
    kept = [line for line in lines if line is not None]
    return "".join(line + "\n" for line in [*kept, *pending.values()])
