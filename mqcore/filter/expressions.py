"""Expressions over message properties, as trees that evaluate themselves.

``evaluate`` is the readable statement of what an expression means, and the twin of ``_fast/filter/program``; a broker
evaluates the program that ``mqcore.filter.program`` makes of the tree. The result is True, False or None (unknown);
where Java throws, EvaluationError is raised. ``str()`` is the text that RocketMQ's refusals have.
Source: RocketMQ filter/expression/.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from mqcore.filter.values import EvaluationError, Long, Value, equals, number_text, order

Properties: TypeAlias = Callable[[str], str | None]
"""Gives the value of a property; None if there is none. An empty one is none in RocketMQ."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: text, number, TRUE, FALSE or NULL."""

    value: Value

    @property
    def children(self) -> tuple[Expression, ...]:
        return ()

    def evaluate(self, properties: Properties) -> Value:
        return self.value

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, bool):
            return str(self.value).upper()
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return number_text(self.value)


@dataclass(frozen=True, slots=True)
class Property:
    """A property's value, which is a text."""

    name: str

    @property
    def children(self) -> tuple[Expression, ...]:
        return ()

    def evaluate(self, properties: Properties) -> Value:
        return properties(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Negation:
    """A number with the other sign; what is no number becomes NULL."""

    operand: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def evaluate(self, properties: Properties) -> Value:
        value = self.operand.evaluate(properties)
        if value is None or isinstance(value, bool | str):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    def __str__(self) -> str:
        return f"(- {self.operand})"


@dataclass(frozen=True, slots=True)
class Truth:
    """A property in the place of a condition: it is a text, so it is not true."""

    operand: Property

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def evaluate(self, properties: Properties) -> Value:
        return None if self.operand.evaluate(properties) is None else False

    def __str__(self) -> str:
        return str(self.operand)


@dataclass(frozen=True, slots=True)
class Not:
    """The other truth; unknown stays unknown."""

    operand: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def evaluate(self, properties: Properties) -> Value:
        value = self.operand.evaluate(properties)
        return None if value is None else not value

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions joined by AND or by OR. What comes behind the deciding one is not evaluated, and so cannot fail."""

    operands: tuple[Expression, ...]
    decided_by: bool
    """True for OR, False for AND: one operand of that value is the result."""

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.operands

    def evaluate(self, properties: Properties) -> Value:
        result: Value = not self.decided_by
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is self.decided_by:
                return value
            if value is None:
                result = None
        return result

    def __str__(self) -> str:
        text = str(self.operands[0])
        for operand in self.operands[1:]:
            text = f"({text} {'||' if self.decided_by else '&&'} {operand})"
        return text


class Relation(StrEnum):
    """How two values are compared; the value is RocketMQ's sign for it."""

    EQUAL = "=="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values compared. An order is unknown if one is NULL; if the left is, the right one is not looked at."""

    relation: Relation
    left: Expression
    right: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.left, self.right)

    def evaluate(self, properties: Properties) -> Value:
        left = self.left.evaluate(properties)
        if self.relation is Relation.EQUAL:
            return equals(left, self.right.evaluate(properties))
        if left is None:
            return None
        right = self.right.evaluate(properties)
        if right is None:
            return None
        answer = order(left, right)
        if self.relation is Relation.GREATER:
            return answer > 0
        if self.relation is Relation.GREATER_OR_EQUAL:
            return answer >= 0
        return answer < 0 if self.relation is Relation.LESS else answer <= 0

    def __str__(self) -> str:
        return f"({self.left} {self.relation} {self.right})"


@dataclass(frozen=True, slots=True)
class AmongTexts:
    """A property among texts, or not among them; unknown if there is none."""

    operand: Property
    texts: tuple[str, ...]
    is_negated: bool

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def evaluate(self, properties: Properties) -> Value:
        value = self.operand.evaluate(properties)
        return None if value is None else (value in self.texts) is not self.is_negated

    def __str__(self) -> str:
        return f"{self.operand} {'NOT IN' if self.is_negated else 'IN'} ( {', '.join(self.texts)} )"


class Part(StrEnum):
    """Which part of a text another one is; the value is RocketMQ's word."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Search:
    """A text with another one in it, or without. Never unknown: what is no text is false either way, as with ''."""

    operand: Expression
    part: Part
    text: str
    is_negated: bool

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def evaluate(self, properties: Properties) -> Value:
        if not self.text:
            return False  # before the operand, which may fail
        value = self.operand.evaluate(properties)
        if not isinstance(value, str):
            return False
        if self.part is Part.CONTAINS:
            found = self.text in value
        elif self.part is Part.STARTS_WITH:
            found = value.startswith(self.text)
        else:
            found = value.endswith(self.text)
        return found is not self.is_negated

    def __str__(self) -> str:
        return f"({'NOT ' if self.is_negated else ''}{self.part} {self.operand})"


Expression: TypeAlias = Constant | Property | Negation | Truth | Not | Junction | Comparison | AmongTexts | Search

CONDITIONS = (Truth, Not, Junction, Comparison, AmongTexts, Search)
"""What may stand where a condition must; beside these the constants TRUE, FALSE and NULL."""


def is_condition(expression: Expression) -> bool:
    """Tell whether *expression* is one, in RocketMQ's types: by its form, not by its value."""
    if isinstance(expression, Constant):
        return expression.value is None or isinstance(expression.value, bool)
    return isinstance(expression, CONDITIONS)


def matches(expression: Expression, properties: Properties) -> bool:
    """Tell whether a message with *properties* is wanted."""
    try:
        return expression.evaluate(properties) is True
    except EvaluationError:
        return False
