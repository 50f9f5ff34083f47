"""A join of two streams, as all of its tasks know it."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pyarrow as pa

from sparkext.config import Settings
from sparkext.exchange.partitioning import Partitioning
from sparkext.plans.fragments import LEFT, RIGHT, first_cut
from sparkext.plans.spec import ColumnRef
from sparkext.reports.stream_batches import JoinedBatch, metrics_name
from sparkext.state.stream_state import MatchedRows, StoredSide, StreamState
from sparkext.worker.micro_batch import MicroBatch
from sparkext.worker.worker_task import MemoryShare, WorkerTask

FOLDER = "sparkext"
"""Of a checkpoint, where the state lies."""

_SIDES = ("left", "right", "matched")

PROGRESS = "__sparkext"
"""The last column of what tasks emit: null, but in the one row in which a task tells what its batch was."""

PROGRESS_FIELDS = tuple(told.name for told in fields(JoinedBatch))
"""The fields of that column."""


@dataclass(frozen=True)
class StreamJoin:
    """What joins two streams.

    `name` is that of its state (`is_named`: the user's), `made_by` tells what it is, and `token` this very join from
    others that are the same.
    `sides` are the rows of both, `keys` how their lines follow from the columns that have to be equal, if there are
    any. `specs` say how rows of the left side look those of the right one up, and the other way round; they number the
    columns of a side as `sides` do. `slots` are the tasks of a batch that join.
    `outputs` says of each column of the result which one of which side it is.
    `how`: `inner`, `left` or `semi`. Behind what `specs` emit of the latter two are the hidden columns of the left row.
    An as-of join has one of `specs`: what rows of the left side find, their places last; and the right side an order.
    """

    name: str
    is_named: bool
    made_by: str
    token: str
    sides: tuple[StoredSide, StoredSide]
    keys: tuple[Partitioning, Partitioning] | None
    specs: tuple[str, ...]
    output_schema: pa.Schema
    slots: int
    settings: Settings
    tasks_sharing: int | None
    outputs: tuple[ColumnRef, ...]
    how: str = "inner"

    @property
    def metrics(self) -> str:
        """What its observed metrics are called. Spark refuses two of a name, but says less than who claims a state."""
        return metrics_name(self.name, self.is_named, self.token)

    @property
    def is_as_of(self) -> bool:
        """Whether only the nearest row of the right side matches."""
        return self.sides[RIGHT].order is not None

    @property
    def decides(self) -> bool:
        """Whether it has to be known which rows of the left side have matched."""
        return self.how != "inner" and not self.is_as_of

    @property
    def waits(self) -> bool:
        """Whether rows come out when their time is over."""
        return self.how == "left" or self.is_as_of

    @property
    def keeps_right_whole(self) -> bool:
        """Whether one unit has to have all that a row of the left side may match."""
        return self.how != "inner" or self.is_as_of

    @property
    def matched(self) -> MatchedRows:
        """How it is stored which rows have matched."""
        return MatchedRows.of(self.sides[LEFT])

    def state(self, batch: MicroBatch) -> StreamState:
        """Return the state before a batch.

        Raises
        ------
        StateError
            It is lost, damaged or another join's.
        """
        first = first_cut(self.slots, keyed=self.keys is not None, whole_right=self.keeps_right_whole)
        folder = batch.checkpoint / FOLDER / self.name
        return StreamState(folder, _SIDES, batch.number, batch.run, first, self.made_by)


@dataclass(frozen=True)
class StreamTask(WorkerTask):
    """A task of a join of streams, with the settings of the join."""

    join: StreamJoin

    @property
    def share(self) -> MemoryShare:
        """The join's share."""
        return MemoryShare(self.join.settings, self.join.tasks_sharing)
