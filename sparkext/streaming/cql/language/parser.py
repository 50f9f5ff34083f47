"""Parses a CQL text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, reduce
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from sparkext.joins.durations import UNITS
from sparkext.streaming.cql.language.grammar import GRAMMAR
from sparkext.streaming.cql.language.problems import CqlProblems
from sparkext.streaming.cql.language.syntax import (
    Call,
    Case,
    Cast,
    Constant,
    Formula,
    FromItem,
    Item,
    Name,
    Operation,
    Position,
    Program,
    RegisteredQuery,
    RegisteredStream,
    Select,
    SetOperation,
    StreamColumn,
    Window,
)
from sparkext.streaming.cql.language.unsupported import describe_unsupported_sql

_TERMINAL_NAMES = {
    "NAME": "a name",
    "SQL_WORD": "a name",
    "QUOTED": "a name",
    "INTEGER": "a whole number",
    "DECIMAL": "a number",
    "TEXT": "a text",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "LESSTHAN": "'<'",
    "MORETHAN": "'>'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "DOT": "'.'",
    "STAR": "'*'",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "SLASH": "'/'",
    "PERCENT": "'%'",
    "EQUAL": "'='",
    "$END": "the end",
}
_COMPARISONS = {"!=": "<>"}


def parse(text: str) -> Program:
    """Return the syntax tree of a text.

    Raises
    ------
    CqlProblems
        The text is not CQL. The message has the position, the text found there, and the expected alternatives.
    """
    try:
        program = _Builder().transform(_create_parser().parse(text))
    except UnexpectedToken as error:
        if error.token.type == "$END":
            raise _create_end_error(text, error.accepts or error.expected) from None
        raise _create_unexpected_error(text, error, str(error.token), error.accepts or error.expected) from None
    except UnexpectedCharacters as error:
        raise _create_unexpected_error(text, error, text[error.pos_in_stream or 0], error.allowed or ()) from None
    except UnexpectedEOF as error:
        raise _create_end_error(text, error.expected) from None
    except VisitError as error:
        raise error.orig_exc from None
    assert isinstance(program, Program), "the grammar's start"
    return program


@cache
def _create_parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _create_unexpected_error(text: str, error: UnexpectedInput, word: str, terminals: Iterable[str]) -> CqlProblems:
    """Return the error for a word or a character that CQL does not allow at its position."""
    advice = describe_unsupported_sql(text, error.pos_in_stream or 0)
    position = Position(error.line, error.column)
    if advice is not None:
        return CqlProblems([(position, advice)])
    return CqlProblems([(position, f"found {word!r}, expected {_name_terminals(terminals)}")])


def _create_end_error(text: str, terminals: Iterable[str]) -> CqlProblems:
    lines = text.rstrip().splitlines() or [""]
    end = Position(len(lines), len(lines[-1]) + 1)
    return CqlProblems([(end, f"the text ends, expected {_name_terminals(terminals)}")])


def _name_terminals(terminals: Iterable[str]) -> str:
    """Return the names of terminals as users know them."""
    names = sorted({_TERMINAL_NAMES.get(name, name.strip("_")) for name in terminals if not name.startswith("__")})
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _read_position(meta: Any) -> Position:
    return Position(getattr(meta, "line", 1), getattr(meta, "column", 1))


_DISTINCT, _ALL, _NOT_NULL = "distinct", "all", "not null"


@v_args(meta=True)
class _Builder(Transformer[Token, Any]):
    """Builds the syntax tree from the rules of the grammar."""

    def start(self, meta: Any, parts: list[Any]) -> Program:
        streams = tuple(part for part in parts if isinstance(part, RegisteredStream))
        return Program(streams, tuple(part for part in parts if isinstance(part, RegisteredQuery)))

    def name(self, meta: Any, parts: list[Token]) -> str:
        return str(parts[0]).strip('`"')

    def stream(self, meta: Any, parts: list[Any]) -> RegisteredStream:
        return RegisteredStream(parts[0], tuple(parts[1:]), _read_position(meta))

    def stream_column(self, meta: Any, parts: list[Any]) -> StreamColumn:
        name, kind, *more = parts
        digits = next((part for part in more if part != _NOT_NULL), "")
        return StreamColumn(name, kind + digits, _NOT_NULL not in more, _read_position(meta))

    def type_digits(self, meta: Any, parts: list[Token]) -> str:
        return f"({','.join(map(str, parts))})"

    def not_null(self, meta: Any, parts: list[Any]) -> str:
        return _NOT_NULL

    def relation_query(self, meta: Any, parts: list[Any]) -> RegisteredQuery:
        return RegisteredQuery(parts[0], None, None, parts[1], None, _read_position(meta))

    def recursive_query(self, meta: Any, parts: list[Any]) -> RegisteredQuery:
        return RegisteredQuery(parts[0], None, None, parts[1], None, _read_position(meta), recursive=True)

    def stream_query(self, meta: Any, parts: list[Any]) -> RegisteredQuery:
        name, (operator, period, relation, delay) = parts
        if period is not None and operator != "rstream":
            raise CqlProblems([(_read_position(meta), f"{operator.upper()} has no period: only RSTREAM has a period")])
        return RegisteredQuery(name, operator, period, relation, delay, _read_position(meta))

    def to_stream(self, meta: Any, parts: list[Any]) -> tuple[str, int | None, Any, int | None]:
        period = next((value for kind, value in _select_tagged(parts) if kind == "period"), None)
        delay = next((value for kind, value in _select_tagged(parts) if kind == "delay"), None)
        relation = next(part for part in parts if isinstance(part, Select | SetOperation))
        return parts[0], period, relation, delay

    def stream_operator(self, meta: Any, parts: list[Token]) -> str:
        return str(parts[0]).lower()

    def period(self, meta: Any, parts: list[int]) -> tuple[str, int]:
        return "period", _check_positive(parts[0], "a period", meta)

    def epsilon(self, meta: Any, parts: list[Any]) -> tuple[str, int]:
        return "delay", 0

    def delay(self, meta: Any, parts: list[int]) -> tuple[str, int]:
        return "delay", _check_positive(parts[0], "a delay", meta)

    def duration(self, meta: Any, parts: list[Any]) -> int:
        count, unit = parts
        if unit.lower() not in UNITS:
            raise CqlProblems(
                [(_read_position(meta), f"{unit!r} is not a unit of time, expected one of {' '.join(UNITS)}")]
            )
        return int(count) * UNITS[unit.lower()]

    def union(self, meta: Any, parts: list[Any]) -> SetOperation:
        return self._set("union", parts, meta)

    def except_(self, meta: Any, parts: list[Any]) -> SetOperation:
        return self._set("except", parts, meta)

    def intersect(self, meta: Any, parts: list[Any]) -> SetOperation:
        return self._set("intersect", parts, meta)

    def _set(self, op: str, parts: list[Any], meta: Any) -> SetOperation:
        return SetOperation(op, _ALL in parts, parts[0], parts[-1], _read_position(meta))

    def all(self, meta: Any, parts: list[Any]) -> str:
        return _ALL

    def distinct(self, meta: Any, parts: list[Any]) -> str:
        return _DISTINCT

    def select(self, meta: Any, parts: list[Any]) -> Select:
        clauses = dict(_select_tagged(parts))
        sources, conditions = clauses["sources"]
        all_conditions = (*conditions, *([clauses["where"]] if "where" in clauses else []))
        group = tuple(clauses.get("group", ()))
        return Select(
            _DISTINCT in parts,
            clauses["items"],
            sources,
            all_conditions,
            group,
            clauses.get("having"),
            _read_position(meta),
        )

    def items(self, meta: Any, parts: list[Item]) -> tuple[str, Any]:
        return "items", tuple(parts)

    def all_columns(self, meta: Any, parts: list[Any]) -> Item:
        return Item(None, None, None, _read_position(meta))

    def columns_of(self, meta: Any, parts: list[str]) -> Item:
        return Item(None, None, parts[0], _read_position(meta))

    def column(self, meta: Any, parts: list[Any]) -> Item:
        return Item(parts[0], parts[1] if len(parts) > 1 else None, None, _read_position(meta))

    def sources(self, meta: Any, parts: list[Any]) -> tuple[str, Any]:
        joined = [part for part in parts if isinstance(part, tuple)]
        sources = tuple(part[0] if isinstance(part, tuple) else part for part in parts)
        return "sources", (sources, tuple(condition for _, condition in joined))

    def joined(self, meta: Any, parts: list[Any]) -> tuple[FromItem, Formula]:
        return parts[0], parts[1]

    def source(self, meta: Any, parts: list[Any]) -> FromItem:
        window = next((part for part in parts if isinstance(part, Window)), None)
        names = [part for part in parts if isinstance(part, str)]
        return FromItem(names[0], window, names[-1], _read_position(meta))

    def where(self, meta: Any, parts: list[Formula]) -> tuple[str, Formula]:
        return "where", parts[0]

    def group(self, meta: Any, parts: list[Formula]) -> tuple[str, Any]:
        return "group", tuple(parts)

    def having(self, meta: Any, parts: list[Formula]) -> tuple[str, Formula]:
        return "having", parts[0]

    def now(self, meta: Any, parts: list[Any]) -> Window:
        return Window("now", _read_position(meta))

    def range(self, meta: Any, parts: list[int]) -> Window:
        amount, slide = parts[0], parts[1] if len(parts) > 1 else None
        if slide is not None:
            _check_positive(slide, "a slide", meta)
        return Window("range", _read_position(meta), amount, slide or 0)

    def unbounded(self, meta: Any, parts: list[Any]) -> Window:
        return Window("unbounded", _read_position(meta))

    def rows(self, meta: Any, parts: list[Token]) -> Window:
        amount = _check_positive(int(parts[0]), "a number of rows", meta)
        slide = _check_positive(int(parts[1]), "a slide", meta) if len(parts) > 1 else 0
        return Window("rows", _read_position(meta), amount, slide)

    def partition_rows(self, meta: Any, parts: list[Any]) -> Window:
        amount = _check_positive(int(parts[-1]), "a number of rows", meta)
        return Window("rows", _read_position(meta), amount, 0, tuple(parts[:-1]))

    def qualified(self, meta: Any, parts: list[str]) -> Name:
        return Name(parts[0] if len(parts) > 1 else None, parts[-1], _read_position(meta))

    def compared(self, meta: Any, parts: list[Any]) -> Operation:
        return Operation(parts[1], (parts[0], parts[2]), _read_position(meta))

    def comparison(self, meta: Any, parts: list[Token]) -> str:
        op = "".join(map(str, parts))
        return _COMPARISONS.get(op, op)

    def is_null(self, meta: Any, parts: list[Formula]) -> Operation:
        return Operation("is_null", tuple(parts), _read_position(meta))

    def is_not_null(self, meta: Any, parts: list[Formula]) -> Operation:
        return _negate_formula(self.is_null(meta, parts))

    def between(self, meta: Any, parts: list[Formula]) -> Operation:
        value, low, high = parts
        at = _read_position(meta)
        return Operation("and", (Operation(">=", (value, low), at), Operation("<=", (value, high), at)), at)

    def not_between(self, meta: Any, parts: list[Formula]) -> Operation:
        return _negate_formula(self.between(meta, parts))

    def in_(self, meta: Any, parts: list[Formula]) -> Operation:
        return reduce(
            lambda left, right: Operation("or", (left, right), _read_position(meta)),
            (Operation("=", (parts[0], part), _read_position(meta)) for part in parts[1:]),
        )

    def not_in(self, meta: Any, parts: list[Formula]) -> Operation:
        return _negate_formula(self.in_(meta, parts))

    def like(self, meta: Any, parts: list[Formula]) -> Call:
        return Call("like", tuple(parts), _read_position(meta))

    def not_like(self, meta: Any, parts: list[Formula]) -> Operation:
        return _negate_formula(self.like(meta, parts))

    def rlike(self, meta: Any, parts: list[Formula]) -> Call:
        return Call("rlike", tuple(parts), _read_position(meta))

    def not_rlike(self, meta: Any, parts: list[Formula]) -> Operation:
        return _negate_formula(self.rlike(meta, parts))

    def call(self, meta: Any, parts: list[Any]) -> Call:
        return Call(parts[0].lower(), tuple(parts[1:]), _read_position(meta))

    def call_star(self, meta: Any, parts: list[Any]) -> Call:
        return Call(parts[0].lower(), (), _read_position(meta), star=True)

    def call_distinct(self, meta: Any, parts: list[Any]) -> Call:
        return Call(parts[0].lower(), (parts[-1],), _read_position(meta), distinct=True)

    def case(self, meta: Any, parts: list[Any]) -> Case:
        branches = tuple(part for kind, part in parts if kind == "branch")
        return Case(branches, next((part for kind, part in parts if kind == "otherwise"), None), _read_position(meta))

    def branch(self, meta: Any, parts: list[Formula]) -> tuple[str, Any]:
        return "branch", tuple(parts)

    def otherwise(self, meta: Any, parts: list[Formula]) -> tuple[str, Formula]:
        return "otherwise", parts[0]

    def cast(self, meta: Any, parts: list[Any]) -> Cast:
        return Cast(parts[0], "".join(parts[1:]), _read_position(meta))

    def same(self, meta: Any, parts: list[Formula]) -> Formula:
        return parts[0]

    def date(self, meta: Any, parts: list[Token]) -> Constant:
        return Constant("date", _unquote(parts[0]), _read_position(meta))

    def timestamp(self, meta: Any, parts: list[Token]) -> Constant:
        return Constant("timestamp", _unquote(parts[0]), _read_position(meta))

    def text(self, meta: Any, parts: list[Token]) -> Constant:
        return Constant("string", _unquote(parts[0]), _read_position(meta))


def _create_operation_rule(op: str) -> Callable[..., Operation]:
    return lambda self, meta, parts: Operation(op, tuple(parts), _read_position(meta))


def _create_constant_rule(kind: str, text: str | None = None) -> Callable[..., Constant]:
    return lambda self, meta, parts: Constant(kind, str(parts[0]) if text is None else text, _read_position(meta))


_OPERATIONS = {"plus": "+", "minus": "-", "times": "*", "over": "/", "modulo": "%"}
_OPERATIONS |= {"or_": "or", "and_": "and", "not_": "not", "negate": "negate"}
for _rule, _op in _OPERATIONS.items():
    setattr(_Builder, _rule, v_args(meta=True)(_create_operation_rule(_op)))
for _rule, _kind, _literal in (
    ("integer", "integer", None),
    ("double", "double", None),
    ("true", "bool", "true"),
    ("false", "bool", "false"),
    ("null", "null", ""),
):
    setattr(_Builder, _rule, v_args(meta=True)(_create_constant_rule(_kind, _literal)))


def _select_tagged(parts: list[Any]) -> list[tuple[str, Any]]:
    return [part for part in parts if isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)]


def _negate_formula(formula: Operation | Call) -> Operation:
    return Operation("not", (formula,), formula.at)


def _unquote(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


def _check_positive(number: int, subject: str, meta: Any) -> int:
    if number <= 0:
        raise CqlProblems([(_read_position(meta), f"{subject} of {number}: expected more than 0")])
    return number
