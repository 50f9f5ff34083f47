"""Where an arena has what, and what a record looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkext.kernels.arena.room import FIRST_FREE
from sparkext.kernels.arena.tables import TABLE_WORDS
from sparkext.kernels.arena.words import DOUBLE_ORDER, INTEGER_ORDER, TEXT_ORDER
from sparkext.plans.key_types import KeyType
from sparkext.plans.number_types import FLOATS

GIVEN = FIRST_FREE
"""The word of an arena that counts the rows that outputs hold."""

NOW, AFTER, STEPS = range(3)
"""Words of where a section is: the instant that was last, a timestamp and how many ε behind it, and instants so far
since a new row came or time went on."""

BEFORE_ALL = -(1 << 63)
"""Where sections are at first."""

TIME, EPSILONS, ROW = 1, 2, 3
"""Words of a record that a queue holds: see `kernels.arena.rows.queued`."""


class Literal(int):
    """A number that generated code passes on. Of a bare one numba would compile the function that takes it anew."""

    def __format__(self, spec: str) -> str:
        """Spell it as a value of int64."""
        return f"np.int64({int(self)})"


@dataclass
class Layout:
    """Gives headers their places; `tables` are those that have to be opened."""

    _words: list[int] = field(default_factory=lambda: [0] * (GIVEN + 1))
    tables: list[Literal] = field(default_factory=list)

    def words(self, count: int, values: Sequence[int] = ()) -> Literal:
        """Return the place of a header of so many words, which begin as these, or as zeros."""
        at = Literal(len(self._words))
        self._words += map(int, values or [0] * count)
        return at

    def instant(self) -> Literal:
        """Return the place of where a section is."""
        return self.words(3, (BEFORE_ALL, 0, 0))

    def table(self) -> Literal:
        """Return the place of a table's header."""
        at = self.words(TABLE_WORDS)
        self.tables.append(at)
        return at

    def headers(self) -> tuple[int, ...]:
        """Return what the words of all headers begin as; the first is the first free one."""
        return (len(self._words), *self._words[1:])


def order_of(kind: KeyType) -> Literal:
    """Return how words of a type are compared."""
    if kind.name == "string":
        return Literal(TEXT_ORDER)
    return Literal(DOUBLE_ORDER if kind.name in FLOATS else INTEGER_ORDER)
