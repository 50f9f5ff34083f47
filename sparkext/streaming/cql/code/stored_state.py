"""The state of an engine as bytes: an Arrow stream of one row, two arrays, with a header in JSON.

header   {"format": 1, "words": n, "texts": m}, the metadata of the schema
arena    int64[n]: all words before the first one that was never used (`sparkext.kernels.arena`)
texts    the texts to which codes in the arena refer, in the order of their codes
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from sparkext.errors import StateError
from sparkext.kernels.columns.buffers import Int64Array

_FORMAT = 1
_HEADER = b"sparkext.cql"
_COLUMNS = pa.schema([("arena", pa.large_list(pa.int64())), ("texts", pa.large_list(pa.large_string()))])


def write_state(arena: Int64Array, texts: pa.Array) -> bytes:
    """Return a state as bytes; `texts` is a large_string array."""
    header = {"format": _FORMAT, "words": arena.size, "texts": len(texts)}
    schema = _COLUMNS.with_metadata({_HEADER: json.dumps(header)})
    columns = [pa.LargeListArray.from_arrays([0, len(values)], values) for values in (pa.array(arena), texts)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return bytes(sink.getvalue())


def read_state(stored: bytes) -> tuple[Int64Array, pa.Array]:
    """Return the arena and the texts that `write_state` has written.

    Raises
    ------
    StateError
        The bytes are no such state, or have another format.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(stored)) as reader:
            header = json.loads((reader.schema.metadata or {}).get(_HEADER, b"{}"))
            row = reader.read_next_batch()
        row.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration, ValueError) as error:
        raise _create_state_error(str(error)) from error
    if row.schema != _COLUMNS or row.num_rows != 1 or any(column.null_count for column in row.columns):
        raise _create_state_error("its columns are not the expected columns")
    arena, texts = (column[0].values for column in row.columns)
    if header != {"format": _FORMAT, "words": len(arena), "texts": len(texts)}:
        raise _create_state_error(f"its header {header} is not the expected header")
    if arena.null_count or not len(arena) or arena[0].as_py() != len(arena):
        raise _create_state_error("its first word is not its number of words")
    return np.asarray(arena), texts


def _create_state_error(problem: str) -> StateError:
    return StateError(
        f"the state of continuous queries cannot be read: {problem}. Restore the checkpoint, or start with a new"
        " checkpoint"
    )
