"""A join index as a file: its flat arrays, mapped back read-only by every worker of the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa

from sparkext.container import ContainerWriter, read_footer
from sparkext.errors import BuildFileError
from sparkext.kernels.all_rows_index import AllRowsIndex
from sparkext.kernels.dense_index import DenseIndex
from sparkext.kernels.hash_index import HashIndex
from sparkext.kernels.index import JoinIndex
from sparkext.kernels.jit import AnyArray
from sparkext.kernels.keys import KeyBounds, KeyRanges
from sparkext.kernels.ordered_index import OrderedIndex
from sparkext.kernels.range_index import RangeIndex

AnyIndex = JoinIndex | RangeIndex

_KINDS: Mapping[str, type[AnyIndex]] = {
    index.kind: index for index in (AllRowsIndex, DenseIndex, HashIndex, OrderedIndex, RangeIndex)
}


@dataclass(frozen=True)
class IndexInfo:
    """What the report says of an index: its kind and why, its size, and the seconds that its builder took.

    And what its users have to know. `key_ranges`: how keys are packed (see `keys.encode_keys`).
    `key_bounds`: the smallest and the largest value of each key column, see `keys.key_bounds`.
    `clustered`: the payload is to be gathered from copies of the columns in the order of keys (`index.rows`).
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


def write_index_file(index: AnyIndex, info: IndexInfo, stream: IO[bytes]) -> None:
    """Write all arrays of the index."""
    writer = ContainerWriter(stream)
    arrays: list[dict[str, Any]] = []
    for name, array in index.arrays.items():
        offset, _ = writer.block(partial(_write_array, array))
        arrays.append({"name": name, "dtype": array.dtype.str, "count": array.size, "offset": offset})
    writer.finish({"arrays": arrays, "attributes": index.attributes, "info": vars(info)})


def read_index_file(buffer: pa.Buffer, origin: str) -> tuple[AnyIndex, IndexInfo]:
    """Return the index around the mapped arrays, without copying.

    Raises:
        BuildFileError: the file is truncated, damaged or of another version.
    """
    footer = read_footer(buffer, origin)
    arrays = {
        entry["name"]: np.frombuffer(buffer, entry["dtype"], entry["count"], entry["offset"])
        for entry in footer["arrays"]
    }
    info = IndexInfo(**footer["info"])
    if info.kind not in _KINDS:
        raise BuildFileError(f"{origin}: unknown index kind {info.kind!r}")
    return _KINDS[info.kind].from_arrays(arrays, footer["attributes"]), info


def _write_array(array: AnyArray, sink: IO[bytes]) -> None:
    if array.size:
        sink.write(pa.py_buffer(array))
