"""A join index as a file: its flat arrays, and optionally the build side's columns; every worker maps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa

from sparkext.build_sides.file import read_column, write_column
from sparkext.errors import BuildFileError
from sparkext.kernels.indexes.all_rows_index import AllRowsIndex
from sparkext.kernels.indexes.dense_index import DenseIndex
from sparkext.kernels.indexes.hash_index import HashIndex
from sparkext.kernels.indexes.key_set import KeySet
from sparkext.kernels.indexes.ordered_index import OrderedIndex
from sparkext.kernels.indexes.protocols import JoinIndex
from sparkext.kernels.indexes.range_index import RangeIndex
from sparkext.kernels.keys.normalised import KeyBounds, KeyRanges
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.storage.container import ContainerWriter, read_footer

AnyIndex = JoinIndex | RangeIndex

_KINDS: Mapping[str, type[AnyIndex]] = {
    index.kind: index for index in (AllRowsIndex, DenseIndex, HashIndex, KeySet, OrderedIndex, RangeIndex)
}


@dataclass(frozen=True)
class IndexInfo:
    """Description of an index for reports: its type and the reason, its size, and the seconds spent by its builder.

    The following fields are for users of the index. `key_ranges`: how keys are packed (see `keys.normalise_keys`).
    `key_bounds`: the smallest and the largest value of each key column, see `keys.key_bounds`. `clustered`: the columns
    stored with the index are copies in key order (`index.rows`). `made_by`, for reports: a line for each pipeline that
    has derived the build side, innermost first.
    """

    kind: str
    reason: str
    bytes: int
    build_rows: int
    seconds: float
    build_bytes: int = 0
    key_ranges: KeyRanges | None = None
    key_bounds: KeyBounds = ()
    clustered: bool = False
    made_by: Sequence[str] = ()


def write_index_file(
    index: AnyIndex,
    info: IndexInfo,
    stream: IO[bytes],
    columns: Iterable[tuple[int, pa.Array | pa.ChunkedArray]] | None = None,
) -> None:
    """Write all arrays of the index, and columns of the build side by index, unless they are in another file."""
    writer = ContainerWriter(stream)
    locations = None
    if columns is not None:
        locations = [{"number": number, **write_column(writer, column)} for number, column in columns]
    arrays: list[dict[str, Any]] = []
    for name, array in index.arrays.items():
        offset, _ = writer.block(partial(_write_array, array))
        arrays.append({"name": name, "dtype": array.dtype.str, "count": array.size, "offset": offset})
    writer.finish({"arrays": arrays, "attributes": index.attributes, "info": vars(info), "columns": locations})


def read_index_file(buffer: pa.Buffer, origin: str) -> tuple[AnyIndex, IndexInfo, dict[int, pa.Array] | None]:
    """Return the index over the mapped arrays, and the stored columns by index, if any, without copying.

    Raises
    ------
    BuildFileError
        The file is truncated, damaged or of another version.
    """
    footer = read_footer(buffer, origin)
    arrays = {
        entry["name"]: np.frombuffer(buffer, entry["dtype"], entry["count"], entry["offset"])
        for entry in footer["arrays"]
    }
    info = IndexInfo(**footer["info"])
    if info.kind not in _KINDS:
        raise BuildFileError(f"{origin}: unknown index kind {info.kind!r}")
    locations = footer["columns"]
    columns = (
        None if locations is None else {location["number"]: read_column(buffer, location) for location in locations}
    )
    return _KINDS[info.kind].from_arrays(arrays, footer["attributes"]), info, columns


def _write_array(array: AnyArray, sink: IO[bytes]) -> None:
    if array.size:
        sink.write(pa.py_buffer(array))
