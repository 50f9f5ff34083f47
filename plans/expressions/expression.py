"""Expressions that workers evaluate, as plain data.

They are filters of scans, conditions on pairs of rows in addition to their keys, and computed columns.

An expression is one of

    {"op": "column", "type": type or null, "source": s, "column": c}
    {"op": "literal", "type": type, "text": text or null}
    {"op": "in", "type": "bool", "args": [expression], "list": [text or null, ...]}
    {"op": name, "type": type, "args": [expression, ...], "checked": bool}

where `type` is the result type, as `plans.expressions.key_types` spells it. A column of any other type has a null
`type`, and can only be tested for null. An integer column may be given a wider type than its own.

Texts are values as Java prints them, except that dates are days since 1970, timestamps and intervals microseconds, and
times nanoseconds. A list has one or more values of its argument's type, and may be very long.

The result of a null argument is null, with these exceptions: `and`, `or`, `is_null`, `<=>`, `if`, `coalesce`, `least`
and `greatest` follow SQL, `is_nan` is false, and `nan_or` replaces only NaN. NaN equals NaN and is greater than any
other number.

Strings are compared and tested byte by byte. In the pattern of `like`, `%` matches any text, `_` any character, and a
backslash escapes these and itself. `substring` counts characters from 1, or from the end. `upper` and `lower` have a
table of letters as a literal argument.

`+` and `-` of decimals are computed at the scale of the result, whose type has to hold all digits. `plus`, `minus`,
`times`, `over` and `to_decimal` return a decimal of any type: the exact result, rounded half up. `unscaled` returns the
unscaled digits of a decimal, and `remainder` the remainder of a division of decimals.

`div` divides integers, rounding towards zero; `pmod` by a positive divisor is not negative. `round` and `round_even`
round half up and half to even, to the number of decimal places in a literal; a negative number rounds before the
decimal point. `floor` and `ceil` of decimals return decimals of scale 0; of doubles they return an int64, limited to
its range. `to_integer` truncates the fraction.

`add_months` keeps the day of the month if the new month has this day, else it returns the last day of that month. A
date is converted to the first microsecond of its day, in UTC.

`checked`: an overflow or a division by zero is an error, as in Spark's ANSI mode. If not `checked`, integers wrap
around, a decimal that overflows is null, a float that is too large for an integer type becomes the nearest integer (of
32 bits for narrower types), NaN becomes 0, and a division by zero is null. `floor` and `ceil` convert NaN to 0 in
either case.

Two evaluators run expressions; neither covers the whole language (see `plans.expressions.evaluators`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkext.plans.expressions.key_types import KeyType, parse_key_type
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS, MOST_DIGITS, number_type

BOOL = KeyType("bool")
ORDERINGS = ("<", "<=", ">", ">=")
COMPARISONS = ("=", "<=>", *ORDERINGS)
STRING_TESTS = ("starts_with", "ends_with", "contains", "like")
ARITHMETIC = ("+", "-", "*", "/", "%")
DECIMAL_ARITHMETIC = ("plus", "minus", "times", "over")
DECIMAL_CASTS = ("to_decimal", "unscaled")
REMAINDERS = ("div", "pmod", "remainder")
ROUNDINGS = ("round", "round_even")
WHOLE_NUMBERS = ("floor", "ceil", "to_integer")
NAN_TESTS = ("is_nan", "nan_or")
DATE_FIELDS = ("year", "quarter", "month", "day", "day_of_week", "weekday", "day_of_year", "week")
"""`day_of_week` is 1 on Sunday, `weekday` 0 on Monday. Weeks begin on Monday (ISO 8601)."""
DATE_STARTS = ("year_start", "quarter_start", "month_start", "week_start")
DATE_FUNCTIONS = (*DATE_STARTS, "last_day", "add_months", "to_date", "to_timestamp")
TRIMS = ("trim", "trim_left", "trim_right")
"""They remove spaces only."""
CASES = ("upper", "lower")
"""A literal argument has the table of letters: see `expressions.letter_cases`."""
NUMERIC = (*ARITHMETIC, "negate", "abs", "sqrt", "cast")
LOGIC = (*COMPARISONS, "and", "or", "not", "is_null", "in")
CHOICES = ("if", "coalesce", "least", "greatest")
ARITY = {
    **dict.fromkeys(
        ("negate", "abs", "sqrt", "cast", "not", "is_null", "in", *DECIMAL_CASTS, "length", *DATE_FIELDS), 1
    ),
    **dict.fromkeys((*WHOLE_NUMBERS, "is_nan", *DATE_FUNCTIONS, *TRIMS), 1),
    **dict.fromkeys((*ARITHMETIC, *DECIMAL_ARITHMETIC, *COMPARISONS, *STRING_TESTS), 2),
    **dict.fromkeys((*REMAINDERS, *ROUNDINGS, "nan_or", "add_months", *CASES), 2),
    **dict.fromkeys(("if", "substring"), 3),
}
VARIADIC = ("and", "or", "coalesce", "least", "greatest", "concat")
"""Operators with one or more arguments."""
TIMESTAMPS = ("timestamp", "timestamp_ntz")
LEAVES = ("column", "literal")
ColumnPlace = tuple[int, int, KeyType]
"""Source, column, type."""


@dataclass(frozen=True)
class Expression:
    """A node. Columns have a `source` and a `column`, literals a `text`; all other nodes have `args`.

    `texts` are the literals of a list.
    """

    op: str
    type: KeyType | None
    args: tuple[Expression, ...] = ()
    checked: bool = False
    source: int = 0
    column: int = 0
    text: str | None = None
    texts: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        """Refuse unknown operators, and arguments or types that do not fit. Raises `ValueError`."""
        if self.op in LEAVES:
            fits = not self.args and (self.type is not None or self.op == "column")
        else:
            has_arity = len(self.args) == ARITY.get(self.op, -1) or (self.op in VARIADIC and len(self.args) > 0)
            fits = has_arity and _is_typed(self.op, [argument.type for argument in self.args], self.type)
        if fits and self.op in (*STRING_TESTS, "substring", *ROUNDINGS, *CASES):
            fits = all(argument.op == "literal" and argument.text is not None for argument in self.args[1:])
        if not fits or (self.op == "in") != bool(self.texts) or (self.op == "cast" and self.checked):
            raise ValueError(f"not an expression: {self!r}")

    def __hash__(self) -> int:
        """Return the hash, computed once: lists may be long, and trees deep."""
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the hash: texts have other hashes in other processes."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.type, self.args, self.checked, self.source, self.column, self.text, self.texts))

    @property
    def number(self) -> str:
        """The number type of its values (see `number_types`). Raises `ValueError` if they are not numbers."""
        number = None if self.type is None else number_type(self.type)
        if number is None:
            raise ValueError(f"no numbers: {self!r}")
        return number

    @property
    def scale(self) -> int:
        """The number of decimal places; 0 for types without a scale."""
        return 0 if self.type is None else self.type.scale

    @property
    def place(self) -> ColumnPlace:
        """Source, index and type of a column."""
        assert self.type is not None, "columns without a type are not looked at"
        return self.source, self.column, self.type

    @property
    def may_fail(self) -> bool:
        """Whether evaluation raises an error for some values."""
        return self.checked or any(argument.may_fail for argument in self.args)

    def parts(self) -> Iterator[Expression]:
        """Yield all nodes, this one first; columns that occur twice are yielded twice."""
        yield self
        for argument in self.args:
            yield from argument.parts()

    def columns(self) -> Iterator[Expression]:
        """Yield the nodes that are columns."""
        return (part for part in self.parts() if part.op == "column")


def column(source: int, number: int, key_type: KeyType | None) -> Expression:
    """Return a node for column `number` of a source."""
    return Expression("column", key_type, source=source, column=number)


def literal(text: str | None, key_type: KeyType) -> Expression:
    """Return a node for a literal; None is null."""
    return Expression("literal", key_type, text=text)


def condition(op: str, *args: Expression) -> Expression:
    """Return a node of type bool."""
    return Expression(op, BOOL, args)


def among(value: Expression, texts: Iterable[str | None]) -> Expression:
    """Return the condition that a value is in a list."""
    return Expression("in", BOOL, (value,), texts=tuple(texts))


def _is_typed(op: str, inputs: Sequence[KeyType | None], result: KeyType | None) -> bool:
    """Return whether the types of an operator's arguments fit each other and the result type."""
    if op == "is_null":
        return result == BOOL
    known_types = [kind for kind in inputs if kind is not None]
    return len(known_types) == len(inputs) and result is not None and _RULES[op](known_types, result)


