"""A column whose values are read when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import pyarrow as pa

from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.gather import Column
from sparkext.kernels.row_ids import RowIds


class DeferredColumn:
    """A column of a morsel that is read when its values are first asked for."""

    def __init__(self, load: Callable[[], pa.Array]) -> None:
        """Remember how to read it."""
        self._load = load
        self._loaded: Column | None = None
        self._turn = Lock()

    @property
    def _column(self) -> Column:
        with self._turn:  # one for each column: that of `cached_property` is one for all, and threads read several
            if self._loaded is None:
                self._loaded = Column.of(self._load())
            return self._loaded

    @property
    def most_row_bytes(self) -> float:
        """Bytes that no row exceeds when it is gathered."""
        return self._column.most_row_bytes

    @property
    def fits_batch(self) -> bool:
        """Whether one batch holds all of it."""
        return self._column.fits_batch

    def add_sizes(self, rows: RowIds, missing: bool, sizes: Int64Array) -> None:
        """Add to `sizes` the bytes that each of `rows` takes when it is gathered."""
        self._column.add_sizes(rows, missing, sizes)

    def take(self, rows: RowIds | None, missing: bool) -> pa.Array:
        """Return the column at `rows` (see `Column.take`)."""
        return self._column.take(rows, missing)
