"""The streaming query of a task: the batch, the run of the query, and the location of its checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sparkext.errors import StateError
from sparkext.streaming.state.places import Location, resolve_location

CHECKPOINT = "spark.sparkext.checkpoint"
RUN = "spark.sparkext.run"
"""Local properties that the driver sets when a query starts, see `sparkext.streaming.state.checkpoints`."""

SECRETS = "spark.sparkext.checkpoint.secret"
"""A local property that is only set if the checkpoint is in a bucket: the settings for access by workers, as JSON.

It may contain credentials. Spark's event log redacts a property of this name (`spark.redaction.regex`).
"""

_FOLDER = "sparkext"
_BATCH = "streaming.sql.batchId"  # Spark's own property
RETAINED = "spark.sql.streaming.minBatchesToRetain"
RETAINED_BY_DEFAULT = 100
"""Number of batches by which a query may be reset. Tasks receive Spark's setting only if it is set explicitly."""


@dataclass(frozen=True)
class MicroBatch:
    """A batch of a streaming query."""

    checkpoint: Location
    number: int
    run: str
    retained: int

    @classmethod
    def of_this_task(cls) -> MicroBatch:
        """Return the batch of the current task.

        Raises
        ------
        StateError
            The task belongs to no streaming query, or workers cannot access the checkpoint.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        checkpoint, number, run = (
            None if context is None else context.getLocalProperty(key) for key in (CHECKPOINT, _BATCH, RUN)
        )
        if checkpoint is None or number is None or run is None:
            raise StateError(
                "this task belongs to no streaming query: start joins of streams and ordered streams by writeStream, in"
                " the session that created them"
            )
        assert context is not None, "it has properties"
        s3a: dict[str, str] = json.loads(context.getLocalProperty(SECRETS) or "{}")
        retained = int(context.getLocalProperty(RETAINED) or RETAINED_BY_DEFAULT)
        return cls(resolve_location(checkpoint, s3a), int(number), run, retained)

    def state_folder(self, name: str) -> Location:
        """Return the folder in the checkpoint that contains the state of the operator `name`."""
        return self.checkpoint / _FOLDER / name

    def watermark(self) -> int:
        """Return the watermark for the rows of this batch, in µs since 1970, stored by the batch before.

        Rows up to the watermark are late, as their possible matches have been dropped.
        """
        return 0 if self.number == 0 else self._watermark(self.number - 1)

    def next_watermark(self) -> int:
        """Return the watermark for the rows of the next batch, in µs. Spark determines it before this batch runs."""
        return self._watermark(self.number)

    def _watermark(self, batch: int) -> int:
        offsets = self.checkpoint / "offsets" / str(batch)
        try:
            lines = offsets.text().splitlines()
            return int(json.loads(lines[1])["batchWatermarkMs"]) * 1000
        except (OSError, LookupError, ValueError) as error:
            raise StateError(f"the watermark of batch {batch} cannot be read from {offsets}: {error}") from error