_Rule = Callable[[Sequence[KeyType], KeyType], bool]


def _require_one_type(*names: str) -> _Rule:
    """Return a rule: all arguments and the result have the same type, one of `names`."""
    return lambda inputs, result: {*inputs} == {result} and result.name in names


def _is_valid_sum(inputs: Sequence[KeyType], result: KeyType) -> bool:
    """Check a sum or difference. Decimals are brought to the scale of the result, which must not drop digits."""
    if result.name == "decimal":
        return all(kind.name == "decimal" and kind.scale <= result.scale for kind in inputs)
    return [*inputs, result] == [_DATE, _DAYS, _DATE] or _require_one_type(*INTEGERS, *FLOATS)(inputs, result)


def _is_valid_product(inputs: Sequence[KeyType], result: KeyType) -> bool:
    if result.name == "decimal":
        return all(kind.name == "decimal" for kind in inputs) and sum(kind.scale for kind in inputs) == result.scale
    return _require_one_type(*INTEGERS, *FLOATS)(inputs, result)


def _is_valid_cast(inputs: Sequence[KeyType], result: KeyType) -> bool:
    """Check a cast. Integers wrap around; decimals keep all of their digits, except in a cast to double."""
    (kind,) = inputs
    if kind.name == "decimal":
        keeps_integer_digits = result.precision - result.scale >= kind.precision - kind.scale
        return result == _DOUBLE or (result.name == "decimal" and keeps_integer_digits and result.scale >= kind.scale)
    if kind.name in INTEGERS:
        return result.name in (*INTEGERS, *FLOATS, "decimal")
    return (kind.name in FLOATS and result.name in FLOATS) or (kind, result) == (_DATE, _DAYS)


