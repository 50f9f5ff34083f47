"""The states of operator keys: looked up in earlier batches, and stored with the batch that changed them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sparkext.errors import StateError
from sparkext.kernels.columns.gather import MAX_VAR_BYTES
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import conform
from sparkext.streaming.ordered.description import OrderedRows
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows


class KeyStates:
    """The states of one partition. `batch` is the number of the current batch, which serves as the time of a state."""

    def __init__(self, ordered: OrderedRows, batch: int) -> None:
        """Begin without states."""
        self._ordered, self._batch = ordered, batch
        self._keys: list[pa.Array] = []
        self._after: list[bytes | None] = []

    def _states(self, keys: list[pa.Array], lookup: RunLookup | None, known: Sequence[RunRows]) -> list[bytes | None]:
        """Return the latest encoded state of each key, None for a new key."""
        count = len(keys[0])
        states: list[bytes | None] = [None] * count
        if lookup is None or not known or not count:
            return states
        stored = self._ordered.states
        probe = pa.Table.from_arrays(
            [*keys, pa.array(np.arange(count))], names=[*(f"k{n}" for n in range(len(keys))), "number"]
        )
        pairs = tuple(KeyPair(ColumnRef(PROBE, n), n, kind, True) for n, kind in enumerate(self._ordered.key_types))
        outputs = (
            ColumnRef(PROBE, len(keys)),
            ColumnRef(PROBE + 1, len(keys)),
            ColumnRef(PROBE + 1, len(keys) + 1),
        )
        spec = PipelineSpec(len(keys) + 1, (JoinSpec("inner", pairs, "auto", "states"),), outputs)
        found = pa.schema([("number", pa.int64()), *(stored.rows.field(len(keys) + n) for n in range(2))])
        last = np.full(count, -1, np.int64)
        for run in known:
            if run.info.rows:
                for batch in lookup.found(spec, found, probe, run):
                    of_batch = convert_to_microseconds(batch.column(2))
                    for place, number in enumerate(batch.column(0).to_pylist()):
                        if of_batch[place] > last[number]:
                            last[number] = of_batch[place]
                            states[number] = batch.column(1)[place].as_py()
        return states

    def changed(self, bucket: int) -> pa.Table:
        """Return the states to store for this batch, with `bucket` as their bucket.

        Raises
        ------
        StateError
            A state exceeds the maximum size of a binary value.
        """
        schema = self._ordered.states.schema
        if not self._keys:
            return schema.empty_table()
        count = len(self._after)
        largest = max((len(state or b"") for state in self._after), default=0)
        if largest > MAX_VAR_BYTES:
            raise StateError(
                f"the state of a key has {largest} bytes: at most {MAX_VAR_BYTES} can be stored. Use smaller windows,"
                " or store less in the state"
            )
        batch = pa.array([self._batch] * count, pa.int64()).cast(pa.timestamp("us"))
        columns = [*self._keys, pa.array(self._after, pa.binary()), batch, pa.array([bucket] * count, pa.uint16())]
        columns = [conform(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)
