"""The description of a join of two streams, which all of its tasks receive."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pyarrow as pa

from sparkext.engine.worker_task import MemoryShare, WorkerTask
from sparkext.plans.pipeline.spec import ColumnRef, PipelineSpec
from sparkext.plans.shuffle.fragments import LEFT, RIGHT, choose_first_shape
from sparkext.reports.stream_batches import JoinedBatch
from sparkext.shuffle.partitioning import Partitioning
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.stream_state import MatchedRows, StoredSide, StreamState
from sparkext.streaming.stream_operator import StreamOperator

_SIDES = ("left", "right", "matched")

PROGRESS_FIELDS = tuple(counter.name for counter in fields(JoinedBatch))
"""The fields of the progress column."""


@dataclass(frozen=True)
class StreamJoin(StreamOperator):
    """A join of two streams.

    - `sides`: the stored columns of both sides.
    - `keys`: the partitionings of both sides by the columns compared for equality, None without such columns.
    - `specs`: the pipelines that look up left rows in the right side, and right rows in the left side. Column numbers
      refer to `sides`.
    - `outputs`: the side and column of each result column.
    - `how`: `inner`, `left` or `semi`. For the latter two, the hidden columns of the left row follow the output of
      `specs`.

    An as-of join has a single spec, which looks up left rows; the position of the left row is its last output column.
    The right side of an as-of join has an order.
    """

    sides: tuple[StoredSide, StoredSide]
    keys: tuple[Partitioning, Partitioning] | None
    specs: tuple[PipelineSpec, ...]
    output_schema: pa.Schema
    outputs: tuple[ColumnRef, ...]
    how: str = "inner"

    @property
    def is_as_of(self) -> bool:
        """Whether a left row matches only the nearest right row."""
        return self.sides[RIGHT].order is not None

    @property
    def decides(self) -> bool:
        """Whether the matched rows of the left side have to be recorded."""
        return self.how != "inner" and not self.is_as_of

    @property
    def waits(self) -> bool:
        """Whether left rows are emitted when they expire."""
        return self.how == "left" or self.is_as_of

    @property
    def keeps_right_whole(self) -> bool:
        """Whether all right rows that a left row may match have to be in one unit."""
        return self.how != "inner" or self.is_as_of

    @property
    def matched(self) -> MatchedRows:
        """The stored form of the matched rows."""
        return MatchedRows.of(self.sides[LEFT])

    def state(self, batch: MicroBatch) -> StreamState:
        """Return the state before a batch.

        Raises
        ------
        StateError
            The state is missing, damaged or belongs to another join.
        """
        first_shape = choose_first_shape(
            self.partitions, keyed=self.keys is not None, whole_right=self.keeps_right_whole
        )
        folder = batch.state_folder(self.name)
        return StreamState(folder, _SIDES, batch.number, batch.run, first_shape, self.made_by)


@dataclass(frozen=True)
class StreamTask(WorkerTask):
    """A task of a join of two streams, with the settings of the join."""

    join: StreamJoin

    @property
    def share(self) -> MemoryShare:
        """The memory share of the join."""
        return self.join.share