def _are_decimals(inputs: Sequence[KeyType], result: KeyType) -> bool:
    return result.name == "decimal" and {kind.name for kind in inputs} == {"decimal"}


def _is_valid_rounding(inputs: Sequence[KeyType], result: KeyType) -> bool:
    """Check a rounding. It must not increase the scale of a decimal."""
    kind, places = inputs
    if kind.name == "decimal":
        return places == _DAYS and result.name == "decimal" and result.scale <= kind.scale
    return [kind, places] == [result, _DAYS] and kind.name in INTEGERS


def _is_valid_floor(inputs: Sequence[KeyType], result: KeyType) -> bool:
    (kind,) = inputs
    return (kind, result) == (_DOUBLE, _LONG) or (_are_decimals(inputs, result) and result.scale == 0)


def _are_times(inputs: Sequence[KeyType], result: KeyType) -> bool:
    return {inputs[0].name, result.name} <= {"date", *TIMESTAMPS} and inputs[0] != result


_DATE, _DAYS, _LONG, _DOUBLE, _STRING = map(KeyType, ("date", "int32", "int64", "float64", "string"))
_RULES: dict[str, _Rule] = {
    **dict.fromkeys((*COMPARISONS, "in"), lambda inputs, result: len({*inputs}) == 1 and result == BOOL),
    **dict.fromkeys(STRING_TESTS, lambda inputs, result: {*inputs} == {_STRING} and result == BOOL),
    **dict.fromkeys(("and", "or", "not"), lambda inputs, result: {*inputs, result} == {BOOL}),
    **dict.fromkeys(("coalesce", "least", "greatest"), lambda inputs, result: {*inputs} == {result}),
    "if": lambda inputs, result: [*inputs] == [BOOL, result, result],
    "+": _is_valid_sum,
    "-": lambda inputs, result: [*inputs, result] == [_DATE, _DATE, _DAYS] or _is_valid_sum(inputs, result),
    "*": _is_valid_product,
    "/": _require_one_type("float64"),
    "%": _require_one_type(*INTEGERS, *FLOATS),
    **dict.fromkeys(("negate", "abs"), _require_one_type(*INTEGERS, *FLOATS, "decimal")),
    "sqrt": _require_one_type("float64"),
    "cast": _is_valid_cast,
    **dict.fromkeys(DECIMAL_ARITHMETIC, _are_decimals),
    "to_decimal": lambda inputs, result: (
        _are_decimals(inputs, result) or (result.name == "decimal" and inputs[0].name in INTEGERS)
    ),
    "unscaled": lambda inputs, result: (
        (inputs[0].name, result) == ("decimal", _LONG) and inputs[0].precision <= MOST_DIGITS
    ),
    "div": _require_one_type(*INTEGERS),
    "pmod": lambda inputs, result: (
        _are_decimals(inputs, result) or _require_one_type(*INTEGERS, *FLOATS)(inputs, result)
    ),
    "remainder": _are_decimals,
    **dict.fromkeys(ROUNDINGS, _is_valid_rounding),
    **dict.fromkeys(("floor", "ceil"), _is_valid_floor),
    "to_integer": lambda inputs, result: (
        inputs[0].name in ("bool", *INTEGERS, *FLOATS, "decimal") and result.name in INTEGERS
    ),
    "is_nan": lambda inputs, result: inputs[0].name in FLOATS and result == BOOL,
    "nan_or": _require_one_type(*FLOATS),
    **dict.fromkeys((*DATE_STARTS, "last_day"), lambda inputs, result: [*inputs, result] == [_DATE, _DATE]),
    "add_months": lambda inputs, result: [*inputs, result] == [_DATE, _DAYS, _DATE],
    "to_date": lambda inputs, result: result == _DATE and _are_times(inputs, result),
    "to_timestamp": lambda inputs, result: result.name in TIMESTAMPS and _are_times(inputs, result),
    **dict.fromkeys(TRIMS, lambda inputs, result: [*inputs, result] == [_STRING, _STRING]),
    **dict.fromkeys(DATE_FIELDS, lambda inputs, result: [*inputs, result] == [_DATE, _DAYS]),
    "substring": lambda inputs, result: [*inputs, result] == [_STRING, _DAYS, _DAYS, _STRING],
    "length": lambda inputs, result: [*inputs, result] == [_STRING, _DAYS],
    **dict.fromkeys(("concat", *CASES), lambda inputs, result: {*inputs, result} == {_STRING}),
}


def parse_expression(data: Mapping[str, Any]) -> Expression:
    """Read the JSON form. Raises `ValueError`."""
    op, key_type = data["op"], None if data["type"] is None else parse_key_type(data["type"])
    if op == "column":
        return Expression(op, key_type, source=data["source"], column=data["column"])
    if op == "literal":
        return Expression(op, key_type, text=data["text"])
    arguments = tuple(parse_expression(argument) for argument in data["args"])
    return Expression(op, key_type, arguments, data.get("checked", False), texts=tuple(data.get("list", ())))
