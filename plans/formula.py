"""Numeric conditions on pairs of rows, as plain data: what a theta join asks, and what workers compile.

A formula is one of

    {"op": "column", "source": s, "column": c, "key": key type}        a value of a column (see `plans.key_types`)
    {"op": "literal", "text": text or null, "type": type}
    {"op": "in", "args": [formula], "list": [text or null, ...], "type": "bool"}
    {"op": name, "args": [formula, ...], "type": type, "checked": bool}

where `type` is the number type of the result: bool, int8, int16, int32, int64, float32 or float64. Dates are their days
(int32), timestamps their microseconds (int64), decimals of up to 18 digits their unscaled digits (int64). The literals
of a list are of its argument's type, one or more, and may be a great many.

A null makes null whatever is computed from it, but for `and`, `or`, `is_null`, `<=>`, `if`, `coalesce`, `least` and
`greatest`, which follow SQL. NaN equals NaN and is greater than any other number. `checked`: an overflow is an error,
as in Spark's ANSI mode, instead of wrapping around; a division by zero is an error, instead of null.

The condition of a theta join that was written in Python is a `PythonPredicate` instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkext.plans.key_types import KeyType, parse_key_type
from sparkext.plans.predicate import COMPARISONS

ARITHMETIC = ("+", "-", "*", "/", "%")
OPERANDS: dict[str, tuple[int, int]] = {
    **dict.fromkeys((*ARITHMETIC, *COMPARISONS), (2, 2)),
    **dict.fromkeys(("negate", "abs", "sqrt", "cast", "not", "is_null"), (1, 1)),
    **dict.fromkeys(("and", "or", "coalesce", "least", "greatest"), (1, 1000)),
    "if": (3, 3),
    "in": (1, 1),
}
_BOOLEAN = (*COMPARISONS, "and", "or", "not", "is_null", "in")
_INTEGERS = ("int8", "int16", "int32", "int64")
_FLOATS = ("float32", "float64")
NUMBER_TYPES = ("bool", *_INTEGERS, *_FLOATS)
WORDS = {"date": "int32", "timestamp": "int64", "timestamp_ntz": "int64", "daytime_interval": "int64"}
MOST_DIGITS = 18
"""Decimals of more digits do not fit a machine word."""


@dataclass(frozen=True)
class Formula:
    """A node. Columns have a `source`, a `column` and a `key` type, literals a `text`; all others have `args`.

    `texts` are the literals of a list.
    """

    op: str
    type: str
    args: tuple[Formula, ...] = ()
    checked: bool = False
    source: int = 0
    column: int = 0
    key: str = ""
    text: str | None = None
    texts: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no code is made from."""
        if self.type not in NUMBER_TYPES:
            raise ValueError(f"not a number type: {self.type!r}")
        least, most = OPERANDS.get(self.op, (0, 0))
        known = self.op in ("column", "literal") or self.op in OPERANDS
        types = {argument.type for argument in self.args}
        fits = known and least <= len(self.args) <= most
        if fits and self.op in ARITHMETIC:
            fits = types == {self.type} and (self.op != "/" or self.type == "float64")
        elif fits and self.op in COMPARISONS:
            fits = len(types) == 1
        elif fits and self.op in ("and", "or", "not"):
            fits = types == {"bool"}
        elif fits and self.op == "if":
            fits = self.args[0].type == "bool" and {argument.type for argument in self.args[1:]} == {self.type}
        elif fits and self.op in ("coalesce", "least", "greatest", "negate", "abs", "sqrt"):
            fits = types == {self.type} and (self.op != "sqrt" or self.type == "float64")
        elif fits and self.op == "cast":
            # Integers wrap around where they do not fit; for floats that do not fit integers there is no code.
            fits = not self.checked and (types <= {*_INTEGERS} or self.type in _FLOATS)
        if self.op in (*ARITHMETIC, "negate", "abs", "cast"):
            fits = fits and "bool" not in (*types, self.type)
        fits = fits and (self.op == "in") == bool(self.texts)
        if not fits or (self.op in _BOOLEAN and self.type != "bool"):
            raise ValueError(f"not a formula: {self!r}")

    @property
    def may_fail(self) -> bool:
        """Whether there are values that it has an error for."""
        return self.checked or any(argument.may_fail for argument in self.args)

    def columns(self) -> Iterator[Formula]:
        """Yield the nodes that are columns; one that occurs twice comes twice."""
        if self.op == "column":
            yield self
        for argument in self.args:
            yield from argument.columns()


def number_type(key_type: KeyType) -> str | None:
    """Return the number type that values of a column become, or None if they are no numbers."""
    if key_type.name == "decimal":
        return "int64" if key_type.precision <= MOST_DIGITS else None
    return key_type.name if key_type.name in NUMBER_TYPES else WORDS.get(key_type.name)


@dataclass(frozen=True)
class NamedColumn:
    """A column as a predicate in Python sees it: an attribute of the record of its side."""

    name: str
    source: int
    column: int
    key: str


@dataclass(frozen=True)
class PythonPredicate:
    """A Python function of two records, `left` and `right`, that tells whether they match.

    `pickled` is the function, pickled by cloudpickle, in base64. It is not asked about rows that have a null in one of
    the columns: they match nothing.
    """

    pickled: str
    left: tuple[NamedColumn, ...]
    right: tuple[NamedColumn, ...]


Theta = Formula | PythonPredicate


def parse_theta(data: Mapping[str, Any]) -> Theta:
    """Read the JSON form. Raises `ValueError`."""
    if "pickled" in data:
        left, right = (tuple(NamedColumn(**column) for column in data[side]) for side in ("left", "right"))
        return PythonPredicate(data["pickled"], left, right)
    return parse_formula(data)


def parse_formula(data: Mapping[str, Any]) -> Formula:
    """Read the JSON form of what is no predicate in Python. Raises `ValueError`."""
    if data["op"] == "column":
        kind = number_type(parse_key_type(data["key"]))
        if kind is None:
            raise ValueError(f"a column of type {data['key']} holds no numbers")
        return Formula("column", kind, source=data["source"], column=data["column"], key=data["key"])
    if data["op"] == "literal":
        return Formula("literal", data["type"], text=data["text"])
    arguments = tuple(parse_formula(argument) for argument in data["args"])
    checked, texts = bool(data.get("checked", False)), tuple(data.get("list", ()))
    return Formula(data["op"], data["type"], arguments, checked, texts=texts)


def render_theta(theta: Theta) -> dict[str, Any]:
    """Write the JSON form; `parse_theta` reads it back."""
    if isinstance(theta, PythonPredicate):
        sides = {"left": theta.left, "right": theta.right}
        return {"pickled": theta.pickled, **{side: [vars(column) for column in sides[side]] for side in sides}}
    if theta.op == "column":
        return {"op": "column", "source": theta.source, "column": theta.column, "key": theta.key}
    if theta.op == "literal":
        return {"op": "literal", "text": theta.text, "type": theta.type}
    arguments = [render_theta(argument) for argument in theta.args]
    if theta.op == "in":
        return {"op": "in", "args": arguments, "list": list(theta.texts), "type": theta.type}
    return {"op": theta.op, "args": arguments, "type": theta.type, "checked": theta.checked}
