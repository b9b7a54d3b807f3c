"""Random SQL92 expressions and properties, of the kinds that are close to an edge of RocketMQ's rules."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import mqcore.store.log.record  # noqa: F401  how Java decodes malformed text

NAMES: Final = ("a", "b", "c", "price", "_x", "$y", "A1", "color")
SOFT_NAMES: Final = ("contains", "startswith", "EndsWith")

NUMBERS: Final = (
    "0", "1", "5", "-5", "+5", "007", "5.0", "5.5", "-0", "-0.0", "0.0", ".5", "5.", "1e3", "1E-3", "2147483647",
    "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "1e308", "1e309", "-1e309", "4.9e-324", "1e-400", "NaN", "-NaN", "Infinity", "-Infinity",
    "nan", "inf", "0x1p3", "0x1.8P1f", "0X.8p-2D", "0x1", "5d", "5f", "5L", "5F ", " 5", "5 ", "\t5\n", "1_000",
    "--5", "+",
    "-", "1e", "1e+", ".", "1.e5", "٣", "٣٤", "5٥", "１２", "𝟏", "²", "0.1", "0.30000000000000004", "9007199254740993",
    "123456789012345678901234567890", "0" * 40 + "7", "1" + "0" * 400, "0." + "0" * 400 + "1", "5.5dd", "1e5f ",
    "16777217", "4.35", "2.2250738585072011e-308", "0x1.fffffffffffff8p1023", "9.5", "10", "3", "4",
)  # fmt: skip
TEXTS: Final = (
    "", "a", "abc", "true", "TRUE", "tRuE", "false", "null", "it's", "''", "red", "blue", "rot-blau", "ä", "日本", "𝄞",
    "a b", "%", "TrUe ", "\ufffd", "ab\ufffdc", "b", "c", "bc", "'", "\\", "\u00a05",
)  # fmt: skip
LITERALS: Final = (
    "0", "1", "5", "5L", "5l", "007", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "5.0",
    "5.5", "5.", ".5", "1e3", "1E-3", "1.5e+2", "0.0", "1e400", "1e-400", "4.9e-324", "9007199254740993", "4.35",
    "3", "10",
)  # fmt: skip
JUNK: Final = (
    "@", "!=", "==", "%", "a.b", "5a", "like", "'", '"', "ä", "'x", "--", "/*", "/* ** /*/", "-- c\n", "5 5", ")",
    "(", ",",
    "is", "not", "between", "null", "\x0b", "\u212a", "ſ", "+", "a'b'", "=", "0x1F", "and and", "日",
)  # fmt: skip
MALFORMED: Final = (b"\xff", b"ab\xfec", b"\xed\xa0\x80", b"\xe4", b"\xc0\x80", b"\xf0\x9f", b"\xef\xbf\xbd", b"5\xff")


class Expressions:
    """Makes them out of *chance*; *soft* with the operators of RocketMQ 5."""

    def __init__(self, chance: random.Random, soft: bool) -> None:
        self._chance = chance
        self._soft = soft

    def any(self) -> str:
        """A whole one: mostly sound, sometimes with a mistake in it, sometimes with something behind it."""
        text = self._condition(self._chance.choice((0, 1, 1, 2, 2, 3, 4)))
        luck = self._chance.random()
        if luck < 0.06:
            at = self._chance.randrange(len(text) + 1)
            return text[:at] + self._chance.choice(JUNK) + text[at:]
        if luck < 0.1:
            at, end = sorted(self._chance.randrange(len(text) + 1) for _ in range(2))
            return text[:at] + text[end:]
        if luck < 0.13:
            return f"{text} {self._chance.choice(JUNK)}"
        return text

    def _pick(self, *makers: Callable[[], str]) -> str:
        return self._chance.choice(makers)()

    def _word(self, word: str) -> str:
        return self._chance.choice((word, word, word.lower(), word.title()))

    def _name(self) -> str:
        if self._chance.random() < 0.03:
            return self._chance.choice(SOFT_NAMES) if not self._soft else "d"
        return self._chance.choice(NAMES)

    def _text(self) -> str:
        return "'" + self._chance.choice((*TEXTS, *NUMBERS)).replace("'", "''") + "'"

    def _number(self) -> str:
        return self._chance.choice(LITERALS)

    def _signed(self) -> str:
        return self._chance.choice(("-", "+", "- ", "-+", "- -")) + self._pick(self._number, self._name)

    def _keyword(self) -> str:
        return self._word(self._chance.choice(("TRUE", "FALSE", "NULL")))

    def _operand(self) -> str:
        kind = self._chance.random()
        if kind < 0.45:
            return self._name()
        if kind < 0.7:
            return self._number()
        if kind < 0.8:
            return self._text()
        if kind < 0.88:
            return self._signed()
        if kind < 0.94:
            return self._keyword()
        return f"({self._condition(0)})" if kind < 0.97 else f"-({self._condition(0)})"

    def _condition(self, depth: int) -> str:
        if depth <= 0:
            return self._pick(
                self._compared, self._compared, self._compared, self._numbered, self._between, self._among, self._null,
                self._equal_text, self._searched if self._soft else self._compared, self._name, self._keyword,
                self._chained,
            )  # fmt: skip
        left, right = self._condition(depth - 1), self._condition(self._chance.randrange(depth))
        kind = self._chance.random()
        if kind < 0.35:
            return f"{left} {self._word('AND')} {right}"
        if kind < 0.7:
            return f"{left} {self._word('OR')} {right}"
        if kind < 0.8:
            return f"{self._word('NOT')} ({left})"
        if kind < 0.9:
            return f"({left}) {self._word('AND')} ({right})"
        return f"({left}) {self._chance.choice(('=', '<>'))} ({right})"

    def _compared(self) -> str:
        sign = self._chance.choice(("=", "<>", ">", ">=", "<", "<="))
        space = self._chance.choice((" ", " ", "", "\n", " /* x */ ", "--y\n"))
        return f"{self._operand()}{space}{sign}{space}{self._operand()}"

    def _numbered(self) -> str:
        return f"{self._name()} {self._chance.choice(('=', '<>', '>', '>=', '<', '<='))} {self._number()}"

    def _equal_text(self) -> str:
        return f"{self._name()} {self._chance.choice(('=', '<>'))} {self._text()}"

    def _chained(self) -> str:
        signs = [self._chance.choice(("=", "<>", ">", "IS NULL =", "IS NOT NULL =")) for _ in range(2)]
        return f"{self._operand()} {signs[0]} {self._operand()} {signs[1]} {self._operand()}"

    def _not(self) -> str:
        return self._word("NOT") + " " if self._chance.random() < 0.3 else ""

    def _between(self) -> str:
        low, high = (self._pick(self._number, self._number, self._operand) for _ in range(2))
        return f"{self._operand()} {self._not()}{self._word('BETWEEN')} {low} {self._word('AND')} {high}"

    def _among(self) -> str:
        texts = ", ".join(self._text() for _ in range(self._chance.choice((1, 2, 3, 7))))
        left = self._name() if self._chance.random() < 0.9 else self._operand()
        return f"{left} {self._not()}{self._word('IN')} ({texts})"

    def _null(self) -> str:
        return f"{self._operand()} {self._word('IS')} {self._not()}{self._word('NULL')}"

    def _searched(self) -> str:
        word = self._word(self._chance.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
        left = self._name() if self._chance.random() < 0.8 else self._operand()
        return f"{left} {self._not()}{word} {self._text()}"


def properties(chance: random.Random) -> bytes:
    """A properties text with some of the names."""
    parts: list[bytes] = []
    for name in (*NAMES, *SOFT_NAMES):
        luck = chance.random()
        if luck < 0.3:
            continue
        value = chance.choice(NUMBERS if luck < 0.75 else TEXTS).encode()
        if luck > 0.985:
            value = chance.choice(MALFORMED)
        parts.append(name.encode() + b"\x01" + value)
        if luck > 0.97:
            parts.append(name.encode() + b"\x01" + chance.choice(NUMBERS).encode())
    parts += chance.choices([b"UNIQ_KEY\x010A", b"no value\x01", b"", b"\x01x", b"TAGS\x01t", b"x\x01y\x01z"], k=2)
    chance.shuffle(parts)
    return b"\x02".join(parts) + (b"\x02" if chance.random() < 0.8 else b"")


def as_mapping(text: bytes) -> dict[str, str]:
    """The properties as RocketMQ decodes them."""
    pairs = (pair.partition("\x01") for pair in text.decode("utf-8", "mqcore.java").split("\x02"))
    return {name: value for name, separator, value in pairs if separator and name and value}
