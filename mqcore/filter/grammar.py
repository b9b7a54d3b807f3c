"""RocketMQ's SQL92: text to tree, with the same refusals in the same words.

Lark knows the grammar. What is RocketMQ's own way is done around it: an expression ends where nothing can go on with
it, and what follows is not even read; tokens are the longest that fit; a refusal names what JavaCC would name. Taking
it in costs 60 ms, so import this module only where an expression is to be read (``mqcore.filter.sql`` does).
Source: RocketMQ filter/parser/SelectorParser.jj, of 4.9 and of 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

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
    is_condition,
)
from mqcore.filter.values import LONG_MAX, EvaluationError, Long, Value, compare, number_text, parse_integer

EXPRESSION_LENGTH_MAX: Final = 32_768
"""Characters of an expression. RocketMQ has no such limit; its requests may have 64 KiB of header."""

GRAMMAR: Final = r"""
    ?start: any
    ?any: all (OR all)*                                -> any
    ?all: equality (AND equality)*                     -> all
    ?equality: comparison
        | equality "=" comparison                      -> equal
        | equality _UNEQUAL comparison                   -> unequal
        | equality IS NULL                             -> is_null
        | equality IS NOT NULL                         -> is_not_null
    ?comparison: unary
        | comparison ">" unary                         -> greater
        | comparison ">=" unary                        -> greater_or_equal
        | comparison "<" unary                         -> less
        | comparison "<=" unary                        -> less_or_equal
        | comparison BETWEEN unary AND unary           -> between
        | comparison NOT BETWEEN unary AND unary       -> not_between
        | comparison IN "(" texts ")"                  -> among
        | comparison NOT IN "(" texts ")"              -> not_among
        | comparison part STRING_LITERAL               -> search
        | comparison NOT part STRING_LITERAL           -> not_search
    part: CONTAINS | STARTSWITH | ENDSWITH
    texts: STRING_LITERAL ("," STRING_LITERAL)*
    ?unary: "+" unary
        | "-" unary                                    -> negation
        | NOT unary                                    -> negated
        | primary
    ?primary: STRING_LITERAL                           -> text
        | DECIMAL_LITERAL                              -> integer
        | FLOATING_POINT_LITERAL                       -> double
        | TRUE                                         -> true
        | FALSE                                        -> false
        | NULL                                         -> null
        | ID                                           -> property
        | "(" any ")"

    // Digits and letters are ASCII's. Of two tokens that fit the longer one counts, so what may be longer comes first.
    FLOATING_POINT_LITERAL.3: /([0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)/
    DECIMAL_LITERAL.2: /(0|[1-9][0-9]*[lL]?)/
    STRING_LITERAL.2: /'(''|[^'])*'/
    ID.2: /[A-Za-z_$][A-Za-z0-9_$]*/
    _UNEQUAL: "<>"
    _NOT_LESS: ">="
    _NOT_GREATER: "<="
    // A comment to the end of the line needs that end; without it these are two signs. Looked for once, not backwards.
    LINE_COMMENT.3: /--[^\n\r]*+[\n\r]/
    BLOCK_COMMENT.3: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
    BLANK: /[ \t\n\r\f]+/
    %ignore LINE_COMMENT
    %ignore BLOCK_COMMENT
    %ignore BLANK
    %declare NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH
