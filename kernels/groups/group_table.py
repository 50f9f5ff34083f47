"""Group ids of an aggregation: the distinct rows of some columns, numbered in order of first appearance.

    columns ──▶ words ──▶ one word per row, or as few as possible ──▶ slots ──▶ group ids
             │            (`group_layout.py`)                         (`group_slots.py`)
             └▶ words of each group, column by column (`group_columns.py`), from which keys are decoded

Slots are addressed densely if the range of the words is small, or not much larger than the number of groups; otherwise
they are hashed. If a morsel extends the range, all groups are inserted into new slots, dense or hashed. Hashed slots
that have to grow become dense if there are enough groups by then. For a single column of longer texts, their dictionary
codes are the group ids, and there are no slots.

Keys are equal as in SQL's GROUP BY: null is one value, all NaN are one, and -0.0 is 0.0. Different values with equal
hashes are different keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, allocate_array
from sparkext.kernels.groups.group_columns import Field, TextColumn, create_key_column
from sparkext.kernels.groups.group_layout import KeyLayout
from sparkext.kernels.groups.group_slots import DenseSlots, HashSlots, Slots
from sparkext.kernels.groups.text_dictionary import TextDictionary
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.kernels.runtime.jit import freeze

MOST_GROUPS = (1 << 31) - 2
_DENSE_WORDS = 1 << 18
"""Ranges up to this many words (1 MiB of slots) are always addressed densely."""
_DENSE_WORDS_PER_GROUP = 16
"""So are larger ranges of up to this many words per group: dense slots are then no larger than hashed slots."""


class GroupTable:
    """See the module's docstring.

    Parameters
    ----------
    types
        The types of the columns: any key type. Morsels may have strings and binaries with the other width of offsets.
    hash_mask
        ANDed to every hash. Tests reduce it so that keys collide; nothing is addressed densely then.

    Raises
    ------
    TypeError
        Values of one of the types cannot be keys.
    ValueError
        There is no column.
    """

    def __init__(self, types: Sequence[pa.DataType], hash_mask: int = FULL_MASK) -> None:
        if not types:
            raise ValueError("a group table needs at least one column")
        self._columns = [create_key_column(arrow_type, hash_mask) for arrow_type in types]
        self._types = tuple(types)
        self._hash_mask = hash_mask
        self._count = 0
        self._layout: KeyLayout | None = None
        self._slots: Slots | None = None

    @property
    def count(self) -> int:
        """The number of groups so far."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        slots = 0 if self._slots is None else self._slots.nbytes
        return slots + sum(column.nbytes for column in self._columns)

    def keys(self, start: int, stop: int) -> list[pa.Array]:
        """Return the keys of the groups start to before stop: for each column an array of its type."""
        dictionary = self._dictionary
        if dictionary is not None:
            return [dictionary.span(start, stop, self._types[0])]
        return [column.keys(start, stop) for column in self._columns]

    def numbers(self, columns: Sequence[pa.Array]) -> Int32Array:
        """Return int32[n]: the group id of every row; new groups get the next ids.

        Raises
        ------
        OverflowError
            There might be more groups than int32 can number.
        """
        rows = len(columns[0])
        if rows == 0:
            return freeze(np.empty(0, dtype=np.int32))
        if self._count + rows > MOST_GROUPS:
            raise OverflowError(f"a group table numbers at most {MOST_GROUPS:,} groups")
        encoded = [column.encode(array) for column, array in zip(self._columns, columns, strict=True)]
        dictionary = self._dictionary
        if dictionary is not None:
            self._count = dictionary.count
            return freeze(encoded[0][0][0].words.astype(np.int32))
        if any(recoded for _, recoded in encoded):
            self._layout = self._slots = None
        numbers = allocate_array(rows, np.int32)
        self._number([fields for fields, _ in encoded], numbers)
        return freeze(numbers)

    @property
    def _dictionary(self) -> TextDictionary | None:
        """The dictionary whose codes are the group ids, for a single column of longer texts; else None."""
        column = self._columns[0]
        return column.dictionary if len(self._columns) == 1 and isinstance(column, TextColumn) else None

    def _number(self, encoded: Sequence[Sequence[Field]], numbers: Int32Array) -> None:
        """Write the group id of every row, and store the words of new groups."""
        fields = [field for column_fields in encoded for field in column_fields]
        words = None if self._slots is None or self._layout is None else self._layout.pack(fields)
        if words is None:
            words = self._arrange(fields)
        fresh, first_fresh, row = allocate_array(numbers.size, np.int32), self._count, 0
        while True:
            assert self._slots is not None and self._layout is not None
            row, self._count = self._slots.number(words, row, self._count, numbers, fresh, first_fresh)
            if self._count > first_fresh and (row == numbers.size or isinstance(self._slots, DenseSlots)):
                for column, column_fields in zip(self._columns, encoded, strict=True):
                    column.remember(column_fields, fresh[: self._count - first_fresh])
                first_fresh = self._count
            if row == numbers.size:
                return
            if isinstance(self._slots, HashSlots):
                self._grow(self._slots, self._layout, fields)
            else:
                words = self._arrange(fields)

    def _arrange(self, fields: Sequence[Field]) -> list[Int64Array]:
        """Extend the layout to these words, insert all groups into new slots, and return the packed words."""
        layout = self._layout or KeyLayout(len(fields))
        group_fields = self._read_fields()
        if self._count:  # unchanged words of groups may exceed the ranges of the layout
            layout.cover(group_fields)
        layout.cover(fields)
        self._layout, self._slots = layout, self._new_slots(layout, self._count)
        if self._count:
            numbers, fresh = np.empty((2, self._count), dtype=np.int32)
            self._slots.number(_pack_fields(layout, group_fields), 0, 0, numbers, fresh, 0)
        return _pack_fields(layout, fields)

    def _read_fields(self) -> list[Field]:
        return [field for column in self._columns for field in column.read_fields()]

    def _grow(self, slots: HashSlots, layout: KeyLayout, fields: Sequence[Field]) -> None:
        """Double the slots, or address them densely from now on."""
        if layout.direct:  # `pack` does not check that words are in the range
            layout.cover(self._read_fields())
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


def _pack_fields(layout: KeyLayout, fields: Sequence[Field]) -> list[Int64Array]:
    words = layout.pack(fields)
    assert words is not None, "the layout covers them"
    return words
