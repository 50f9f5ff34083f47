"""Decides which predicates share machine code.

numba compiles captured values into constants, and never frees machine code: a predicate that captures a different
number in each micro-batch would exhaust the memory of its process. Therefore, numbers and arrays that the predicate
itself captures (free variables, globals, defaults) are passed to the compiled code as arguments:

    def within(limit):
        return lambda left, right: abs(left.x - right.x) < limit * SCALE

    fingerprint: bytecode, constants, names, the types of `limit` and `SCALE`    compiled once
    arguments:   the values of `limit` and `SCALE`                               read for each run

All other captured values are part of the fingerprint: booleans, texts, tuples, attributes of modules, and functions
with the values that they capture in turn. Equal fingerprints mean equal types and equal bits: 1, 1.0 and True have
different fingerprints, and so have 0.0 and -0.0.
"""

from __future__ import annotations

import builtins
import dis
import enum
import hashlib
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from sparkext.kernels.runtime.jit import freeze
from sparkext.spark.internals import pickle_value

FREE, GLOBAL, DEFAULT = "free variable", "global", "default"

_OPAQUE = ("numpy", "numba", "math", "builtins")
"""Packages whose functions numba replaces by its own implementations."""


@dataclass(frozen=True)
class Argument:
    """A captured value that is passed to the compiled code. `role`: how the predicate captures it."""

    role: str
    name: str
    value: Any


def captured_arguments(function: FunctionType) -> tuple[Argument, ...]:
    """Return the numbers and arrays that a function itself captures, in an order determined by its code."""
    return tuple(
        Argument(role, name, freeze(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value)
        for role, name, value in _walk_captured(function)
        if _is_argument(value)
    )


def compute_predicate_fingerprint(function: FunctionType, arguments: Iterable[Argument], more: object) -> str:
    """Return a digest of a function's code and of its captured values, except `arguments`.

    `more`: further values that determine the machine code: texts, numbers, tuples of these.
    """
    digest = _Digest()
    digest.add(more)
    digest.add_function(function, {(argument.role, argument.name) for argument in arguments})
    return digest.hexadecimal()


def _is_argument(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iufb" and value.ndim > 0
    if isinstance(value, np.generic):
        return value.dtype.kind in "iuf"
    return type(value) is float or (type(value) is int and -(2**63) <= value < 2**63)


def _walk_captured(function: FunctionType) -> Iterator[tuple[str, str, Any]]:
    """Yield role, name and value of the variables that a function captures, without its inner functions."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield FREE, name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _global_names(code):
        if name in function.__globals__:
            yield GLOBAL, name, function.__globals__[name]
    defaults = function.__defaults__ or ()
    for name, value in zip(
        code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True
    ):
        yield DEFAULT, name, value


def _global_names(code: CodeType) -> list[str]:
    reads = ("LOAD_GLOBAL", "LOAD_NAME")
    return list(dict.fromkeys(step.argval for step in dis.get_instructions(code) if step.opname in reads))


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inner_codes(constant)


class _Digest:
    """A digest of values by type and content. A value of an unsupported type is added in pickled form."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._functions: dict[int, int] = {}

    def hexadecimal(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        kind = type(value)
        if value is None or value is Ellipsis or kind in (bool, int, str):
            self._part(kind.__name__, repr(value).encode("utf-8", "backslashreplace"))
        elif kind is bytes:
            self._part("bytes", value)
        elif kind is float:
            self._part("float", struct.pack("<d", value))
        elif kind is complex:
            self._part("complex", struct.pack("<dd", value.real, value.imag))
        elif isinstance(value, np.generic) and value.dtype.kind not in "OV":
            self._part(f"number {value.dtype.str}", value.tobytes())
        elif isinstance(value, np.ndarray) and value.dtype.kind not in "OV":
            self._part(f"array {value.dtype.str} {value.shape}", value.tobytes())
        elif isinstance(value, tuple):
            self._part(f"tuple {len(value)}", b"" if kind is tuple else _type_name(kind).encode())
            self._add_all(value)
        elif isinstance(value, frozenset):
            self._part("set", b"".join(sorted(map(_digest_of, value))))
        elif isinstance(value, enum.Enum):
            self._part("member", f"{_type_name(kind)}.{value.name}".encode())
            self.add(value.value)
        elif isinstance(value, enum.EnumMeta):
            self._part("members", _type_name(value).encode())
            members: list[Any] = list(value)
            self._add_all([(member.name, member.value) for member in members])
        elif isinstance(value, CodeType):
            self._add_code(value)
        elif isinstance(value, Dispatcher):
            self._part("compiled", repr(sorted(value.targetoptions.items(), key=str)).encode())
            self.add(value.py_func)
        elif isinstance(value, FunctionType) and not _is_opaque(value):
            self.add_function(value)
        elif isinstance(value, ModuleType):
            self._part("module", value.__name__.encode())
        elif isinstance(value, BuiltinFunctionType | FunctionType | np.ufunc | type) and _is_importable(value):
            self._part("named", _type_name(value).encode())
        else:
            self._part("pickled", pickle_value(value))

    def add_function(self, function: FunctionType, arguments: Iterable[tuple[str, str]] = ()) -> None:
        """Add the code and the captured values; for those in `arguments` (role and name), add only the types."""
        if id(function) in self._functions:  # a recursive function
            self._part("function", str(self._functions[id(function)]).encode())
            return
        self._functions[id(function)] = len(self._functions)
        self._add_code(function.__code__)
        argument_names = set(arguments)
        inner = list(_inner_codes(function.__code__))
        attributes = [name for code in [function.__code__, *inner] for name in code.co_names]
        captured = list(_walk_captured(function))
        captured += [
            ("inner", name, function.__globals__[name])
            for code in inner
            for name in _global_names(code)
            if name in function.__globals__
        ]
        for role, name, value in captured:
            self._part(role, name.encode())
            if (role, name) in argument_names:
                self._part("argument", str(numba.typeof(value)).encode())
            else:
                self.add(value)
            if isinstance(value, ModuleType):
                self._add_attributes(value, attributes, {value.__name__})

    def _add_attributes(self, module: ModuleType, names: Iterable[str], seen: set[str]) -> None:
        """Add a module's attributes with these names. If one is a module, add its attributes in turn."""
        for name in dict.fromkeys(names):
            value = vars(module).get(name)
            if isinstance(value, ModuleType):
                if value.__name__ not in seen:
                    self._add_attributes(value, names, seen | {value.__name__})
            elif value is not None:
                self._part("attribute", f"{module.__name__}.{name}".encode())
                self.add(value)

    def _add_code(self, code: CodeType) -> None:
        self._part("code", code.co_code)
        self._part("exceptions", getattr(code, "co_exceptiontable", b""))
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.add((counts, names, code.co_consts))

    def _add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def _part(self, kind: str, content: bytes) -> None:
        self._hash.update(f"{kind}\0{len(content)}\0".encode())
        self._hash.update(content)


def _digest_of(value: object) -> bytes:
    digest = _Digest()
    digest.add(value)
    return digest.hexadecimal().encode()


def _type_name(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value.__name__)}"


def _is_opaque(function: FunctionType) -> bool:
    return function.__module__ is not None and function.__module__.partition(".")[0] in _OPAQUE


def _is_importable(value: Any) -> bool:
    """Return whether a value can be looked up by its module and qualified name."""
    module = "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None) or builtins.__name__
    member: Any = sys.modules.get(module)
    for name in getattr(value, "__qualname__", value.__name__).split("."):
        member = getattr(member, name, None)
    return member is value
