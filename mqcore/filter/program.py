"""From a tree to a program: steps of a fixed size, the names of properties, and texts, in one piece of memory.

``_fast/filter/program`` runs it over the properties of a record where they lie. The layout is native, because it goes
from the broker process to its workers and is never stored.
"""

from __future__ import annotations

import struct
from typing import Final

from mqcore import layout
from mqcore.errors import FilterSyntaxError
from mqcore.filter.expressions import (
    AmongTexts,
    Comparison,
    Constant,
    Expression,
    Junction,
    Negation,
    Not,
    Part,
    Property,
    Relation,
    Search,
    Truth,
)
from mqcore.filter.values import Long

OP: Final = layout.constants("FilterOp")
RELATIONS: Final = {
    Relation.EQUAL: "EQUAL",
    Relation.GREATER: "GREATER",
    Relation.GREATER_OR_EQUAL: "GREATER_OR_EQUAL",
    Relation.LESS: "LESS",
    Relation.LESS_OR_EQUAL: "LESS_OR_EQUAL",
}
PARTS: Final = {Part.CONTAINS: 0, Part.STARTS_WITH: 1, Part.ENDS_WITH: 2}
NEVER_STORED: Final = b"\x02"
"""Ends a property, so no value has it: stands for what UTF-8 cannot say, a lone half of a surrogate pair."""


def encode_program(expression: Expression) -> bytes:
    """Return the program of *expression*. Raises FilterSyntaxError for one that is beyond a limit."""
    compiler = _Compiler()
    try:
        compiler.put(expression)
    except RecursionError:
        raise FilterSyntaxError("java.lang.StackOverflowError") from None
    if compiler.depth_max > layout.FILTER_DEPTH_MAX:
        raise FilterSyntaxError(f"nested too deep: wanted at most {layout.FILTER_DEPTH_MAX} values at a time")
    if len(compiler.names) > layout.FILTER_NAMES_MAX:
        raise FilterSyntaxError(f"too many properties: got {len(compiler.names)}, wanted {layout.FILTER_NAMES_MAX}")
    return compiler.encode()


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return NEVER_STORED


class _Compiler:
    """Steps and texts so far. *depth* is how many values are on the stack behind the last step."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.names: dict[bytes, int] = {}
        self.texts: dict[bytes, int] = {}
        self.text = bytearray()
        self.depth = self.depth_max = 0

    def encode(self) -> bytes:
        names = [layout.FILTER_NAME.struct.pack(self._text_at(name), len(name)) for name in self.names]
        head = layout.FILTER_HEAD.struct.pack(len(self.steps), len(names), self.depth_max, len(self.text))
        return b"".join([head, *(layout.FILTER_STEP.struct.pack(*step) for step in self.steps), *names, self.text])

    def put(self, expression: Expression) -> None:
        """Append the steps that leave the value of *expression* on the stack."""
        if isinstance(expression, Constant):
            self._put_constant(expression)
        elif isinstance(expression, Property):
            self._step("PROPERTY", 1, size=self._name(expression.name))
        elif isinstance(expression, Junction):
            self._put_junction(expression)
        elif isinstance(expression, Comparison):
            self._put_comparison(expression)
        elif isinstance(expression, AmongTexts):
            self.put(expression.operand)
            self._step("IN", 0, size=len(expression.texts), value=int(expression.is_negated))
            for text in expression.texts:
                self._put_text(text, 0)
        elif isinstance(expression, Search):
            self._put_search(expression)
        else:
            self.put(expression.operand)
            self._step({Negation: "NEGATE", Truth: "CONDITION", Not: "NOT"}[type(expression)], 0)

    def _step(self, op: str, change: int, size: int = 0, value: int = 0) -> int:
        self.steps.append((OP[op], size, value))
        self.depth += change
        self.depth_max = max(self.depth_max, self.depth)
        return len(self.steps) - 1

    def _leave_to_here(self, at: int) -> None:
        op, size, _ = self.steps[at]
        self.steps[at] = (op, size, len(self.steps))

    def _put_constant(self, constant: Constant) -> None:
        value = constant.value
        if value is None:
            self._step("NULL", 1)
        elif isinstance(value, bool):
            self._step("TRUTH", 1, value=int(value))
        elif isinstance(value, str):
            self._put_text(value, 1)
        elif isinstance(value, float):
            self._step("DOUBLE", 1, value=struct.unpack("=q", struct.pack("=d", value))[0])
        else:
            self._step("LONG" if isinstance(value, Long) else "INTEGER", 1, value=int(value))

    def _put_junction(self, junction: Junction) -> None:
        leave, join = ("LEAVE_IF_TRUE", "OR") if junction.decided_by else ("LEAVE_IF_FALSE", "AND")
        self.put(junction.operands[0])
        exits = []
        for operand in junction.operands[1:]:
            exits.append(self._step(leave, 0))
            self.put(operand)
            self._step(join, -1)
        for at in exits:
            self._leave_to_here(at)

    def _put_comparison(self, comparison: Comparison) -> None:
        self.put(comparison.left)
        # What can fail may not be looked at behind NULL; constants and properties cannot.
        leaves = comparison.relation is not Relation.EQUAL and bool(comparison.right.children)
        at = self._step("LEAVE_IF_NULL", 0) if leaves else -1
        self.put(comparison.right)
        self._step(RELATIONS[comparison.relation], -1)
        if leaves:
            self._leave_to_here(at)

    def _put_search(self, search: Search) -> None:
        if not search.text:
            self._step("TRUTH", 1)
            return
        self.put(search.operand)
        self._step("SEARCH", 0, size=PARTS[search.part], value=int(search.is_negated))
        self._put_text(search.text, 0)

    def _put_text(self, text: str, change: int) -> None:
        encoded = _encoded(text)
        self._step("TEXT", change, size=len(encoded), value=self._text_at(encoded))

    def _name(self, name: str) -> int:
        return self.names.setdefault(name.encode(), len(self.names))

    def _text_at(self, text: bytes) -> int:
        at = self.texts.get(text)
        if at is None:
            at = self.texts[text] = len(self.text)
            self.text += text
        return at
