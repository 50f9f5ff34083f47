"""Converts a Python predicate into the two functions that a nested loop compiles (see `kernels.indexes.nested_loop`).

The predicate receives two records, named tuples of int, float and bool with the columns that it reads. The compiled
code computes the same results as Python, or fails on a pair of rows, which is then evaluated in Python.
"""

from __future__ import annotations

import re
import threading
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import FunctionType
from typing import Any, cast

import numba
import numpy as np
from numba.core import ir
from numba.core.compiler import run_frontend
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from sparkext.kernels.indexes.nested_loop import FAILED
from sparkext.kernels.runtime.jit import JIT_ENABLED
from sparkext.predicates.compiler import called_function, compile_function, field_of, infer_return_type
from sparkext.predicates.identity import DEFAULT, Argument, captured_arguments, compute_predicate_fingerprint
from sparkext.storage.last_used import LruCache
from sparkext.wording import format_count

Fields = Sequence[tuple[str, str]]
"""Name and number type of each field of a record."""

_NOTHING = ("nothing", "int8")
"""Placeholder field of a record if the predicate reads no field."""
_HIGHLIGHTS = re.compile(r"\x1b\[[\d;]*m")  # escape sequences that numba emits if colorama is installed
_NOISE = ("Failed in ", "During: Pass ")
_CACHED_VERDICTS = 10_000
"""Each entry needs about 200 bytes."""


def is_function(value: Any) -> bool:
    """Return whether a value is a Python function or a function compiled by numba."""
    return isinstance(value, FunctionType | Dispatcher)


def find_read_fields(predicate: Callable[..., Any], position: int) -> set[str]:
    """Return the fields that a function and its callees read of the argument at `position`.

    Raises `ValueError` if a record is used in any other way, because it only contains the fields that are read by name.
    """
    return _RecordTracker().of(predicate, position)


