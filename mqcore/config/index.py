"""All rows in one tuple, and the way from a spelling to its row."""

from __future__ import annotations

from mqcore.config import broker_rows, failover_rows, later_rows, mqcore_rows, remoting_rows, store_rows, tls_rows
from mqcore.config.table import Program, Setting

SETTINGS: tuple[Setting, ...] = (
    *broker_rows.ROWS,
    *store_rows.ROWS,
    *remoting_rows.ROWS,
    *tls_rows.ROWS,
    *failover_rows.ROWS,
    *mqcore_rows.ROWS,
    *later_rows.ROWS,
)

_BY_SPELLING = {spelling: row for row in SETTINGS for spelling in row.properties}

# A spelling names one setting and an attribute stands for one setting, or files and code would mean different things.
assert len(_BY_SPELLING) == sum(len(row.properties) for row in SETTINGS)
assert len({row.name for row in SETTINGS}) == len(SETTINGS)
# A change that is taken is followed by somebody, and what nobody follows is refused.
assert all(bool(row.readers) == row.changeable for row in SETTINGS if row.used)


def find(spelling: str) -> Setting | None:
    """The row of a property name or alias, spelled exactly; None if there is none."""
    return _BY_SPELLING.get(spelling)


def rows_of(program: Program) -> tuple[Setting, ...]:
    """The rows that *program* knows, in the order in which they are printed."""
    return tuple(row for row in SETTINGS if program in row.programs)


def preferred_spelling(spelling: str) -> str:
    """RocketMQ's present spelling of *spelling*, or *spelling* itself when no row knows it."""
    row = _BY_SPELLING.get(spelling)
    return spelling if row is None else row.key


def nearest_spelling(spelling: str, program: Program) -> str | None:
    """The spelling that somebody who wrote *spelling* most likely meant."""
    import difflib  # only an unknown key needs it

    spellings = [name for row in rows_of(program) for name in row.properties]
    folded = {name.lower(): name for name in spellings}
    if spelling.lower() in folded:
        return folded[spelling.lower()]
    close = difflib.get_close_matches(spelling.lower(), list(folded), n=1, cutoff=0.7)
    return folded[close[0]] if close else None
