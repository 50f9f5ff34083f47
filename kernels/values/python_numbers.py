"""Python's arithmetic of numbers, compiled: each operation returns the value that Python computes, or raises.

Compiled integers have 64 bits, and compiled floats follow IEEE 754. Python's integers have any size, and its divisions,
powers and `math` functions raise errors. An operation here raises for all operands for which the two may differ, even
if Python has a value, such as 2**64. The exception has no message: the caller evaluates the pair of rows in Python.

    operands ──▶ compiled operation ──▶ value              Python's, except for the last bit of some math functions
                          └───────────▶ any exception      Python decides: a larger integer, a complex number, an error

`CHECKED` maps operators and functions to functions that only compiled code can call, of int64, float64 and bool.
Arithmetic of other numpy numbers is refused at compile time; tuples, texts and arrays compute as in numba.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from sparkext.kernels.runtime.jit import embedded

CHECKED: dict[Callable[..., Any], Callable[..., Any]] = {}
"""The keys are functions of `operator` or `math`, and builtin functions."""

_LOWEST = -(2**63)
_SAFE = 2.0**63 * (1 - 2.0**-50)
"""If the product of two integers, computed as floats with three roundings, is below this, it fits in 64 bits."""
_LONGEST = 2**31
_EXACT = 2**53
"""Integers up to this magnitude are converted to floats without rounding."""

_Implementation = Callable[..., Any] | None


def _register_implementation(
    original: Callable[..., Any], **options: Any
) -> Callable[[Callable[..., _Implementation]], Any]:
    """Register an implementation, which is chosen by the types of the operands."""

    def stub(*operands: Any) -> Any:
        raise NotImplementedError(f"{original.__name__} is called by compiled code only")

    stub.__name__ = stub.__qualname__ = original.__name__
    CHECKED[original] = stub
    return overload(stub, strict=False, **options)


def _are_numbers(*kinds: Any) -> bool:
    """Return whether all are types of Python's numbers. Raises `TypingError` for types that only numpy has."""
    plain = [types.unliteral(kind) for kind in kinds]
    for kind in plain:
        if isinstance(kind, types.Number) and kind not in (types.int64, types.float64):
            raise TypingError(
                f"arithmetic of {kind} is not Python's: convert it to int or float, or to int64 or float64"
            )
    return all(isinstance(kind, types.Number | types.Boolean) for kind in plain)


def _are_integers(*kinds: Any) -> bool:
    return _are_numbers(*kinds) and all(_is_integer(kind) for kind in kinds)


def _is_integer(kind: Any) -> bool:
    return isinstance(types.unliteral(kind), types.Integer | types.Boolean)


def _is_float(kind: Any) -> bool:
    return isinstance(types.unliteral(kind), types.Float)


@embedded
def _is_inexact(a: int) -> bool:
    """Return whether a conversion of an integer to a float may round."""
    return bool(a < -_EXACT or a > _EXACT)


@embedded
def _is_odd(result: float, a: float, b: float) -> bool:
    """Return whether Python may raise: a result that is NaN, or infinite, although no operand is."""
    return bool((result != result and a == a and b == b) or (result - result != 0 and a - a == 0 and b - b == 0))


# Integers that may not fit in 64 bits.


@_register_implementation(operator.add)
def _add(a: Any, b: Any) -> _Implementation:
    if not _are_integers(a, b):
        return lambda a, b: a + b

    def add(a: Any, b: Any) -> Any:
        a, b = numba.int64(a), numba.int64(b)
        total = a + b
        if ((a ^ total) & (b ^ total)) < 0:
            raise OverflowError
        return total

    return add


@_register_implementation(operator.sub)
def _sub(a: Any, b: Any) -> _Implementation:
    if not _are_integers(a, b):
        return lambda a, b: a - b

    def sub(a: Any, b: Any) -> Any:
        a, b = numba.int64(a), numba.int64(b)
        difference = a - b
        if ((a ^ b) & (a ^ difference)) < 0:
            raise OverflowError
        return difference

    return sub


