"""Turns a predicate in Python into the two functions that a nested loop compiles (see `kernels.nested_loop`).

The predicate sees two records, named tuples of numbers. What it does not name does not get into them.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba.core import ir
from numba.core.compiler import run_frontend
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from sparkext.kernels.jit import JIT_ENABLED, generated

Fields = Sequence[tuple[str, str]]
"""Name and number type of what a record holds."""

_NOTHING = ("nothing", "int8")
"""A record has a field, even where the predicate asks for none."""
_HIGHLIGHTS = re.compile(r"\x1b\[[\d;]*m")  # for terminals, where colorama is installed
_NOISE = ("Failed in nopython mode pipeline", "During: Pass ")


def is_function(value: Any) -> bool:
    """Return whether this is a function that numba compiles, or has compiled."""
    return isinstance(value, FunctionType | Dispatcher)


def fields_read(predicate: Callable[..., Any], position: int) -> set[str]:
    """Return the fields that a function reads of its argument number `position`, itself or through what it calls.

    Raises `ValueError` where it does anything else with the record: of its fields only those are there that are named.
    """
    return _Reads().of(predicate, position)


class _Reads:
    """Follows a record through the code of functions, in numba's intermediate form, which all Pythons share."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def of(self, function: Any, position: int) -> set[str]:
        function = getattr(function, "py_func", function)  # of what numba has compiled
        if (id(function), position) in self._seen:
            return set()
        self._seen.add((id(function), position))
        code = run_frontend(function)
        statements = [statement for block in code.blocks.values() for statement in block.body]
        names: set[str] = set()
        record = {""}
        while True:
            known = len(record)
            for statement in statements:
                value = getattr(statement, "value", None)
                if isinstance(value, ir.Arg):
                    if value.index == position:
                        record.add(statement.target.name)
                elif any(variable.name in record for variable in _read_variables(statement)):
                    if isinstance(statement, ir.Assign) and isinstance(value, ir.Var):
                        record.add(statement.target.name)
                    else:
                        names |= self._taken(code, value, record)
            if len(record) == known:
                return names

    def _taken(self, code: Any, value: Any, record: set[str]) -> set[str]:
        """Return what one step takes of a record."""
        op = getattr(value, "op", None)
        if op == "getattr":
            return {value.attr}
        if op == "call" and not value.kws and value.func.name not in record:
            called = _called(code, value.func)
            if isinstance(called, Dispatcher):
                taken = [self.of(called, number) for number, var in enumerate(value.args) if var.name in record]
                return set().union(*taken)
            raise ValueError("passes a row to a function that is not compiled with numba.njit")
        raise ValueError("reads a row as a whole: name its columns, as in left.x")


def _read_variables(statement: Any) -> list[Any]:
    if isinstance(statement, ir.Del):
        return []
    target = getattr(statement, "target", None)
    return [variable for variable in statement.list_vars() if variable is not target]


def _called(code: Any, variable: Any) -> Any:
    """Return the function that a variable holds, if it is a global one, one of a module, or enclosed."""
    try:
        definition = code.get_definition(variable)
    except KeyError:
        return None
    if isinstance(definition, ir.Global | ir.FreeVar):
        return definition.value
    if getattr(definition, "op", None) == "getattr":
        return getattr(_called(code, definition.value), definition.attr, None)
    return None


def functions_of_predicate(
    predicate: Callable[..., Any], left: Fields, right: Fields, exchanged: bool = False
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `load` and `holds`: array k of a side is field k of its record. `exchanged` as in `PythonPredicate`."""
    if exchanged:
        record, pair = f"Right({_elements(right, 'p', 'i')})", f"Left({_elements(left, 'b', 'j')}), p"
    else:
        record, pair = f"Left({_elements(left, 'p', 'i')})", f"p, Right({_elements(right, 'b', 'j')})"
    source = f"def load(p, i):\n    return {record}\ndef holds(p, _, b, j):\n    return np.uint8(predicate({pair}))\n"
    scope: dict[str, Any] = {
        "np": np,
        "Left": _record("left", left),
        "Right": _record("right", right),
        "predicate": _compiled(predicate),
    }
    exec(compile(source, "<predicate>", "exec"), scope)
    return scope["load"], scope["holds"]


def why_not_compiled(predicate: Callable[..., Any], left: Fields, right: Fields) -> str | None:
    """Compile a predicate for records of these fields; return what is in the way, with the line, if anything is."""
    if not JIT_ENABLED:
        return None
    function: Any = _compiled(predicate)
    records = [_record(name, fields)(*_zeros(fields)) for name, fields in (("left", left), ("right", right))]
    signature = tuple(numba.typeof(record) for record in records)
    try:
        function.compile(signature)
    except (NumbaError, TypeError) as error:  # the latter where it takes more or fewer arguments
        text = _HIGHLIGHTS.sub("", str(error))
        # What numba has tried instead fills pages.
        text = re.sub(r"(?ms)^There are \d+ candidate implementations:.*?(?=^During: )", "", text)
        return "\n".join(line for line in text.splitlines() if not line.startswith(_NOISE)).strip()
    result = function.overloads[signature].signature.return_type
    return None if isinstance(result, numba.types.Boolean) else f"it returns {result}, expected a bool"


def _compiled(predicate: Callable[..., Any]) -> Callable[..., Any]:
    return predicate if isinstance(predicate, Dispatcher) else generated(predicate)


def _record(name: str, fields: Fields) -> Any:
    return namedtuple(name, [field for field, _ in fields or [_NOTHING]])


def _elements(fields: Fields, arrays: str, at: str) -> str:
    return ", ".join(
        f"{arrays}[{number}][{at}]" + (" != 0" if kind == "bool" else "")
        for number, (_, kind) in enumerate(fields or [_NOTHING])
    )


def _zeros(fields: Fields) -> list[Any]:
    return [False if kind == "bool" else np.dtype(kind).type(0) for _, kind in fields or [_NOTHING]]
