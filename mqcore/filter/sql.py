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


_kept: OrderedDict[str, CompiledFilter | FilterSyntaxError] = OrderedDict()


def prepare() -> None:
    """Take in what the first expression needs, which holds up a loop for 0.1 s; may be called in a thread."""
    from mqcore.filter import grammar  # noqa: F401


def compile_sql(expression: str) -> CompiledFilter:
    """Compile *expression*. Raises FilterSyntaxError, with the text that RocketMQ answers with."""
    found = _kept.get(expression)
    if found is None:
        found = _kept[expression] = _compile(expression)
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(expression)
    if isinstance(found, FilterSyntaxError):
        raise FilterSyntaxError(*found.args)
    return found


def _compile(expression: str) -> CompiledFilter | FilterSyntaxError:
    from mqcore.filter.grammar import parse  # see above

    try:
        tree = parse(expression)
        return CompiledFilter(tree, encode_program(tree))
    except FilterSyntaxError as error:
        return error
