"""The states of operator keys: looked up in earlier batches, and stored with the batch that changed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sparkext.errors import StateError
from sparkext.kernels.columns.gather import MAX_VAR_BYTES
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import conform
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.stream_state import StoredSide


@dataclass
class KeyStates:
    """The states of the operator keys of one partition.

    - `stored`: the stored form of states (see `OrderedRows.states`).
    - `key_types`: the types in which keys are compared.
    - `batch`: the number of the current batch, which serves as the time of a state.
    - `lookup`, `runs`: look up the stored runs of states; None if nothing is stored.
    """

    stored: StoredSide
    key_types: tuple[str, ...]
    batch: int
    lookup: RunLookup | None
    runs: Sequence[RunRows]
    _keys: list[pa.Array] = field(default_factory=list)
    _new_states: list[bytes | None] = field(default_factory=list)

    def load(self, keys: list[pa.Array]) -> list[bytes | None]:
        """Return the latest encoded state of each key, None for a new key."""
        count = len(keys[0])
        states: list[bytes | None] = [None] * count
        if self.lookup is None or not self.runs or not count:
            return states
        probe = pa.Table.from_arrays(
            [*keys, pa.array(np.arange(count))], names=[*(f"k{n}" for n in range(len(keys))), "number"]
        )
        pairs = tuple(KeyPair(ColumnRef(PROBE, n), n, kind, True) for n, kind in enumerate(self.key_types))
        outputs = (
            ColumnRef(PROBE, len(keys)),
            ColumnRef(PROBE + 1, len(keys)),
            ColumnRef(PROBE + 1, len(keys) + 1),
        )
        spec = PipelineSpec(len(keys) + 1, (JoinSpec("inner", pairs, "auto", "states"),), outputs)
        schema = pa.schema([("number", pa.int64()), *(self.stored.rows.field(len(keys) + n) for n in range(2))])
        latest = np.full(count, -1, np.int64)
        for run in self.runs:
            if run.info.rows:
                for batch in self.lookup.found(spec, schema, probe, run):
                    state_batches = convert_to_microseconds(batch.column(2))
                    for row, number in enumerate(batch.column(0).to_pylist()):
                        if state_batches[row] > latest[number]:
                            latest[number] = state_batches[row]
                            states[number] = batch.column(1)[row].as_py()
        return states

    def change(self, keys: list[pa.Array], states: list[bytes | None]) -> None:
        """Set the new states of some keys, encoded."""
        self._keys, self._new_states = keys, states

    def changed(self, bucket: int) -> pa.Table:
        """Return the states to store for this batch, with `bucket` as their bucket.

        Raises
        ------
        StateError
            A state exceeds the maximum size of a binary value.
        """
        schema = self.stored.schema
        if not self._keys:
            return schema.empty_table()
        count = len(self._new_states)
        largest = max((len(state or b"") for state in self._new_states), default=0)
        if largest > MAX_VAR_BYTES:
            raise StateError(
                f"the state of a key has {largest} bytes: at most {MAX_VAR_BYTES} can be stored. Use smaller windows,"
                " or store less in the state"
            )
        batch = pa.array([self.batch] * count, pa.int64()).cast(pa.timestamp("us"))
        columns = [*self._keys, pa.array(self._new_states, pa.binary()), batch, pa.array([bucket] * count, pa.uint16())]
        columns = [conform(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)
