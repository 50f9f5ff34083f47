"""Spark's evaluation of an expression, value by value and step by step: the oracle of both evaluators.

Null is None, integers are exact until they are wrapped to their type, and decimals are their unscaled digits.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from sparkext.plans.expressions.expression import DATE_FIELDS, DATE_FUNCTIONS, ROUNDINGS, Expression
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS, number_type, parse_unscaled
from tests.oracle.dates import DAY, date_field, date_function
from tests.support.kernel_inputs import SAMPLES


class Failure(ArithmeticError):
    """An overflow or a division by zero that Spark's evaluation reaches in ANSI mode."""


def evaluate(node: Expression, row: dict[tuple[int, int], Any]) -> Any:
    """Return the value of an expression. Parts that Spark would skip are not evaluated, so that they cannot fail."""
    parts: Iterator[Any] = (evaluate(argument, row) for argument in node.args)
    if node.op == "column":
        return row[node.source, node.column]
    if node.op == "literal":
        return None if node.text is None else literal_value(node, node.text)
    if node.op in ("and", "or"):
        return connected(parts, decisive=node.op == "or")
    if node.op == "coalesce":
        return next((part for part in parts if part is not None), None)
    if node.op == "if":
        return evaluate(node.args[1 if next(parts) else 2], row)
    if node.op == "is_null":
        return next(parts) is None
    if node.op == "in":
        return among(node, next(parts))
    if node.op in ("<=>", "least", "greatest"):
        return of_all(node.op, [*parts])
    if node.op in ("is_nan", "nan_or"):
        value = next(parts)
        if node.op == "is_nan":
            return value is not None and value != value
        return next(parts) if value is not None and value != value else value
    if node.op in ("/", "%", "over", "div", "pmod", "remainder"):
        return divided(node, evaluate(node.args[1], row), parts)
    values = []
    for part, argument in zip(parts, node.args, strict=True):
        if part is None:
            return None
        values.append(at_scale_of(node, part, argument) if node.op in ("+", "-", "cast") else part)
    if node.op in ROUNDED:
        return rounded(node, ROUNDED[node.op](*map(fraction, node.args, values)))
    if node.op in DATE_FIELDS:
        return date_field(node.op, *values)
    if node.op == "to_timestamp":
        day = node.args[0].type is not None and node.args[0].type.name == "date"
        return fitted(values[0] * DAY if day else values[0], node)
    if node.op in DATE_FUNCTIONS:
        return fitted(date_function(node.op, *values), node)
    if node.op in (*ROUNDINGS, "floor", "ceil"):
        return rounded_to(node, values[0], int(node.args[1].text or "") if node.op in ROUNDINGS else 0)
    if node.op == "to_integer":
        return to_integer(node, values[0])
    return fitted(STRICT[node.op](*values), node)


def fraction(node: Expression, digits: int) -> Fraction:
    return Fraction(digits, 10**node.scale)


def rounded(node: Expression, exact: Fraction) -> int | None:
    """Return the digits of a decimal, rounded half up; null or a failure if they exceed the type."""
    assert node.type is not None
    digits = math.floor(abs(exact) * 10**node.scale + Fraction(1, 2)) * (-1 if exact < 0 else 1)
    if abs(digits) < 10**node.type.precision:
        return digits
    if node.checked:
        raise Failure
    return None


def rounded_to(node: Expression, value: Any, places: int) -> int | None:
    """Return a number rounded to `places` decimal places."""
    if isinstance(value, float) and not math.isfinite(value):
        return integer_near(value, 64, node.checked)
    exact = (Fraction(value) if isinstance(value, float) else fraction(node.args[0], value)) * Fraction(10) ** places
    nearest = {
        "floor": math.floor,
        "ceil": math.ceil,
        "round_even": round,
        "round": lambda part: math.floor(abs(part) + Fraction(1, 2)) * (-1 if part < 0 else 1),
    }
    result = nearest[node.op](exact) / Fraction(10) ** places
    if node.type is not None and node.type.name == "decimal":
        return rounded(node, fraction(node.args[0], value) if places >= node.args[0].scale else result)
    if isinstance(value, float):
        return integer_near(int(result), 64, node.checked)
    return fitted(value if places >= 0 else int(result), node)


