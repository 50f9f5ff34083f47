"""The layout of an arena: positions of headers, and the words of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkext.kernels.arena.room import FIRST_FREE
from sparkext.kernels.arena.tables import TABLE_WORDS
from sparkext.kernels.arena.words import DOUBLE_ORDER, INTEGER_ORDER, TEXT_ORDER
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.expressions.number_types import FLOATS

GIVEN = FIRST_FREE
"""The word of an arena that counts the rows in output queues."""

NOW, AFTER, STEPS = range(3)
"""Words of the current instant of a section: its timestamp, the number of ε after it, and the number of instants since
the last new row or the last change of the timestamp."""

BEFORE_ALL = -(1 << 63)
"""The initial timestamp of sections."""

TIME, EPSILONS, ROW = 1, 2, 3
"""Words of a record in a queue: see `kernels.arena.rows.queued`."""


class Int64Literal(int):
    """A number in generated code, spelled as int64: numba would compile a function anew for each bare literal."""

    def __format__(self, spec: str) -> str:
        """Spell it as a value of int64."""
        return f"np.int64({int(self)})"


@dataclass
class Layout:
    """Allocates positions for headers; `tables` are the positions of tables that have to be opened."""

    _words: list[int] = field(default_factory=lambda: [0] * (GIVEN + 1))
    tables: list[Int64Literal] = field(default_factory=list)

    def words(self, count: int, values: Sequence[int] = ()) -> Int64Literal:
        """Return the position of a new header of `count` words, with initial `values`, or zeros."""
        at = Int64Literal(len(self._words))
        self._words += map(int, values or [0] * count)
        return at

    def instant(self) -> Int64Literal:
        """Return the position of a new section's current instant."""
        return self.words(3, (BEFORE_ALL, 0, 0))

    def table(self) -> Int64Literal:
        """Return the position of a new table's header."""
        at = self.words(TABLE_WORDS)
        self.tables.append(at)
        return at

    def headers(self) -> tuple[int, ...]:
        """Return the initial words of all headers; the first one is the position of the first free word."""
        return (len(self._words), *self._words[1:])


def order_of(kind: KeyType) -> Int64Literal:
    """Return the code of the order in which words of a type are compared."""
    if kind.name == "string":
        return Int64Literal(TEXT_ORDER)
    return Int64Literal(DOUBLE_ORDER if kind.name in FLOATS else INTEGER_ORDER)
