"""SQL92 expressions: grammar, three-valued logic, Java's numbers; the tree and the compiled program say the same.

What Apache's own filter says of random expressions is in tests/interop/test_sql_filter.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from mqcore import layout
from mqcore._fast.filter.program import LoadedProgram
from mqcore.errors import FilterSyntaxError
from mqcore.filter.sql import compile_sql
from mqcore.filter.values import EvaluationError
from tests.rows import walked


def by_tree(expression: str, properties: Mapping[str, str]) -> Any:
    try:
        return compile_sql(expression).tree.evaluate(properties.get)
    except EvaluationError:
        return "error"


def by_program(expression: str, properties: Mapping[str, str]) -> Any:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return LoadedProgram(compile_sql(expression).program).run(text.encode())


TWINS = [pytest.param(by_tree, id="tree"), pytest.param(by_program, id="program")]


@walked("evaluate", TWINS)
@walked(
    "expression, properties, wanted",
    [
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5"}, False),
        ("a > 5", {}, None),
        ("a > 5", {"a": "5.5"}, "error"),  # read as an Integer, as 5 is one
        ("a > 5", {"a": "2147483648"}, "error"),
        ("a > 2147483648", {"a": "2147483649"}, True),
        ("a > 5.0", {"a": "5.5"}, True),
        ("a > 5.0", {"a": " 5.5d\t"}, True),
        ("a > 5.0", {"a": "0x1p3"}, True),
        ("a > 5.0", {"a": "NaN"}, True),
        ("a = b", {"a": "1", "b": "1.0"}, False),
        ("a >= b", {"a": "1", "b": "1.0"}, True),
        ("a >= b", {"a": "1", "b": "x"}, "error"),
        ("a = 5 OR b = 'x'", {"a": "y", "b": "x"}, "error"),
        ("b = 'x' OR a = 5", {"a": "y", "b": "x"}, True),
        ("a = 5 AND b = 'x'", {"a": "4"}, False),
        ("b = 'x' AND a = 4", {"a": "4"}, None),
        ("NOT (b = 'x')", {}, None),
        ("b IS NULL", {}, True),
        ("b IS NOT NULL", {}, False),
        ("NULL", {}, None),
        ("a", {"a": "true"}, False),
        ("a = TRUE", {"a": "tRuE"}, True),
        ("TRUE = a", {"a": "true"}, "error"),
        ("a BETWEEN 1 AND 3", {"a": "3"}, True),
        ("a NOT BETWEEN 1 AND 3", {"a": "3"}, False),
        ("a IN ('x', 'it''s')", {"a": "it's"}, True),
        ("a NOT IN ('x')", {"a": "it's"}, True),
        ("a IN ('x')", {}, None),
        ("a = -5", {"a": "-5"}, True),
        ("a = --5", {"a": "5"}, True),
        ("a = 5 -- to the end", {"a": "5"}, True),
        ("a = 5 and a /* not */ <> 4", {"a": "5"}, True),
        ("a = 05", {"a": "0"}, True),  # what cannot go on is over, and not read
        ("a CONTAINS 'll'", {"a": "hello"}, True),
        ("a NOT STARTSWITH 'he'", {"a": "hello"}, False),
        ("a ENDSWITH 'lo'", {}, False),
        ("contains = 'x'", {"contains": "x"}, True),
        ("a = 5", {"a": "５"}, True),
        ("(a > 1) = (b > 1)", {"a": "2", "b": "0"}, False),
        ("a > -(b = 5)", {"b": "x"}, None),  # the right side is not looked at
    ],
)
def test_an_expression_means_what_rocketmq_means(
    evaluate: Any, expression: str, properties: dict[str, str], wanted: Any
) -> None:
    assert evaluate(expression, properties) is wanted or evaluate(expression, properties) == wanted == "error"


@pytest.mark.parametrize("expression", ["a > ", "5", "a > 'x'", "a = NULL", "", "a = 0.0", "a in (5)", "a @"])
def test_what_means_nothing_is_refused_each_time(expression: str) -> None:
    for _ in range(2):
        with pytest.raises(FilterSyntaxError):
            compile_sql(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5 " + "-" * 40_000,
        "NOT " * 5_000 + "a",
        "(a = " * 300 + "b" + ")" * 300,
        " OR ".join(f"a{n} = 1" for n in range(layout.FILTER_NAMES_MAX + 1)),
    ],
)
def test_what_is_beyond_a_limit_is_refused_and_not_run_out_of(expression: str) -> None:
    with pytest.raises(FilterSyntaxError):
        compile_sql(expression)


@pytest.mark.parametrize("evaluate", TWINS)
def test_a_thousand_conditions_and_a_thousand_texts_are_one_expression(evaluate: Any) -> None:
    among = ", ".join(f"'{n}'" for n in range(1_000))
    conditions = " OR ".join(f"a = {n}" for n in range(1_000))
    assert evaluate(f"b IN ({among}) AND ({conditions})", {"a": "999", "b": "999"}) is True
    assert evaluate(f"b IN ({among}) AND ({conditions})", {"a": "1000", "b": "999"}) is False


def test_the_last_of_several_properties_counts_and_an_empty_one_is_none() -> None:
    program = LoadedProgram(compile_sql("a = 'x'").program)
    assert program.run(b"a\x01y\x02a\x01x\x02") is True
    assert program.run(b"a\x01x\x02a\x01") is True
    assert program.run(b"a\x01\x02") is None
    assert program.run(b"") is None
    assert program.run(b"aa\x01x\x02\x01x\x02a") is None


@pytest.mark.parametrize(
    ("expression", "value", "wanted"),
    [
        ("a = '\ufffd'", b"\xff", True),
        ("a = '\ufffd'", b"\xed\xa0\x80", True),
        ("a = 'x\ufffdy'", b"x\xe4y", True),
        ("a = b", b"\xff", True),
        ("a CONTAINS '\ufffdy'", b"x\xe4y", True),
        ("a STARTSWITH 'x'", b"x\xff", True),
        ("a = 'x'", b"x\xff", False),
        ("a = '\ud800'", b"\xed\xa0\x80", False),
    ],
)
def test_malformed_bytes_are_the_text_that_java_makes_of_them(expression: str, value: bytes, wanted: bool) -> None:
    program = LoadedProgram(compile_sql(expression).program)
    assert program.run(b"a\x01" + value + b"\x02b\x01\xfe\x02") is wanted


def test_a_damaged_program_is_not_loaded() -> None:
    whole = compile_sql("a > 5 AND b IN ('x', 'y') OR c CONTAINS 'z'").program
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="not a filter program"):
            LoadedProgram(whole[:size])
    step = layout.FILTER_HEAD.size
    for damaged in (
        whole[:step] + (99).to_bytes(4, sys.byteorder) + whole[step + 4 :],  # no such step
        whole[: step + 4] + (7).to_bytes(4, sys.byteorder) + whole[step + 8 :],  # no such name
        (0).to_bytes(4, sys.byteorder) + whole[4:],
    ):
        with pytest.raises(ValueError, match="not a filter program"):
            LoadedProgram(damaged)


LEAVES = [layout.constants("FilterOp")[f"LEAVE_IF_{what}"] for what in ("FALSE", "TRUE", "NULL")]


@pytest.mark.parametrize("expression", ["a > 5 AND b = 'x'", "a = 'x' OR b IN ('x', 'y')"])
def test_a_program_that_leaves_to_where_other_values_lie_is_not_loaded(expression: str) -> None:
    whole = compile_sql(expression).program
    count = int.from_bytes(whole[:4], sys.byteorder)
    places = [layout.FILTER_HEAD.size + number * layout.FILTER_STEP.size for number in range(count)]
    steps = [layout.FILTER_STEP.struct.unpack_from(whole, place) for place in places]
    (leave,) = (number for number, (op, _, _) in enumerate(steps) if op in LEAVES)
    assert steps[leave][2] == count, "behind the junction, with one value"
    for target in range(leave + 2, count):  # between what is compared, among the texts of IN, before the junction
        damaged = bytearray(whole)
        layout.FILTER_STEP.struct.pack_into(damaged, places[leave], *steps[leave][:2], target)
        with pytest.raises(ValueError, match="not a filter program"):
            LoadedProgram(damaged)


def test_the_grammar_is_not_read_before_the_first_expression() -> None:
    code = "import sys, mqcore.filter.sql, mqcore.broker.core; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
