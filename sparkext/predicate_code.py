"""Turns a predicate in Python into the two functions that a nested loop compiles (see `kernels.nested_loop`).

The predicate sees two records, named tuples of numbers. What it does not name does not get into them.
"""

from __future__ import annotations

import dis
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from sparkext.kernels.jit import JIT_ENABLED, generated

Fields = Sequence[tuple[str, str]]
"""Name and number type of what a record holds."""

_NOTHING = ("nothing", "int8")
"""A record has a field, even where the predicate asks for none."""
_NOISE = ("Failed in nopython mode pipeline", "During: Pass ")


def is_function(value: Any) -> bool:
    """Tell whether this is a function that numba compiles, or has compiled."""
    return isinstance(value, FunctionType | Dispatcher)


def names_in(predicate: Callable[..., Any]) -> set[str]:
    """Return all names that a function may look up on its arguments: those in its code, and in what it calls."""
    names: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [predicate]
    while waiting:
        function = waiting.pop()
        function = getattr(function, "py_func", function)  # of what numba has compiled
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        for code in _codes(function.__code__):
            names.update(code.co_names)
        reached = [function.__globals__.get(name) for name in names]
        reached += [value for cell in function.__closure__ or () for value in _content(cell)]
        for module in [value for value in reached if isinstance(value, ModuleType)]:
            reached += [vars(module).get(name) for name in names]
        waiting += [value for value in reached if isinstance(value, Dispatcher)]
    return names


def takes_apart(predicate: Callable[..., Any]) -> bool:
    """Tell whether a function reads its arguments by position: records have no fields to rely on but named ones."""
    code = getattr(predicate, "py_func", predicate).__code__
    steps = list(dis.get_instructions(code))
    for number, step in enumerate(steps):
        loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if "LOAD_FAST" not in step.opname or loaded[-1] not in code.co_varnames[: code.co_argcount]:
            continue
        following = steps[number + 1 : number + 3]
        if following and following[0].opname in ("UNPACK_SEQUENCE", "UNPACK_EX", "GET_ITER"):
            return True
        if len(following) == 2 and ("SUBSCR" in following[1].opname or following[1].argrepr == "[]"):
            return True
    return False


def _content(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing yet
        return []


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def functions_of_predicate(
    predicate: Callable[..., Any], left: Fields, right: Fields
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `load` and `holds`: array k of a side is field k of its record."""
    source = (
        f"def load(p, i):\n    return Left({_elements(left, 'p', 'i')})\n"
        f"def holds(p, b, j):\n    return np.uint8(predicate(p, Right({_elements(right, 'b', 'j')})))\n"
    )
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
        lines = str(error).strip().splitlines()
        return "\n".join(line for line in lines if not line.startswith(_NOISE)).strip()
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