def to_integer(node: Expression, value: Any) -> int:
    """Return a number without its fraction."""
    if isinstance(value, float):
        bits = np.iinfo(node.number).bits
        whole = value if not math.isfinite(value) else math.trunc(value)
        is_end = bits == 64 and value == float(1 << 63)
        fits = value == value and (-(1 << bits - 1) - 1 < value < 1 << bits - 1 or is_end)
        if node.checked and not fits:
            raise Failure
        return fitted_unchecked(integer_near(whole, max(bits, 32), checked=False), node)
    scale = node.args[0].scale
    return fitted(abs(value) // 10**scale * (-1 if value < 0 else 1), node)


def integer_near(value: Any, bits: int, checked: bool) -> int:
    """Return the nearest integer of `bits` bits; 0 for NaN."""
    if value != value:
        return 0
    limit = 1 << bits - 1
    if -limit <= value < limit:
        return int(value)
    if checked:
        raise Failure
    return -limit if value < 0 else limit - 1


def recased(text: str, mapping: str) -> str:
    """Change the case with a table of letters, and of ASCII letters as usual. Sigmas are compared with Spark itself."""
    table = {line[0]: line[1:] for line in mapping.split("\n\n")[0].split("\n")}
    other = str.lower if "\n\n" in mapping else str.upper
    return "".join(table.get(letter, other(letter) if letter.isascii() else letter) for letter in text)


def substring(text: str, position: int, length: int) -> str:
    """Return a substring; the position counts from 1, or from the end.

    Positions before the start count towards `length`.
    """
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def like(text: str, pattern: str) -> bool:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    known = {"%": ".*", "_": "."}
    return re.fullmatch("".join(known.get(part, re.escape(part[-1])) for part in parts), text, re.DOTALL) is not None


def at_scale_of(node: Expression, value: Any, argument: Expression) -> Any:
    """Return the digits of an argument at the scale of the result."""
    if argument.scale and node.type is not None and node.type.name in FLOATS:
        return float(fraction(argument, value))
    return value * 10 ** (node.scale - argument.scale) if node.scale else value


def among(node: Expression, value: Any) -> bool | None:
    """Return the result of an equivalent chain of OR: null if the value is not found and the list contains null."""
    if value is None:
        return None
    return order(value) in listed(node) or (None if None in node.texts else False)


@lru_cache(maxsize=4)
def listed(node: Expression) -> set[tuple[bool, Any]]:
    return {order(literal_value(node.args[0], text)) for text in node.texts if text is not None}


def literal_value(node: Expression, text: str) -> Any:
    name = "" if node.type is None else node.type.name
    if name in ("bool", "string"):
        return text == "true" if name == "bool" else text
    return float(text) if name in FLOATS else parse_unscaled(text, node.scale)


def text_of(value: Any, scale: int = 0) -> str | None:
    """Return a value in the form of a literal's text."""
    if scale == 0 or value is None:
        return None if value is None else value if isinstance(value, str) else str(value).lower()
    sign, digits, _ = Decimal(value).as_tuple()
    return f"{Decimal((sign, digits, -scale)):f}"


def texts_of(kind: str) -> list[str | None]:
    """Return null and the sample values of a key type, as texts of literals."""
    return [text_of(value, parse_key_type(kind).scale) for value in [None, *SAMPLES[kind].values]]


def connected(parts: Iterator[Any], decisive: bool) -> bool | None:
    result: bool | None = not decisive
    for part in parts:
        if part is decisive:
            return decisive
        result = None if part is None else result
    return result


def of_all(op: str, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if op == "<=>":
        return len({*map(order, known)}) == 1 if len(known) == 2 else not known
    return (min if op == "least" else max)(known, key=order) if known else None


def divided(node: Expression, divisor: Any, parts: Iterator[Any]) -> Any:
    """Return a quotient. Spark evaluates the divisor first, and the dividend only if the divisor permits a result."""
    if divisor is None or (divisor == 0 and not node.checked):
        return None
    dividend = next(parts)
    if dividend is None:
        return None
    if divisor == 0:
        raise Failure
    if node.op in ("remainder", "pmod", "div"):
        return remainder(node, dividend, divisor)
    if node.op == "over":
        return rounded(node, fraction(node.args[0], dividend) / fraction(node.args[1], divisor))
    if node.op == "/":
        return dividend / divisor
    if node.number in FLOATS:
        return math.nan if math.isinf(dividend) else math.fmod(dividend, divisor)
    return abs(dividend) % abs(divisor) * (-1 if dividend < 0 else 1)


def remainder(node: Expression, dividend: Any, divisor: Any) -> Any:
    assert node.type is not None
    if node.type.name in FLOATS:
        rest = math.nan if math.isinf(dividend) else math.fmod(dividend, divisor)
        if not rest < 0:
            return rest
        total = fitted(rest + divisor, node)
        return math.nan if math.isinf(total) else math.fmod(total, divisor)
    one, other = (fraction(argument, value) for argument, value in zip(node.args, (dividend, divisor), strict=True))
    if node.op == "div":
        return fitted(int(one / other), node)
    rest = one - int(one / other) * other
    if node.op == "pmod" and rest < 0:
        total = rest + other
        if node.type.name in INTEGERS:
            limit = 1 << max(np.iinfo(node.number).bits, 32) - 1
            total = (total + limit) % (2 * limit) - limit
        rest = total - int(total / other) * other
    return rounded(node, rest) if node.type.name == "decimal" else int(rest)


def order(value: Any) -> tuple[bool, Any]:
    """Return a sort key with Spark's order: NaN equals NaN and is the largest value, 0.0 equals -0.0."""
    return (True, 0) if value != value else (False, value)


def fitted(value: Any, node: Expression) -> Any:
    """Convert a result to the node's type."""
    number = None if node.type is None else number_type(node.type)
    if number in FLOATS:
        return float(np.asarray(value).astype(node.number))
    if number in INTEGERS:
        limits = np.iinfo(node.number)
        if node.checked and not limits.min <= value <= limits.max:
            raise Failure
        return fitted_unchecked(value, node)
    return value


def fitted_unchecked(value: int, node: Expression) -> int:
    """Wrap an integer around at the limits of the node's type."""
    limits = np.iinfo(node.number)
    return (value - int(limits.min)) % (1 << limits.bits) + int(limits.min)


STRICT: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "=": lambda one, other: order(one) == order(other),
    "<": lambda one, other: order(one) < order(other),
    "<=": lambda one, other: order(one) <= order(other),
    ">": lambda one, other: order(one) > order(other),
    ">=": lambda one, other: order(one) >= order(other),
    "negate": operator.neg,
    "abs": abs,
    "sqrt": lambda value: math.nan if value < 0 else math.sqrt(value),
    "cast": lambda value: value,
    "not": operator.not_,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": operator.contains,
    "like": like,
    "unscaled": lambda digits: digits,
    "substring": substring,
    "length": len,
    "trim": lambda text: text.strip(" "),
    "trim_left": lambda text: text.lstrip(" "),
    "trim_right": lambda text: text.rstrip(" "),
    "concat": lambda *parts: "".join(parts),
    "upper": recased,
    "lower": recased,
}
ROUNDED: dict[str, Callable[..., Fraction]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "to_decimal": lambda value: value,
}
