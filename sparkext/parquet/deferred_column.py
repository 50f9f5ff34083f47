"""A column whose values are read on first access."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.columns.row_ids import RowIds


class DeferredColumn:
    """A column of a morsel that is read when its values are first accessed."""

    def __init__(self, load: Callable[[], pa.Array]) -> None:
        """Bind it to the function that reads the column."""
        self._load = load
        self._loaded: Column | None = None
        self._turn = Lock()

    @property
    def _column(self) -> Column:
        with self._turn:  # one lock per column: `cached_property` has one for all, and threads read several columns
            if self._loaded is None:
                self._loaded = Column.of(self._load())
            return self._loaded

    @property
    def most_row_bytes(self) -> float:
        """Maximum bytes of a gathered row."""
        return self._column.most_row_bytes

    @property
    def fits_batch(self) -> bool:
        """Whether the whole column fits one batch."""
        return self._column.fits_batch

    def add_sizes(self, rows: RowIds, missing: bool, sizes: Int64Array) -> None:
        """Add to `sizes` the bytes that each of `rows` has when it is gathered."""
        self._column.add_sizes(rows, missing, sizes)

    def take(self, rows: RowIds | None, missing: bool) -> pa.Array:
        """Return the column at `rows` (see `Column.take`)."""
        return self._column.take(rows, missing)
