"""The option ``where``: conditions that leave messages out before rows are made of them.

    queueId IN (0, 1) AND offset >= 1200 AND tags = 'paid' AND storeTimestamp >= '2026-11-01T00:00:00Z'

Why an option, and not the filters that Spark 4.1 and newer can hand to a Python source: Spark keeps the plan that was
made with a query's filters beside the *loaded frame*, and gives it to whatever reads that frame next: to a query
without a filter, to the other side of a union. A source that leaves rows out for such a filter gives wrong rows there,
and is not told. What stands in an option belongs to the frame and holds for each of its queries, in every Spark.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from mqcore.errors import ConfigError
from mqcore.spark.schema import QUEUE_OFFSET_ALIAS
from mqcore.store.message_columns import UNBOUNDED_MAX, UNBOUNDED_MIN, Selection

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS_PER_MS: Final = 1000
INT32_RANGE: Final = range(-(1 << 31), 1 << 31)

COLUMNS: Final = ("topic", "queueId", "offset", "tags", "storeTimestamp")
_SPELLED: Final = {name.lower(): name for name in COLUMNS} | {QUEUE_OFFSET_ALIAS.lower(): "offset"}

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[+-]?\d+)|(?P<word>\w+)|(?P<sign><=|>=|==|[=<>(),]))"
)
_OPERATORS: Final = {"=": "=", "==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

Value = int | str


class Condition(NamedTuple):
    """One condition: *column* in its own spelling, *operator* one of = < <= > >= and IN."""

    column: str
    operator: str
    values: tuple[Value, ...]


def narrowed(selection: Selection, text: str | None) -> Selection:
    """Return *selection* with the conditions of *text* added. Raises ConfigError, which says what is wrong where."""
    for condition in parse(text) if text is not None else ():
        selection = _narrow(selection, condition)
    return selection


def parse(text: str) -> list[Condition]:
    """Read conditions joined by AND. ``BETWEEN a AND b`` becomes two of them."""
    return _Parser(text).conditions()


class _Parser:
    """Walks over the words of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._error(text[place:].strip()[:20], "a condition such as queueId = 1")
            self._tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            place = found.end()
        self._at = 0

    def conditions(self) -> list[Condition]:
        found = self._condition()
        while self._at < len(self._tokens):
            self._take_word("AND")
            found += self._condition()
        return found

    def _condition(self) -> list[Condition]:
        kind, word = self._take()
        column = _SPELLED.get(word.lower()) if kind == "word" else None
        if column is None:
            raise self._error(word, f"one of {', '.join(COLUMNS)}")
        kind, word = self._take()
        if word in _OPERATORS:
            return [Condition(column, _OPERATORS[word], (self._value(column),))]
        if kind == "word" and word.upper() == "BETWEEN":
            first = self._value(column)
            self._take_word("AND")
            return [Condition(column, ">=", (first,)), Condition(column, "<=", (self._value(column),))]
        if kind == "word" and word.upper() == "IN":
            return [Condition(column, "IN", self._list(column))]
        raise self._error(word, f"=, <, <=, >, >=, IN or BETWEEN behind {column}")

    def _list(self, column: str) -> tuple[Value, ...]:
        self._take_word("(")
        values = [self._value(column)]
        while (word := self._take()[1]) == ",":
            values.append(self._value(column))
        if word != ")":
            raise self._error(word, "a comma or )")
        return tuple(values)

    def _value(self, column: str) -> Value:
        kind, word = self._take()
        is_text = kind == "text"
        if column in ("topic", "tags") and is_text:
            return _unquoted(word)
        if column in ("queueId", "offset") and kind == "number":
            return int(word)
        if column == "storeTimestamp" and (is_text or kind == "number"):
            return self._microseconds(_unquoted(word) if is_text else word)
        wanted = {"topic": "a text in quotes", "tags": "a text in quotes", "storeTimestamp": "a time in quotes, or ms"}
        raise self._error(word, f"{wanted.get(column, 'a number')} to compare {column} with")

    def _microseconds(self, text: str) -> int:
        if text.lstrip("+-").isdecimal():
            return int(text) * MICROSECONDS_PER_MS
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise self._error(text, "ms since 1970 or a time of ISO 8601") from None
        return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND

    def _take(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._error("the end", "more")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take_word(self, wanted: str) -> None:
        _, word = self._take()
        if word.upper() != wanted:
            raise self._error(word, wanted)

    def _error(self, got: str, wanted: str) -> ConfigError:
        return ConfigError(f"option where, {self._text!r}: got {got}, wanted {wanted}")


def _unquoted(word: str) -> str:
    return word[1:-1].replace("''", "'")


def _narrow(selection: Selection, condition: Condition) -> Selection:
    column, operator, values = condition
    if column in ("topic", "tags"):
        return _narrow_names(selection, condition)
    if column == "queueId":
        return _narrow_queues(selection, condition)
    if operator == "IN":
        raise ConfigError(f"option where: IN means nothing for {column}; use = or BETWEEN")
    assert isinstance(values[0], int)
    if column == "offset":
        first, end = _bounds(operator, values[0], values[0])
        return replace(
            selection, offset_min=max(selection.offset_min, first), offset_max=min(selection.offset_max, end)
        )
    # Brokers keep whole milliseconds.
    first, end = _bounds(operator, values[0] // MICROSECONDS_PER_MS, -(-values[0] // MICROSECONDS_PER_MS))
    return replace(
        selection,
        store_timestamp_min=max(selection.store_timestamp_min, first),
        store_timestamp_max=min(selection.store_timestamp_max, end),
    )


def _narrow_names(selection: Selection, condition: Condition) -> Selection:
    column, operator, values = condition
    if operator not in ("=", "IN"):
        raise ConfigError(f"option where: {operator} means nothing for {column}; use = or IN")
    names = frozenset(str(value) for value in values)
    before = selection.topics if column == "topic" else selection.tags
    if before is not None:
        names &= before
    return replace(selection, topics=names) if column == "topic" else replace(selection, tags=names)


def _narrow_queues(selection: Selection, condition: Condition) -> Selection:
    _, operator, values = condition
    if operator not in ("=", "IN"):
        raise ConfigError(f"option where: {operator} means nothing for queueId; use = or IN")
    numbers = frozenset(value for value in values if isinstance(value, int) and value in INT32_RANGE)
    return replace(selection, queue_ids=numbers if selection.queue_ids is None else selection.queue_ids & numbers)


def _bounds(operator: str, floor: int, ceiling: int) -> tuple[int, int]:
    """Return [first, end) of the whole numbers that compare so with a value between *floor* and *ceiling*."""
    first, end = {
        "=": (ceiling, floor + 1),
        ">": (floor + 1, UNBOUNDED_MAX),
        ">=": (ceiling, UNBOUNDED_MAX),
        "<": (UNBOUNDED_MIN, ceiling),
        "<=": (UNBOUNDED_MIN, floor + 1),
    }[operator]
    return min(max(first, UNBOUNDED_MIN), UNBOUNDED_MAX), min(max(end, UNBOUNDED_MIN), UNBOUNDED_MAX)
