"""The values that expressions work on, with the number rules of Java's boxed types.

``None`` is NULL, ``bool`` Boolean, ``str`` String, ``float`` Double; an ``int`` is an Integer of 32 bits and a ``Long``
one of 64, because a text that is compared with a number is read as that number's own type.
Source: RocketMQ filter/expression/ComparisonExpression.java; the JDK's Integer, Long, Double and String.
"""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

ZEROS: Final = (
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0DE6, 0x0E50,
    0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50,
    0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
)  # fmt: skip
"""The digits 0 that Integer.parseInt knows beside ASCII's, nine others behind each; those above U+FFFF it does not."""

DIGITS: Final = {chr(zero + value): str(value) for zero in (0x30, *ZEROS) for value in range(10)}

DECIMAL: Final = re.compile(r"([+-]?)(NaN|Infinity|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)")
HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
TRIMMED: Final = "".join(map(chr, range(33)))
"""What String.trim takes away."""


class EvaluationError(Exception):
    """Java would throw here: the values cannot be compared. The message does not match, whatever else is asked."""


class Long(int):
    """A number of 64 bits."""

    __slots__ = ()


Value: TypeAlias = bool | int | float | str | None


def parse_integer(text: str, limit: int) -> int:
    """Return Integer.parseInt of *text*, or Long.parseLong, whose largest value is *limit*. Raises EvaluationError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or any(digit not in DIGITS for digit in digits):
        raise EvaluationError(f'For input string: "{text}"')
    # Digit by digit, for int() refuses what is very long, and leading zeros may be many.
    value = 0
    for digit in digits:
        value = value * 10 + int(DIGITS[digit])
        if value > limit + 1:
            break
    value = -value if text[0] == "-" else value
    if not -limit - 1 <= value <= limit:
        raise EvaluationError(f'For input string: "{text}"')
    return value


def parse_double(text: str) -> float:
    """Return Double.valueOf of *text*. Raises EvaluationError."""
    trimmed = text.strip(TRIMMED)
    found = DECIMAL.fullmatch(trimmed)
    if found is not None:
        sign, name, digits = found.groups()
        magnitude = {"NaN": math.nan, "Infinity": math.inf}.get(name)
        if magnitude is None:
            magnitude = float(digits)
        return -magnitude if sign == "-" else magnitude
    found = HEXADECIMAL.fullmatch(trimmed)
    if found is None:
        raise EvaluationError(f'For input string: "{text}"')
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return -math.inf if trimmed.startswith("-") else math.inf


def compare_doubles(left: float, right: float) -> int:
    """Return Double.compare: -0.0 is below 0.0, and NaN equal to itself and above everything else."""
    if left < right:
        return -1
    if left > right:
        return 1
    ranks = [(math.isnan(value), not math.isnan(value) and math.copysign(1.0, value) > 0) for value in (left, right)]
    return (ranks[0] > ranks[1]) - (ranks[0] < ranks[1])


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1 for two values that are not NULL, converted as Java's filter converts them.

    Types that have nothing in common compare as -1. Raises EvaluationError where Java throws.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return _compare_truth(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(left, str):
        return compare_numbers(_as(left, right), right)
    if isinstance(right, str):
        return compare_numbers(left, _as(right, left))
    return compare_numbers(left, right)


def _compare_truth(left: Value, right: Value) -> int:
    if isinstance(left, bool) and isinstance(right, bool):
        return (left > right) - (left < right)
    if isinstance(left, str):
        return _compare_truth(left.lower() == "true" and left.isascii(), right)
    if isinstance(right, str):
        # The wrong one of the two is converted there.
        raise EvaluationError(
            "class java.lang.Boolean cannot be cast to class java.lang.String "
            "(java.lang.Boolean and java.lang.String are in module java.base of loader 'bootstrap')"
        )
    return -1


def _as(text: str, other: Value) -> int | float:
    """Return *text* read as the type of the number *other*."""
    if isinstance(other, float):
        return parse_double(text)
    if isinstance(other, Long):
        return Long(parse_integer(text, LONG_MAX))
    return parse_integer(text, INT_MAX)


def compare_numbers(left: Value, right: Value) -> int:
    """Compare two numbers: as doubles if one is, exactly otherwise."""
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def equals(left: Value, right: Value) -> bool | None:
    """Return ``left = right``, with NULL on the left alone unknown, and on the right alone false."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return compare(left, right) == 0


def order(left: Value, right: Value) -> int:
    """Return how two values that are not NULL stand to each other for ``<`` and its like.

    Two texts are compared as numbers. Raises EvaluationError for texts that are none.
    """
    if isinstance(left, str) and isinstance(right, str):
        return compare_doubles(parse_double(left), parse_double(right))
    return compare(left, right)


def number_text(value: float) -> str:
    """Return Number.toString, as far as Python's shortest digits are Java's."""
    if isinstance(value, int):
        return str(int(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:.20f}".rstrip("0")
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    for digits in range(18):
        short = f"{value:.{digits}e}"
        if float(short) == value:
            mantissa, _, exponent = short.partition("e")
            break
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
