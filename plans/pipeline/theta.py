"""The condition of a theta join, as plain data: an expression, or a predicate written in Python."""

from __future__ import annotations

from dataclasses import dataclass

from sparkext.plans.expressions.expression import Expression


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