@_register_implementation(operator.mul)
def _mul(a: Any, b: Any) -> _Implementation:
    if not _are_integers(a, b):
        return lambda a, b: a * b

    def mul(a: Any, b: Any) -> Any:
        a, b = numba.int64(a), numba.int64(b)
        if abs(numba.float64(a) * numba.float64(b)) >= _SAFE:
            raise OverflowError
        return a * b

    return mul


@_register_implementation(operator.neg)
def _neg(a: Any) -> _Implementation:
    if not _are_integers(a):
        return lambda a: -a

    def neg(a: Any) -> Any:
        a = numba.int64(a)
        if a == _LOWEST:
            raise OverflowError
        return -a

    return neg


@_register_implementation(abs)
def _abs(a: Any) -> _Implementation:
    if not _are_integers(a):
        return lambda a: abs(a)

    def absolute(a: Any) -> Any:
        a = numba.int64(a)
        if a == _LOWEST:
            raise OverflowError
        return abs(a)

    return absolute


@_register_implementation(operator.invert)
def _invert(a: Any) -> _Implementation:
    return (lambda a: ~numba.int64(a)) if _are_integers(a) else lambda a: ~a


@_register_implementation(operator.lshift)
def _lshift(a: Any, b: Any) -> _Implementation:
    if not _are_integers(a, b):
        return lambda a, b: a << b

    def lshift(a: Any, b: Any) -> Any:
        a, b = numba.int64(a), numba.int64(b)
        if b < 0 or (a != 0 and (b > 62 or (a << b) >> b != a)):
            raise OverflowError
        return a << min(b, numba.int64(62))

    return lshift


@_register_implementation(operator.rshift)
def _rshift(a: Any, b: Any) -> _Implementation:
    if not _are_integers(a, b):
        return lambda a, b: a >> b

    def rshift(a: Any, b: Any) -> Any:
        a, b = numba.int64(a), numba.int64(b)
        if b < 0:
            raise ValueError
        return a >> min(b, numba.int64(63))

    return rshift


@_register_implementation(math.gcd)
def _gcd(a: Any, b: Any) -> _Implementation:
    def gcd(a: Any, b: Any) -> Any:
        if a == _LOWEST or b == _LOWEST:
            raise OverflowError
        return math.gcd(a, b)

    return gcd if _are_integers(a, b) else None


# Divisions.


@_register_implementation(operator.truediv)
def _truediv(a: Any, b: Any) -> _Implementation:
    if not _are_numbers(a, b):
        return lambda a, b: a / b
    rounds_once = _is_integer(a) and _is_integer(b)

    def truediv(a: Any, b: Any) -> Any:
        if b == 0:
            raise ZeroDivisionError
        if rounds_once and (_is_inexact(a) or _is_inexact(b)):
            raise OverflowError
        return a / b

    return truediv


def _register_division(divide: Callable[..., Any]) -> None:
    @_register_implementation(divide)
    def _divide(a: Any, b: Any) -> _Implementation:
        if not _are_numbers(a, b):
            return lambda a, b: divide(a, b)
        overflows = _is_integer(a) and _is_integer(b)

        def checked(a: Any, b: Any) -> Any:
            if b == 0:
                raise ZeroDivisionError
            if overflows and a == _LOWEST and b == -1:
                raise OverflowError
            return divide(a, b)

        return checked


for _divide in (operator.floordiv, operator.mod, divmod):
    _register_division(_divide)


# Powers.


def _register_power(original: Callable[..., Any]) -> None:
    @_register_implementation(original, prefer_literal=True)
    def _pow(a: Any, b: Any) -> _Implementation:
        if not _are_numbers(a, b):
            return lambda a, b: a**b
        if _are_integers(a, b):

            def integers(a: Any, b: Any) -> Any:
                a, b = numba.int64(a), numba.int64(b)
                if b < 0 or abs(numba.float64(a)) ** numba.float64(b) >= _SAFE:
                    raise OverflowError
                return a**b

            return integers
        if isinstance(b, types.IntegerLiteral) and b.literal_value == 2:

            def square(a: Any, b: Any) -> Any:
                power = a * a
                if _is_odd(power, a, a):
                    raise OverflowError
                return power

            return square

        def floats(a: Any, b: Any) -> Any:
            a, b = numba.float64(a), numba.float64(b)
            power = math.pow(a, b)
            if _is_odd(power, a, b):
                raise OverflowError
            return power

        return floats


