"""The index of a cross join: every probe row matches every build row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.array_index import ArrayIndex
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.jit import freeze


@dataclass(frozen=True)
class AllRowsIndex(ArrayIndex):
    """An index without keys and arrays: the match range of every probe row is all `build_rows` rows."""

    kind: ClassVar[str] = "all rows"
    rows: ClassVar[None] = None

    build_rows: int

    @property
    def starts(self) -> RowIds:
        """One range of all rows."""
        return freeze(np.array([0, self.build_rows], dtype=row_id_dtype(self.build_rows)))

    @property
    def distinct(self) -> int:
        """1: all rows count as one key."""
        return 1

    def lookup(self, keys: NormalisedKeys) -> Matches:
        """Return the full range for each of `keys.length` probe rows."""
        n = keys.length
        has_rows = self.build_rows > 0
        dtype = row_id_dtype(self.build_rows)
        first = np.full(n, 0 if has_rows else -1, dtype=dtype)
        counts = np.full(n, self.build_rows, dtype=dtype)
        return Matches(freeze(first), freeze(counts), None, n if has_rows else 0, n * self.build_rows)