class _RecordTracker:
    """Tracks a record through the code of functions.

    It reads numba's intermediate representation, which is the same for all Python versions.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def of(self, function: Any, position: int) -> set[str]:
        function = getattr(function, "py_func", function)  # the Python function of a compiled one
        if (id(function), position) in self._seen:
            return set()
        self._seen.add((id(function), position))
        code = run_frontend(function)
        statements = [statement for block in code.blocks.values() for statement in block.body]
        names: set[str] = set()
        record = {""}
        while True:
            size_before = len(record)
            for statement in statements:
                value = getattr(statement, "value", None)
                if isinstance(value, ir.Arg):
                    if value.index == position:
                        record.add(statement.target.name)
                elif any(variable.name in record for variable in _list_variables_read(statement)):
                    if isinstance(statement, ir.Assign) and isinstance(value, ir.Var):
                        record.add(statement.target.name)
                    else:
                        names |= self._find_fields(code, value, record)
            if len(record) == size_before:
                return names

    def _find_fields(self, code: Any, value: Any, record: set[str]) -> set[str]:
        """Return the fields that a single step reads of a record."""
        op = getattr(value, "op", None)
        if op == "getattr":
            return {value.attr}
        if op == "call" and not value.kws and value.func.name not in record:
            called = called_function(code, value.func)
            if isinstance(called, Dispatcher):
                fields = [self.of(called, number) for number, var in enumerate(value.args) if var.name in record]
                return set().union(*fields)
            raise ValueError("passes a row to a function that is not compiled with numba.njit")
        raise ValueError("uses a row as a whole: read its columns by name, as in left.x")


def _list_variables_read(statement: Any) -> list[Any]:
    if isinstance(statement, ir.Del):
        return []
    target = getattr(statement, "target", None)
    return [variable for variable in statement.list_vars() if variable is not target]


@dataclass(frozen=True)
class BoundPredicate:
    """A predicate with the captured values for its machine code. Equal fingerprints share machine code."""

    predicate: Callable[[Any, Any], Any]
    arguments: tuple[Argument, ...]
    fingerprint: str

    @property
    def constants(self) -> tuple[Any, ...]:
        """The values of `arguments`."""
        return tuple(argument.value for argument in self.arguments)


class PredicateError(ValueError):
    """A predicate does not compile. The message gives the reason and the line."""


compilable: LruCache[str, bool] = LruCache(_CACHED_VERDICTS)
"""Whether a predicate type-checks, by fingerprint. `made` counts the type inferences."""
_lock = threading.Lock()


def bind_predicate(predicate: Callable[..., Any], left: Fields, right: Fields) -> BoundPredicate:
    """Check that numba can compile a predicate for records of these fields, without generating machine code.

    Captured values become arguments, unless the predicate only compiles with constants, for example because it uses
    one as an index into a tuple.

    Raises
    ------
    PredicateError
        The predicate does not compile.
    """
    function = unwrap_predicate(predicate)

    def bind(arguments: tuple[Argument, ...]) -> BoundPredicate:
        key = compute_predicate_fingerprint(function, arguments, (tuple(left), tuple(right)))
        return BoundPredicate(predicate, arguments, key)

    def compiles(arguments: tuple[Argument, ...]) -> bool:
        try:
            _infer_types(function, arguments, left, right)
        except PredicateError:
            if not arguments:
                raise
            return False
        return True

    with _lock:
        captured = captured_arguments(function)
        for arguments in (captured, ()) if captured else ((),):
            candidate = bind(arguments)
            if compilable.get_or_make(candidate.fingerprint, partial(compiles, arguments)):
                return candidate
    raise AssertionError("without arguments it compiles, or the reason was raised")


def unwrap_predicate(predicate: Callable[..., Any]) -> FunctionType:
    """Return the Python function of a predicate, which may have been compiled by numba."""
    function: FunctionType = getattr(predicate, "py_func", cast(FunctionType, predicate))
    return function


def _infer_types(function: FunctionType, arguments: Sequence[Argument], left: Fields, right: Fields) -> None:
    """Raise `PredicateError` unless a function compiles for records of these fields."""
    code, defaults = function.__code__, function.__defaults__ or ()
    if not code.co_argcount - len(defaults) <= 2 <= code.co_argcount:
        takes = format_count(code.co_argcount - len(defaults), "argument")
        raise PredicateError(f"it takes {takes}, expected two: a left and a right row")
    if not JIT_ENABLED:
        return
    default_values = {argument.name: argument.value for argument in arguments if argument.role == DEFAULT}
    captured = _create_captured_record(arguments)
    zeros = [[_ZEROS[re.sub(r"\d", "", kind)] for _, kind in fields or [_NOTHING]] for fields in (left, right)]
    if captured:
        zeros[0].append(captured(*(argument.value for argument in arguments if argument.role != DEFAULT)))
    types = [
        numba.typeof(_create_left_record(left, arguments)(*zeros[0])),
        numba.typeof(_create_record_class("right", _list_field_names(right))(*zeros[1])),
    ]
    names = code.co_varnames[2 : code.co_argcount]
    for name, default in zip(names, defaults[len(defaults) - len(names) :], strict=True):
        types.append(numba.typeof(default_values[name]) if name in default_values else numba.types.Omitted(default))
    try:
        result = infer_return_type(function, bool(captured), tuple(types))
    except NumbaError as error:
        text = _HIGHLIGHTS.sub("", str(error))
        reasons = dict.fromkeys(re.findall(r"TypingError: (.*)", text))
        # numba's list of attempted implementations fills pages.
        text = re.sub(r"(?ms)^There are \d+ candidate implementations:.*?(?=^During: )", "", text)
        lines = [line for line in text.splitlines() if not line.startswith(_NOISE)]
        raise PredicateError("\n".join([*reasons, "\n".join(lines).strip()])) from error
    if not isinstance(result, numba.types.Boolean):
        raise PredicateError(f"it returns {result}, expected a bool")


def functions_of_predicate(
    bound: BoundPredicate, left: Fields, right: Fields, exchanged: bool = False
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `load` and `holds`. Array k of a side is field k of its record. `exchanged` as in `PythonPredicate`."""
    if exchanged:
        left_values, right_values = _format_elements(left, "b", "[j]"), _format_elements(right, "p")
    else:
        left_values, right_values = _format_elements(left, "p"), _format_elements(right, "b", "[j]")
    numbered_arguments = list(enumerate(bound.arguments))
    captured = [f"c[{number}]" for number, argument in numbered_arguments if argument.role != DEFAULT]
    if captured:
        left_values.append(f"Captured({', '.join(captured)})")
    defaults = [f", {argument.name}=c[{number}]" for number, argument in numbered_arguments if argument.role == DEFAULT]
    loaded = [f"p[{number}][i]," for number, _ in enumerate((right if exchanged else left) or [_NOTHING])]
    source = f"""
def load(p, i):
    return ({" ".join(loaded)})

def holds(p, c, b, j):
    try:
        return np.uint8(predicate(Left({", ".join(left_values)}), Right({", ".join(right_values)}){"".join(defaults)}))
    except Exception:
        return np.uint8({FAILED})
"""
    scope: dict[str, Any] = {
        "np": np,
        "Left": _create_left_record(left, bound.arguments),
        "Right": _create_record_class("right", _list_field_names(right)),
        "Captured": _create_captured_record(bound.arguments),
        "predicate": compile_function(unwrap_predicate(bound.predicate), bool(captured)),
    }
    exec(compile(source, "<predicate>", "exec"), scope)
    return scope["load"], scope["holds"]