for _original in (operator.pow, pow):
    _register_power(_original)


# Comparisons: Python does not round the integer.


def _register_comparison(compare: Callable[..., Any]) -> None:
    @_register_implementation(compare)
    def _compare(a: Any, b: Any) -> _Implementation:
        if _is_integer(a) and _is_float(b):

            def integer_first(a: Any, b: Any) -> Any:
                if _is_inexact(a):
                    raise OverflowError
                return compare(a, b)

            return integer_first
        if _is_float(a) and _is_integer(b):

            def float_first(a: Any, b: Any) -> Any:
                if _is_inexact(b):
                    raise OverflowError
                return compare(a, b)

            return float_first
        return lambda a, b: compare(a, b)


for _compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
    _register_comparison(_compare)


# Conversions of floats to integers.


def _register_integer_conversion(function: Callable[..., Any]) -> None:
    @_register_implementation(function)
    def _whole(a: Any) -> _Implementation:
        if not _are_numbers(a):
            return lambda a: function(a)
        if _is_integer(a):
            return lambda a: numba.int64(a)

        def whole(a: Any) -> Any:
            if not -_SAFE < a < _SAFE:
                raise OverflowError
            return numba.int64(function(a))

        return whole


for _rounding in (int, round, math.trunc, math.floor, math.ceil):
    _register_integer_conversion(_rounding)


# Functions of floats.


def _register_float_function(function: Callable[..., Any]) -> None:
    @_register_implementation(function)
    def _of(a: Any) -> _Implementation:
        def checked(a: Any) -> Any:
            result = function(a)
            if _is_odd(result, numba.float64(a), 0.0):
                raise ValueError
            return result

        return checked if _are_numbers(a) else None


def _register_float_operation(function: Callable[..., Any]) -> None:
    @_register_implementation(function)
    def _of(a: Any, b: Any) -> _Implementation:
        def checked(a: Any, b: Any) -> Any:
            result = function(a, b)
            if _is_odd(result, numba.float64(a), numba.float64(b)):
                raise ValueError
            return result

        return checked if _are_numbers(a, b) else None


_ONE_FLOAT = (
    *("acos", "acosh", "asin", "atanh", "cos", "cosh", "exp", "exp2", "expm1", "gamma", "lgamma", "log", "log10"),
    *("log1p", "log2", "sin", "sinh", "sqrt", "tan"),
)
for _name in _ONE_FLOAT:
    if hasattr(math, _name):  # exp2 came with Python 3.11
        _register_float_function(getattr(math, _name))
for _of_floats in (math.pow, math.hypot):
    _register_float_operation(_of_floats)


@_register_implementation(math.ldexp)
def _ldexp(a: Any, b: Any) -> _Implementation:
    def ldexp(a: Any, b: Any) -> Any:
        if not -_LONGEST < b < _LONGEST:  # numba uses only 32 bits of `b`
            raise OverflowError
        result = math.ldexp(a, b)
        if _is_odd(result, numba.float64(a), 0.0):
            raise OverflowError
        return result

    return ldexp if _are_numbers(a) and _are_integers(b) else None


# The minimum and maximum of an integer and a float may have either type, but compiled code needs a single type.


def _register_extreme(function: Callable[..., Any]) -> None:
    @_register_implementation(function)
    def _of(a: Any, b: Any) -> _Implementation:
        if _are_numbers(a, b) and _is_integer(a) != _is_integer(b):
            raise TypingError(
                f"{function.__name__} of an integer and a float may return either type: convert one argument"
            )
        return lambda a, b: function(a, b)


for _chosen in (min, max):
    _register_extreme(_chosen)
