"""Compiles SQL92 expressions, and remembers those that were wanted lately.

Lark and the grammar are taken in with the first expression: a broker without SQL92 consumers starts without them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from mqcore.errors import FilterSyntaxError
from mqcore.filter.expressions import Expression
from mqcore.filter.program import encode_program

KEPT: Final = 100
"""Expressions, refused ones too; RocketMQ keeps as many."""


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """An expression as a tree, and as the program that workers run."""

    tree: Expression = field(repr=False)
    program: bytes = field(repr=False)


Answer = CompiledFilter | FilterSyntaxError
_kept: OrderedDict[str, Answer] = OrderedDict()


def compile_sql(expression: str) -> CompiledFilter:
    """Compile *expression*. Raises FilterSyntaxError, with the text that RocketMQ answers with."""
    found = find_sql(expression)
    if found is None:
        found = answer_sql(expression)
        keep_sql(expression, found)
    return checked(found)


def checked(answer: Answer) -> CompiledFilter:
    """Return the filter, or raise the refusal."""
    if isinstance(answer, FilterSyntaxError):
        raise FilterSyntaxError(*answer.args)
    return answer


def find_sql(expression: str) -> Answer | None:
    """What came of *expression*, if that is remembered."""
    found = _kept.get(expression)
    if found is not None:
        _kept.move_to_end(expression)
    return found


def keep_sql(expression: str, answer: Answer) -> None:
    _kept[expression] = answer
    _kept.move_to_end(expression)
    if len(_kept) > KEPT:
        _kept.popitem(last=False)


def answer_sql(expression: str) -> Answer:
    """Compile *expression*, or say why not; remembers nothing, and may be called in any thread.

    An expression of the greatest length takes some 0.2 s, and the first one 0.1 s for the grammar.
    """
    from mqcore.filter.grammar import parse  # see above

    try:
        tree = parse(expression)
        return CompiledFilter(tree, encode_program(tree))
    except FilterSyntaxError as error:
        return error