"""

KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
SOFT_KEYWORDS: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
"""Operators of RocketMQ 5; in 4.9 they are names of properties, and they still are here where a value may stand."""

SIGNS: Final = {
    "EQUAL": "=", "_UNEQUAL": "<>", "MORETHAN": ">", "_NOT_LESS": ">=", "LESSTHAN": "<", "_NOT_GREATER": "<=",
    "LPAR": "(", "COMMA": ",", "RPAR": ")", "PLUS": "+", "MINUS": "-",
}  # fmt: skip
"""The tokens that are signs."""

EXPECTED: Final = (
    "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH",
    "DECIMAL_LITERAL", "FLOATING_POINT_LITERAL", "STRING_LITERAL", "ID", "EQUAL", "_UNEQUAL", "MORETHAN", "_NOT_LESS",
    "LESSTHAN", "_NOT_GREATER", "LPAR", "COMMA", "RPAR", "MINUS", "PLUS",
)  # fmt: skip
"""The order in which RocketMQ lists what it would have taken."""

RUNTIME: Final = "java.lang.RuntimeException: "
PARSE: Final = "org.apache.rocketmq.filter.parser.ParseException: "
LEXICAL: Final = "org.apache.rocketmq.filter.parser.TokenMgrError: "


def parse(text: str) -> Expression:
    """Return the condition that *text* states. Raises FilterSyntaxError."""
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise FilterSyntaxError(f"expression too long: got {len(text)} characters, wanted {EXPRESSION_LENGTH_MAX}")
    state: Any = PARSER.parse_interactive(text)  # which has no types
    last: Token | None = None
    try:
        for token in _tokens(state, text):
            if not _feed(state, token, last):
                break
            last = token
        result = _finish(state, text, last)
    except UnexpectedCharacters as error:
        raise FilterSyntaxError(_lexical_error(text, error.pos_in_stream or 0)) from None
    except RecursionError:
        raise FilterSyntaxError("java.lang.StackOverflowError") from None
    return _condition(result)


def _tokens(state: Any, text: str) -> Iterator[Token]:
    for token in state.lexer_thread.lex(state.parser_state):
        if token.type == "ID":
            word = token.upper() if token.isascii() else token
            if word in KEYWORDS or (word in SOFT_KEYWORDS and word in state.choices()):
                token = Token.new_borrow_pos(word, str(token), token)
        yield token


def _feed(state: Any, token: Token, last: Token | None) -> bool:
    """Give *token* to the parser; False if the expression was over before it."""
    try:
        state.feed_token(token)
    except UnexpectedToken:
        accepts = state.accepts()
        if "$END" in accepts:
            return False
        raise FilterSyntaxError(_unexpected(token, accepts)) from None
    return True


def _finish(state: Any, text: str, last: Token | None) -> Expression:
    try:
        result: Expression = state.feed_eof(last)
    except UnexpectedToken:
        raise FilterSyntaxError(_unexpected_end(text, state.accepts())) from None
    return result


# What refusals say.


def _expected(accepts: set[str]) -> str:
    wanted = [SIGNS.get(name, name) for name in EXPECTED if name in accepts]
    named = [f"<{name}>" if name.endswith("LITERAL") or name == "ID" else f'"{name}"' for name in wanted]
    return f"Was expecting{' one of' if len(named) > 1 else ''}:\n" + "".join(f"    {name} ...\n" for name in named)


def _unexpected(token: Token, accepts: set[str]) -> str:
    kind = f'"{SIGNS.get(token.type, token.type)}"' if token.type in KEYWORDS | SIGNS.keys() else f"<{token.type}>"
    image = _escaped(token)
    place = f"line {token.line}, column {token.column}"
    return f'{PARSE}Encountered " {kind} "{image} "" at {place}.\n{_expected(accepts)}    '


def _unexpected_end(text: str, accepts: set[str]) -> str:
    line, column = (text.count("\n") + 1, len(text) - text.rfind("\n") - 1) if text else (0, 0)
    return f'{PARSE}Encountered "<EOF>" at line {line}, column {column}.\n{_expected(accepts)}    '


ESCAPES: Final = {ord(sign): f"\\{name}" for sign, name in zip("\b\t\n\f\r\"'\\", "btnfr\"'\\", strict=True)}


def _escaped(text: str) -> str:
    plain = text.translate(ESCAPES)
    return "".join(sign if " " <= sign <= "~" else f"\\u{ord(sign):04x}" for sign in plain)


def _lexical_error(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    where = f"{LEXICAL}Lexical error at line {line}, column "
    sign = text[at]
    if sign == "'" or at + 1 == len(text):
        # JavaCC has read on for what could follow, to the end.
        after = _escaped(text[at:]) if sign == "'" else ""
        return f'{where}{column + max(1, len(after and text[at:]))}.  Encountered: <EOF> after : "{after}"'
    return f'{where}{column}.  Encountered: "{_escaped(sign)}" ({ord(sign)}), after : ""'


# What a rule makes of its parts.


def _condition(expression: Expression) -> Expression:
    if is_condition(expression):
        return expression
    if isinstance(expression, Property):
        return Truth(expression)
    raise FilterSyntaxError(f"{PARSE}Expression will not result in a boolean value: {expression}")


def _number(expression: Expression) -> Expression:
    """Return an operand of an ordering; refuse what is known not to be a number."""
    is_text = isinstance(expression, Constant) and (
        expression.value is None or isinstance(expression.value, bool | str)
    )
    if is_text or is_condition(expression):
        raise FilterSyntaxError(f"{RUNTIME}Value '{expression}' cannot be compared.")
    return expression


def _unquoted(token: str) -> str:
    """A quote stands for the one behind it."""
    return token[1:-1].replace("''", "'")


def _check_range(low: Expression, high: Expression) -> None:
    if not isinstance(low, Constant) or not isinstance(high, Constant):
        return
    if low.value is None or high.value is None:
        raise FilterSyntaxError(f"{RUNTIME}Illegal values of between, values can not be null!")
    try:
        is_empty = compare(high.value, low.value) < 0
    except EvaluationError as error:
        cause = "java.lang.ClassCastException" if "cast" in str(error) else "java.lang.NumberFormatException"
        outer = "" if "cast" in str(error) else RUNTIME
        raise FilterSyntaxError(f"{outer}{cause}: {error}") from None
    if is_empty:
        raise FilterSyntaxError(
            f"{RUNTIME}Illegal values of between, left value({_plain(low.value)}) must less than or equal to "
            f"right value({_plain(high.value)})"
        )


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else number_text(value or 0)


def _joined(parts: tuple[Any, ...], decided_by: bool) -> Expression:
    operands = [part for part in parts if not isinstance(part, Token)]
    if len(operands) == 1:
        only: Expression = operands[0]
        return only
    return Junction(tuple(_condition(operand) for operand in operands), decided_by)


def _comparison(relation: Relation) -> Callable[[_Builder, Expression, Expression], Expression]:
    def build(self: _Builder, left: Expression, right: Expression) -> Expression:
        return Comparison(relation, _number(left), _number(right))

    return build


@v_args(inline=True)
class _Builder(Transformer[Token, Expression]):
    """One method a rule; those that refuse are called in the order in which RocketMQ looks."""

    def any(self, *parts: Any) -> Expression:
        return _joined(parts, True)

    def all(self, *parts: Any) -> Expression:
        return _joined(parts, False)

    def equal(self, left: Expression, right: Expression) -> Expression:
        for operand in (left, right):
            if operand == Constant(None):
                raise FilterSyntaxError(f"{RUNTIME}'{operand}' cannot be compared.")
        if isinstance(left, Constant) and isinstance(right, Constant) and is_condition(left) > is_condition(right):
            raise FilterSyntaxError(f"{RUNTIME}'{left}' cannot be compared with '{right}'")
        return Comparison(Relation.EQUAL, left, right)

    def unequal(self, left: Expression, right: Expression) -> Expression:
        return Not(self.equal(left, right))

    def is_null(self, left: Expression, *_: Token) -> Expression:
        return Comparison(Relation.EQUAL, left, Constant(None))

    def is_not_null(self, left: Expression, *_: Token) -> Expression:
        return Not(self.is_null(left))

    greater = _comparison(Relation.GREATER)
    greater_or_equal = _comparison(Relation.GREATER_OR_EQUAL)
    less = _comparison(Relation.LESS)
    less_or_equal = _comparison(Relation.LESS_OR_EQUAL)

    def between(self, value: Expression, _between: Token, low: Expression, _and: Token, high: Expression) -> Expression:
        _check_range(low, high)
        return Junction((self.greater_or_equal(value, low), self.less_or_equal(value, high)), False)

    def not_between(
        self, value: Expression, _not: Token, _between: Token, low: Expression, _and: Token, high: Expression
    ) -> Expression:
        return Junction((self.less(value, low), self.greater(value, high)), True)

    def texts(self, *tokens: Token) -> tuple[str, ...]:
        return tuple(map(_unquoted, tokens))

    def among(self, left: Expression, _in: Token, texts: tuple[str, ...]) -> Expression:
        return self._membership(left, texts, False)

    def not_among(self, left: Expression, _not: Token, _in: Token, texts: tuple[str, ...]) -> Expression:
        return self._membership(left, texts, True)

    def _membership(self, left: Expression, texts: tuple[str, ...], is_negated: bool) -> Expression:
        if not isinstance(left, Property):
            raise FilterSyntaxError(f"{RUNTIME}Expected a property for In expression, got: {left}")
        return AmongTexts(left, texts, is_negated)

    def part(self, token: Token) -> Part:
        return Part(token.type)

    def search(self, left: Expression, part: Part, text: Token) -> Expression:
        return Search(left, part, _unquoted(text), False)

    def not_search(self, left: Expression, _not: Token, part: Part, text: Token) -> Expression:
        return Search(left, part, _unquoted(text), True)

    def negation(self, operand: Expression) -> Expression:
        return Negation(operand)

    def negated(self, _not: Token, operand: Expression) -> Expression:
        return Not(_condition(operand))

    def text(self, token: Token) -> Expression:
        return Constant(_unquoted(token))

    def integer(self, token: Token) -> Expression:
        digits = token.rstrip("lL")
        try:
            value = parse_integer(digits, LONG_MAX)
        except EvaluationError as error:
            raise FilterSyntaxError(f"java.lang.NumberFormatException: {error}") from None
        return Constant(value if value < 2**31 else Long(value))

    def double(self, token: Token) -> Expression:
        value = float(token)
        if value == float("inf"):
            raise FilterSyntaxError(f"{RUNTIME}{token} is greater than 1.7976931348623157E308")
        if value == 0.0:
            raise FilterSyntaxError(f"{RUNTIME}{token} is less than 4.9E-324")
        return Constant(value)

    def true(self, _: Token) -> Expression:
        return Constant(True)

    def false(self, _: Token) -> Expression:
        return Constant(False)

    def null(self, _: Token) -> Expression:
        return Constant(None)

    def property(self, token: Token) -> Expression:
        return Property(str(token))


PARSER: Final = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), propagate_positions=False)
