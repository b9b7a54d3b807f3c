"""The keys of ``mqcore top``: what a terminal sends, as names, and what each does to what is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mqcore.admin.top_view import NAMES, TABLES, ViewState

PAGE_ROWS: Final = 10
PACES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
FILTER_MAX: Final = 127
"""As long as names are."""

SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)
NAMED: Final = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down", "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\x1b[Z": "back tab", "\x1b": "escape", "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "erase", "\x08": "erase",
    "\x15": "erase all", "\x1b[C": "right", "\x1bOC": "right", "\x1b[D": "left", "\x1bOD": "left", "\x03": "q",
}  # fmt: skip


def keys_of(text: str) -> list[str]:
    """Return the keys that a terminal has sent as *text*; one that is not known is ``""``."""
    return [
        NAMED.get(found, found if len(found) == 1 and found.isprintable() else "") for found in SEQUENCE.findall(text)
    ]


def press(state: ViewState, key: str) -> None:
    """Do what *key* means."""
    if state.typed is not None:
        _type(state, key)
    elif key in ACTIONS:
        ACTIONS[key](state)
    elif key.isdecimal() and 1 <= int(key) <= len(NAMES):
        _choose(state, NAMES[int(key) - 1])


def _type(state: ViewState, key: str) -> None:
    assert state.typed is not None
    if key == "enter":
        state.filter, state.typed = state.typed, None
    elif key == "escape":
        state.filter, state.typed = "", None
    elif key == "erase":
        state.typed = state.typed[:-1]
    elif key == "erase all":
        state.typed = ""
    elif len(key) == 1 and len(state.typed) < FILTER_MAX:
        state.typed += key
    state.first = 0


def _choose(state: ViewState, table: str) -> None:
    state.table, state.first = table, 0


def _turn(step: int) -> Callable[[ViewState], None]:
    return lambda state: _choose(state, NAMES[(NAMES.index(state.table) + step) % len(NAMES)])


def _sort(step: int) -> Callable[[ViewState], None]:
    def sort(state: ViewState) -> None:
        keys = [column.key for column in TABLES[state.table]]
        state.sorted_by[state.table] = keys[(keys.index(state.sorted_by[state.table]) + step) % len(keys)]
        state.first = 0

    return sort


def _reverse(state: ViewState) -> None:
    state.reversed_tables ^= {state.table}


def _scroll(step: int) -> Callable[[ViewState], None]:
    def scroll(state: ViewState) -> None:
        state.first = max(0, state.first + step)  # the end is known when lines are made

    return scroll


def _pause(state: ViewState) -> None:
    state.is_paused = not state.is_paused


def _pace(step: int) -> Callable[[ViewState], None]:
    def pace(state: ViewState) -> None:
        later = [other for other in PACES_S if (other > state.every_s if step > 0 else other < state.every_s)]
        if later:
            state.every_s = later[0] if step > 0 else later[-1]

    return pace


def _start_typing(state: ViewState) -> None:
    state.typed = state.filter


def _clear(state: ViewState) -> None:
    state.filter, state.first = "", 0


def _quit(state: ViewState) -> None:
    state.is_over = True


ACTIONS: Final[dict[str, Callable[[ViewState], None]]] = {
    "q": _quit,
    "tab": _turn(1),
    "back tab": _turn(-1),
    "s": _sort(1),
    "S": _sort(-1),
    "right": _sort(1),
    "left": _sort(-1),
    "r": _reverse,
    "/": _start_typing,
    "escape": _clear,
    "up": _scroll(-1),
    "k": _scroll(-1),
    "down": _scroll(1),
    "j": _scroll(1),
    "page up": _scroll(-PAGE_ROWS),
    "page down": _scroll(PAGE_ROWS),
    "home": _scroll(-(1 << 30)),
    "g": _scroll(-(1 << 30)),
    "end": _scroll(1 << 30),
    "G": _scroll(1 << 30),
    " ": _pause,
    "p": _pause,
    "+": _pace(1),
    "-": _pace(-1),
}
"""What keys do; a digit is the table of that number."""
