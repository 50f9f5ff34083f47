"""A join of two streams, as all of its tasks know it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkext.config import Settings
from sparkext.exchange.partitioning import Partitioning
from sparkext.plans.fragments import LEFT, first_cut
from sparkext.state.join_state import JoinState, MatchedRows, StoredSide
from sparkext.worker.micro_batch import MicroBatch

FOLDER = "sparkext"
"""Of a checkpoint, where the state lies."""

PROGRESS = "__sparkext"
"""The last column of what tasks emit: null, but in the one row in which a task tells what its batch was."""

PROGRESS_FIELDS = ("left_rows", "right_rows", "matches", "state_rows", "state_bytes", "segments", "units")
"""Rows that have come of each side, pairs that have come out; what is kept behind the batch; units of the matrix."""


@dataclass(frozen=True)
class StreamJoin:
    """What joins two streams.

    `name` is that of its state, `made_by` tells what it is, and `token` this very join from others that are the same.
    `sides` are the rows of both, `keys` how their lines follow from the columns that have to be equal, if there are
    any. `specs` say how rows of the left side look those of the right one up, and the other way round; they number the
    columns of a side as `sides` do. `slots` are the tasks of a batch that join.
    `how`: `inner`, `left` or `semi`. Behind what `specs` emit of the latter two are the hidden columns of the left row.
    `blank` says of each column of the result which one of the left side it is, None if it is of the right side.
    """

    name: str
    made_by: str
    token: str
    sides: tuple[StoredSide, StoredSide]
    keys: tuple[Partitioning, Partitioning] | None
    specs: tuple[str, str]
    output_schema: pa.Schema
    slots: int
    settings: Settings
    tasks_sharing: int | None
    how: str = "inner"
    blank: tuple[int | None, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether it has to be known which rows of the left side have matched."""
        return self.how != "inner"

    @property
    def matched(self) -> MatchedRows:
        """How it is stored which rows have matched."""
        return MatchedRows.of(self.sides[LEFT])

    def state(self, batch: MicroBatch) -> JoinState:
        """Return the state before a batch.

        Raises
        ------
        StateError
            It is lost, damaged or another join's.
        """
        first = first_cut(self.slots, keyed=self.keys is not None, whole_right=self.decides)
        return JoinState(batch.checkpoint / FOLDER / self.name, batch.number, batch.run, first, self.made_by)
