"""The condition of a theta join, as plain data: an expression, or a predicate that was written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkext.plans.expression import Expression, parse_expression, render_expression


@dataclass(frozen=True)
class NamedColumn:
    """A column as a predicate in Python sees it: an attribute of the record of its side. `key` is its key type."""

    name: str
    source: int
    column: int
    key: str


@dataclass(frozen=True)
class PythonPredicate:
    """A Python function of two records, `left` and `right`, that tells whether they match.

    `pickled` is the function, pickled by cloudpickle, in base64. It is not asked about rows that have a null in one of
    the columns: they match nothing. `exchanged`: rows of its right side look up those of the left one.
    """

    pickled: str
    left: tuple[NamedColumn, ...]
    right: tuple[NamedColumn, ...]
    exchanged: bool = False

    @property
    def probe(self) -> tuple[NamedColumn, ...]:
        """The columns of the rows that look others up."""
        return self.right if self.exchanged else self.left

    @property
    def build(self) -> tuple[NamedColumn, ...]:
        """The columns of the rows that are looked up."""
        return self.left if self.exchanged else self.right


Theta = Expression | PythonPredicate


def parse_theta(data: Mapping[str, Any]) -> Theta:
    """Read the JSON form. Raises `ValueError`."""
    if "pickled" not in data:
        return parse_expression(data)
    left, right = (tuple(NamedColumn(**column) for column in data[side]) for side in ("left", "right"))
    return PythonPredicate(data["pickled"], left, right, data["exchanged"])


def render_theta(theta: Theta) -> dict[str, Any]:
    """Write the JSON form; `parse_theta` reads it back."""
    if isinstance(theta, Expression):
        return render_expression(theta)
    sides = {"left": theta.left, "right": theta.right}
    told = {"pickled": theta.pickled, "exchanged": theta.exchanged}
    return {**told, **{side: [vars(column) for column in sides[side]] for side in sides}}
