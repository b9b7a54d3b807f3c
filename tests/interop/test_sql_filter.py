"""SQL92 expressions: the same meaning as in Apache's filter module, which judges each pair. What differs is in a table.

| difference | reason |
|---|---|
| `contains`, `startswith`, `endswith` behind a value are operators, as in RocketMQ 5 | 4.9 ignores them, as all text |
|                                                                                   | behind a whole expression |
| the same words where a value stands are names of properties, as in 4.9; RocketMQ 5 refuses | messages may have such |
| more than 32,768 characters, 64 properties or 160 values at a time are refused | what is compiled once is run for |
|                                                     | each message; RocketMQ ends where its stack does |
| of two mistakes the refusal may name the other; what was expected is listed as a whole | JavaCC looks ahead less far |
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from mqcore._fast.filter.program import LoadedProgram
from mqcore.bloom import BloomFilter
from mqcore.errors import FilterSyntaxError
from mqcore.filter.expressions import Expression
from mqcore.filter.sql import compile_sql
from mqcore.filter.values import EvaluationError
from tests.interop.sql_cases import Expressions, as_mapping, properties
from tests.rigs import maven
from tests.rigs.filter_referee import FilterReferee

pytestmark = pytest.mark.skipif(bool(maven.missing_tools()), reason=maven.missing_tools())

BATCH = 100
SOFT_OPERATOR = re.compile(r"[\w$')]\s*(/\*.*?\*/|--.*?\n)?\s*\b(contains|startswith|endswith)\b", re.IGNORECASE)
SOFT_REFUSAL = re.compile(r'^\S+ Encountered " "(CONTAINS|STARTSWITH|ENDSWITH)"')


@pytest.fixture(scope="module", params=["4.9.8", "5.3.3"])
def referee(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilterReferee]:
    with FilterReferee(request.param, tmp_path_factory.mktemp("referee") / f"{request.param}.log") as one:
        one.version = request.param
        yield one


REFUSALS = (
    "a > ", "", "a > TRUE", "TRUE = 'a'", "a = NULL", "a @ 5", 'a " 5', "a = 'x", "a = 0.0",
    "a = 99999999999999999999", "a between 5 and 3", "a between null and 3", "a between 'x' and 5",
    "a between 'x' and TRUE", "5 in ('a')", "- a",
    "a = 1 AND 5", "'x'", "a in (5)", "a\n = = 5", "(a = 1", "a IS 5", "(a = b) > 5", "a = 1e400",
    "a NOT IN ('x', 'y') > 1", "a between 1e10 and 1.5e-7", "(NOT a) > 1", "a ä", "a \x0b", "a ä = 5",
)  # fmt: skip


@pytest.mark.parametrize("expression", REFUSALS)
def test_a_refusal_has_apaches_words(referee: FilterReferee, expression: str) -> None:
    """The first line: behind it JavaCC lists what it expected, and leaves some of it out."""
    (words,) = referee.judge([(expression, [])])
    with pytest.raises(FilterSyntaxError) as caught:
        compile_sql(expression)
    assert str(caught.value).split("\n")[0] == str(words).split("\n")[0]


def of_tree(tree: Expression, text: bytes) -> Any:
    try:
        return tree.evaluate(as_mapping(text).get)
    except EvaluationError:
        return "error"


def is_in_the_table(version: str, expression: str, answer: Any) -> bool:
    """The first two rows; a random mistake may move such a word to another place."""
    if version == "4.9.8":
        return SOFT_OPERATOR.search(expression) is not None
    return isinstance(answer, str) and SOFT_REFUSAL.search(answer) is not None


def disagreements(referee: FilterReferee, chance: random.Random, count: int, each: int) -> Iterator[str]:
    """Compare *count* pairs of a random expression and random properties in three ways: Java's, the tree, the program.

    Expressions are taken *each* times; those that all refuse do not count.
    """
    maker = Expressions(chance, referee.version == "5.3.3")
    while count > 0:
        questions = [(maker.any(), [properties(chance) for _ in range(each)]) for _ in range(BATCH)]
        for (expression, texts), answer in zip(questions, referee.judge(questions), strict=True):
            if is_in_the_table(referee.version, expression, answer):
                continue
            try:
                compiled = compile_sql(expression)
            except FilterSyntaxError as error:
                if not isinstance(answer, str):
                    yield f"refused {expression!r}: {error}"
                continue
            if isinstance(answer, str):
                yield f"accepted {expression!r}: {answer}"
                continue
            program = LoadedProgram(compiled.program)
            count -= len(texts)
            for text, wanted in zip(texts, answer, strict=True):
                got = (of_tree(compiled.tree, text), program.run(text))
                if got != (wanted, wanted):
                    yield f"{expression!r} over {text!r}: tree {got[0]}, program {got[1]}, wanted {wanted}"


def test_expressions_mean_what_they_mean_to_apaches_filter(referee: FilterReferee, chance: random.Random) -> None:
    assert list(disagreements(referee, chance, 4_000, 20))[:20] == []


def test_the_bits_of_a_bitmap_are_apaches(referee: FilterReferee, chance: random.Random) -> None:
    for _ in range(300):
        rate, count = chance.randrange(1, 100), chance.choice((1, 2, 32, 33, 1_000, chance.randrange(1, 100_000)))
        key = "".join(chance.choices("abc%#_日ä𝄞-", k=chance.randrange(60)))
        bloom = BloomFilter.sized(rate, count)
        assert referee.bits(rate, count, key) == (bloom.bit_count, list(bloom.bits_of(key))), (rate, count, key)


@pytest.mark.slow
def test_a_million_pairs_mean_what_they_mean_to_apaches_filter(referee: FilterReferee, chance: random.Random) -> None:
    assert list(disagreements(referee, chance, 500_000, 20))[:20] == []