def evaluate(
    predicate: Callable[..., Any], left: Fields, right: Fields, values: Sequence[Sequence[np.generic]]
) -> bool:
    """Evaluate a predicate in Python for a pair of rows. `values`: of the left row, and of the right row."""
    records = [
        _create_record_class(name, _list_field_names(fields))(
            *(read_element(v, kind) for v, (_, kind) in zip(row, fields or [_NOTHING], strict=True))
        )
        for name, fields, row in zip(("left", "right"), (left, right), values, strict=True)
    ]
    return bool(predicate(*records))


def read_element(value: np.generic, kind: str) -> int | float | bool:
    """Return an array element as the Python value passed to the predicate."""
    return bool(value) if kind == "bool" else value.item()


_ZEROS = {"int": 0, "float": 0.0, "bool": False}
_WIDEST = {"int": "np.int64({})", "float": "np.float64({})", "bool": "({} != 0)"}


def _format_elements(fields: Fields, arrays: str, at: str = "") -> list[str]:
    """Return the field values of a record as source code, converted to int64, float64 or bool."""
    return [
        _WIDEST[re.sub(r"\d", "", kind)].format(f"{arrays}[{number}]{at}")
        for number, (_, kind) in enumerate(fields or [_NOTHING])
    ]


def _list_field_names(fields: Fields) -> tuple[str, ...]:
    return tuple(name for name, _ in fields or [_NOTHING])


def _create_left_record(left: Fields, arguments: Sequence[Argument]) -> Any:
    """Return the record class of left rows; captured arguments, if any, are its last field."""
    names = _list_field_names(left)
    if _create_captured_record(arguments) is None:
        return _create_record_class("left", names)
    field = "captured"
    while field in names:
        field += "_"
    return _create_record_class("left", (*names, field))


def _create_captured_record(arguments: Sequence[Argument]) -> Any:
    names = tuple(field_of(argument.role, argument.name) for argument in arguments if argument.role != DEFAULT)
    return _create_record_class("captured", names) if names else None


@lru_cache(maxsize=1024)
def _create_record_class(name: str, fields: tuple[str, ...]) -> Any:
    """Return a named tuple class, cached by name and fields: numba compiles functions again for each new class."""
    return namedtuple(name, fields)
