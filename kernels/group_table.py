"""Numbers the distinct rows of some columns in the order in which they first appear: the groups of an aggregation.

    columns ──▶ words ──▶ one word a row, or as few as possible ──▶ slots ──▶ numbers
             │            (`group_layout.py`)                       (`group_slots.py`)
             └▶ words of each group, column by column (`group_columns.py`), from which keys are made again

Slots are addressed densely while the range of the words is small, or not much larger than the number of groups, and
hashed else. A morsel may extend the range; all groups are then entered into new slots, which may be of the other
kind. Hashed slots that have to grow become dense ones if there are enough groups by then. Where the only column has
longer texts, their numbers in its dictionary are those of the groups, and there are no slots.

Keys are equal as in SQL's GROUP BY: null is one value, all NaN are one, and -0.0 is 0.0. Values that only have a hash
in common stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sparkext.kernels.buffers import Int64Array, allocate
from sparkext.kernels.group_columns import Field, TextColumn, key_column
from sparkext.kernels.group_layout import KeyLayout
from sparkext.kernels.group_slots import DenseSlots, HashSlots, Slots
from sparkext.kernels.growing import Int32Array
from sparkext.kernels.hashing import FULL_MASK
from sparkext.kernels.jit import frozen
from sparkext.kernels.text_dictionary import TextDictionary

MOST_GROUPS = (1 << 31) - 2
_DENSE_WORDS = 1 << 18
"""Ranges up to this many words (1 MiB of slots) are always addressed densely."""
_DENSE_WORDS_PER_GROUP = 16
"""So are larger ones up to this many words for each group: no more bytes than hashed slots take."""


class GroupTable:
    """See the module's text. It holds all groups until `clear`.

    Parameters
    ----------
    types
        Of the columns: any key type. Morsels may have strings and binaries with the other width of offsets.
    hash_mask
        ANDed to every hash. Tests cripple it, so that keys collide; nothing is addressed densely then.

    Raises
    ------
    TypeError
        Values of one of the types are no keys.
    ValueError
        There is no column.
    """

    def __init__(self, types: Sequence[pa.DataType], hash_mask: int = FULL_MASK) -> None:
        if not types:
            raise ValueError("a group table needs at least one column")
        self._columns = [key_column(arrow_type, hash_mask) for arrow_type in types]
        self._types = tuple(types)
        self._hash_mask = hash_mask
        self._count = 0
        self._layout: KeyLayout | None = None
        self._slots: Slots | None = None

    @property
    def count(self) -> int:
        """Groups so far."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        slots = 0 if self._slots is None else self._slots.nbytes
        return slots + sum(column.nbytes for column in self._columns)

    def clear(self) -> None:
        """Forget all groups, and give their memory back."""
        for column in self._columns:
            column.clear()
        self._count = 0
        self._layout = self._slots = None

    def keys(self, start: int, stop: int) -> list[pa.Array]:
        """Return the keys of the groups start to before stop, an array of the column's type for each column."""
        dictionary = self._dictionary
        if dictionary is not None:
            return [dictionary.span(start, stop, self._types[0])]
        return [column.keys(start, stop) for column in self._columns]

    def numbers(self, columns: Sequence[pa.Array]) -> Int32Array:
        """Return int32[n]: the group of every row; groups that are new get the next numbers.

        Raises
        ------
        OverflowError
            There might be more groups than int32 can number.
        """
        rows = len(columns[0])
        if rows == 0:
            return frozen(np.empty(0, dtype=np.int32))
        if self._count + rows > MOST_GROUPS:
            raise OverflowError(f"a group table numbers at most {MOST_GROUPS:,} groups: it has to be cleared earlier")
        encoded = [column.encode(array) for column, array in zip(self._columns, columns, strict=True)]
        dictionary = self._dictionary
        if dictionary is not None:
            self._count = dictionary.count
            return frozen(encoded[0][0][0].words.astype(np.int32))
        if any(recoded for _, recoded in encoded):
            self._layout = self._slots = None
        numbers = allocate(rows, np.int32)
        self._number([fields for fields, _ in encoded], numbers)
        return frozen(numbers)

    @property
    def _dictionary(self) -> TextDictionary | None:
        """A dictionary whose codes are the groups' numbers: that of a single column of longer texts."""
        column = self._columns[0]
        return column.dictionary if len(self._columns) == 1 and isinstance(column, TextColumn) else None

    def _number(self, encoded: Sequence[Sequence[Field]], numbers: Int32Array) -> None:
        """Write the number of every row, and remember the words of new groups."""
        fields = [field for of_column in encoded for field in of_column]
        words = None if self._slots is None or self._layout is None else self._layout.pack(fields)
        if words is None:
            words = self._arrange(fields)
        fresh, known, row = allocate(numbers.size, np.int32), self._count, 0
        while True:
            assert self._slots is not None and self._layout is not None
            row, self._count = self._slots.number(words, row, self._count, numbers, fresh, known)
            if self._count > known and (row == numbers.size or isinstance(self._slots, DenseSlots)):
                for column, of_column in zip(self._columns, encoded, strict=True):
                    column.remember(of_column, fresh[: self._count - known])
                known = self._count
            if row == numbers.size:
                return
            if isinstance(self._slots, HashSlots):
                self._grow(self._slots, self._layout, fields)
            else:
                words = self._arrange(fields)

    def _arrange(self, fields: Sequence[Field]) -> list[Int64Array]:
        """Extend the layout to these words, enter all groups into new slots, and return the words as they are now."""
        layout = self._layout or KeyLayout(len(fields))
        known = self._remembered()
        if self._count:  # which words that are packed as they are may have left behind
            layout.cover(known)
        layout.cover(fields)
        self._layout, self._slots = layout, self._new_slots(layout, self._count)
        if self._count:
            numbers, fresh = np.empty((2, self._count), dtype=np.int32)
            self._slots.number(_packed(layout, known), 0, 0, numbers, fresh, 0)
        return _packed(layout, fields)

    def _remembered(self) -> list[Field]:
        return [field for column in self._columns for field in column.remembered()]

    def _grow(self, slots: HashSlots, layout: KeyLayout, fields: Sequence[Field]) -> None:
        """Double the slots, or address them densely from now on."""
        if layout.direct:  # nobody has looked whether words are in the range
            layout.cover(self._remembered())
            layout.cover(fields)
        if self._is_dense(layout, self._count):
            self._slots = DenseSlots.of(slots, layout.low, layout.size)
        else:
            slots.grow()

    def _new_slots(self, layout: KeyLayout, groups: int) -> Slots:
        if self._is_dense(layout, groups):
            return DenseSlots(layout.low, layout.size)
        return HashSlots(groups, layout.width, self._hash_mask)

    def _is_dense(self, layout: KeyLayout, groups: int) -> bool:
        return self._hash_mask == FULL_MASK and layout.size <= max(_DENSE_WORDS, _DENSE_WORDS_PER_GROUP * groups)


def _packed(layout: KeyLayout, fields: Sequence[Field]) -> list[Int64Array]:
    words = layout.pack(fields)
    assert words is not None, "the layout covers them"
    return words
