"""Conditions on joined pairs, as plain data: what has to hold beside the keys.

A predicate is one of

    {"op": "and" | "or", "args": [predicate, ...]}
    {"op": "not", "args": [predicate]}
    {"op": "is_null", "args": [operand]}
    {"op": "=" | "<=>" | "<" | "<=" | ">" | ">=", "args": [operand, operand], "type": key type}
    {"op": "in", "args": [operand], "list": [text, ...], "type": key type}
    {"op": "starts_with" | "ends_with" | "contains" | "like", "args": [operand, literal]}

and an operand is `{"source": s, "column": c}` (a `ColumnRef`) or `{"literal": text}`, the text as `parse_literal` reads
it, or null. A list has one or more texts of the same kind, none of them null, and may have a great many. Strings are
tested byte by byte, and in the pattern of `like` only `%` has a meaning of its own. Both operands of a comparison have
the same type (see `plans.key_types`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkext.plans.key_types import parse_key_type

COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=")
STRING_TESTS = ("starts_with", "ends_with", "contains", "like")
UNORDERED = ("bool",)
NOT_COVERED = ("float32", "float64")
"""Floats are left out: NaN is a value like any other to Spark, and none to the libraries that would compare it."""


@dataclass(frozen=True)
class Operand:
    """A column, or a literal if `source` is None. A `text` of None is the null literal."""

    source: int | None
    column: int = 0
    text: str | None = None


@dataclass(frozen=True)
class Predicate:
    """An inner node (`and`, `or`, `not`) has `children`, a leaf has `operands` and, if it compares, their `type`.

    `texts` are the literals of a list.
    """

    op: str
    children: tuple[Predicate, ...] = ()
    operands: tuple[Operand, ...] = ()
    type: str | None = None
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no evaluator runs."""
        if self.op in (*COMPARISONS, "in"):
            name = parse_key_type(self.type or "").name
            ordered = self.op not in ("=", "<=>", "in")
            if name in NOT_COVERED or (ordered and name in UNORDERED):
                raise ValueError(f"{self.op} is not covered for {name}")
            fits = len(self.operands) == (1 if self.op == "in" else 2) and not self.children
        elif self.op in STRING_TESTS:
            fits = len(self.operands) == 2 and not self.children
        elif self.op == "is_null":
            fits = len(self.operands) == 1 and not self.children
        elif self.op == "not":
            fits = len(self.children) == 1 and not self.operands
        else:
            fits = self.op in ("and", "or") and len(self.children) > 0 and not self.operands
        if not fits or (self.op == "in") != bool(self.texts):
            raise ValueError(f"not a predicate: {self!r}")

    def columns(self) -> Iterator[tuple[int, int]]:
        """Yield source and column of what it looks at; one that occurs twice comes twice."""
        yield from ((place.source, place.column) for place in self.operands if place.source is not None)
        for child in self.children:
            yield from child.columns()


def parse_predicate(data: Mapping[str, Any]) -> Predicate:
    """Read the JSON form. Raises `ValueError`."""
    arguments = data["args"]
    if data["op"] in (*COMPARISONS, *STRING_TESTS, "in", "is_null"):
        operands = tuple(_operand(argument) for argument in arguments)
        return Predicate(data["op"], operands=operands, type=data.get("type"), texts=tuple(data.get("list", ())))
    return Predicate(data["op"], children=tuple(parse_predicate(argument) for argument in arguments))


def _operand(data: Mapping[str, Any]) -> Operand:
    if "literal" in data:
        return Operand(None, text=data["literal"])
    return Operand(data["source"], data["column"])


def render_predicate(predicate: Predicate) -> dict[str, Any]:
    """Write the JSON form; `parse_predicate` reads it back."""
    if predicate.children:
        return {"op": predicate.op, "args": [render_predicate(child) for child in predicate.children]}
    operands = [
        {"literal": operand.text} if operand.source is None else {"source": operand.source, "column": operand.column}
        for operand in predicate.operands
    ]
    listed = {"list": list(predicate.texts)} if predicate.texts else {}
    return {"op": predicate.op, "args": operands, "type": predicate.type, **listed}
