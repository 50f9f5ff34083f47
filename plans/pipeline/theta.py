"""The condition of a theta join, as plain data: an expression, or a predicate written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkext.plans.expressions.expression import Expression, parse_expression, render_expression


@dataclass(frozen=True)
class NamedColumn:
    """A column that a predicate in Python reads as an attribute of its side's record. `key` is its key type."""

    name: str
    source: int
    column: int
    key: str


@dataclass(frozen=True)
class PythonPredicate:
    """A Python function of two records, `left` and `right`, that returns whether they match.

    `pickled` is the function, pickled by cloudpickle, in base64. It is not called for rows that have a null in one of
    the columns: these rows match nothing. `exchanged`: the right side is the probe side, the left one the build side.
    """

    pickled: str
    left: tuple[NamedColumn, ...]
    right: tuple[NamedColumn, ...]
    exchanged: bool = False

    @property
    def probe(self) -> tuple[NamedColumn, ...]:
        """The columns of the probe side."""
        return self.right if self.exchanged else self.left

    @property
    def build(self) -> tuple[NamedColumn, ...]:
        """The columns of the build side."""
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
