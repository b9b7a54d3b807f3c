"""Compiles filters without holding up the event loop: in a thread, one at a time, however many clients ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mqcore.errors import FilterSyntaxError
from mqcore.filter.expressions import Expression
from mqcore.filter.program import encode_program
from mqcore.filter.sql import Answer, CompiledFilter, answer_sql, checked, compile_sql, find_sql, keep_sql
from mqcore.protocol.bodies import SubscriptionData
from mqcore.protocol.heartbeat import EXPRESSION_SQL92


def compile_filter(kind: str, expression: str) -> CompiledFilter:
    """Compile an expression that is not one of tags, here and now. Raises FilterSyntaxError."""
    check_kind(kind)
    return compile_sql(expression)


def check_kind(kind: str) -> None:
    if kind != EXPRESSION_SQL92:
        raise FilterSyntaxError(f"no filter of type {kind}")


class Answers:
    """What came of expressions, by kind and text, as long as somebody has use for it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Answer] = {}

    def put(self, kind: str, expression: str, answer: Answer) -> None:
        self._found[kind, expression] = answer

    def get(self, kind: str, expression: str) -> CompiledFilter:
        """Return the filter, made here and now if it has not been asked for before. Raises FilterSyntaxError."""
        found = self._found.get((kind, expression))
        return compile_filter(kind, expression) if found is None else checked(found)


class FilterCompiler:
    """One event loop. What is remembered is answered at once."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def compile(self, kind: str, expression: str) -> CompiledFilter:
        """Compile an expression that is not one of tags. Raises FilterSyntaxError."""
        check_kind(kind)
        return checked(await self._answer(expression))

    async def compile_all(self, subscriptions: Iterable[SubscriptionData]) -> Answers:
        """Compile those *subscriptions* that are not of tags; refusals are among the answers."""
        answers = Answers()
        for one in subscriptions:
            if one.expression_type == EXPRESSION_SQL92 and one.sub_string:
                answers.put(one.expression_type, one.sub_string, await self._answer(one.sub_string))
        return answers

    async def encode(self, tree: Expression) -> bytes:
        """Return the program of *tree*."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(encode_program, tree)

    async def _answer(self, expression: str) -> Answer:
        found = find_sql(expression)
        return await self._make(expression) if found is None else found

    async def _make(self, expression: str) -> Answer:
        async with self._one_at_a_time:
            # Members of a group say the same at the same time.
            made = find_sql(expression)
            if made is None:
                made = await asyncio.to_thread(answer_sql, expression)
                keep_sql(expression, made)
            return made
