"""The streaming DataFrame of a join: both sides as cells, which meet in slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkext.plans.fragments import LEFT, RIGHT
from sparkext.spark.frames import map_in_arrow, quoted
from sparkext.spark.session_settings import parallelism, tasks_per_executor
from sparkext.spark.slot_keys import slot_keys
from sparkext.spark.stream_queries import tell_checkpoints
from sparkext.spark.worker_python import run_in_workers
from sparkext.streams.planned import event_time, planned_join
from sparkext.worker.micro_batch import CHECKPOINT, RUN, SECRETS
from sparkext.worker.stream_cells_task import COLUMNS, DDL, SlotNumbersTask, StreamCellsTask
from sparkext.worker.stream_join import PROGRESS, PROGRESS_FIELDS
from sparkext.worker.stream_join_task import StreamJoinTask

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    from sparkext.config import Settings
    from sparkext.state.stream_state import StoredSide
    from sparkext.transforms.resolved_join import ResolvedJoin


def joined_frame(
    left: DataFrame,
    right: DataFrame,
    resolved: ResolvedJoin,
    sides: tuple[StoredSide, StoredSide],
    settings: Settings,
    name: str | None,
    *told: str,
) -> DataFrame:
    """Return what a join of two streams emits, as columns `c0`, `c1`, … (see `place`).

    `told`: what else makes it another join than one of the same columns. State is of one join only.
    """
    session = left.sparkSession
    slots = slots_of(session)
    kept = ", ".join("for ever" if side.retained is None else f"{side.retained} µs" for side in sides)
    of = f"{left.schema.simpleString()} and {right.schema.simpleString()}, kept {kept}"
    made_by = ", ".join([f"{resolved.spec.label} of {of}", *told])
    tasks = tasks_per_executor(session)
    join = planned_join(resolved, sides, slots, settings, tasks, made_by, name)
    tell_checkpoints(session, CHECKPOINT, RUN, SECRETS)
    keys = slot_keys(slots)
    cells = [map_in_arrow(frame, StreamCellsTask(join, side, keys), DDL) for side, frame in enumerate((left, right))]
    both = cells[LEFT].unionAll(cells[RIGHT])
    if join.waits:
        time = left.columns[event_time(sides[LEFT])]
        both = both.unionAll(map_in_arrow(ticks(left, time), SlotNumbersTask(join, keys), DDL))
    fields = [output.field for output in resolved.outputs]
    emitted = with_progress(fields, PROGRESS_FIELDS)
    places = [place(number) for number in range(len(fields))]
    joined = run_in_workers(both.repartition(slots, COLUMNS[0]), StreamJoinTask(join), emitted).toDF(*places, PROGRESS)
    return without_progress(joined, PROGRESS_FIELDS, join.metrics)


def slots_of(session: SparkSession) -> int:
    """Return how many tasks of a batch have a state each: as many as run at a time, or partitions of a shuffle."""
    return max(1, min(int(session.conf.get("spark.sql.shuffle.partitions") or "1"), parallelism(session)))


def with_progress(fields: Sequence[StructField], told: Sequence[str]) -> StructType:
    """Return the columns that tasks emit: `fields`, and one in which they tell numbers of these names."""
    from pyspark.sql.types import LongType, StructField, StructType

    progress = StructType([StructField(name, LongType()) for name in told])
    return StructType([*fields, StructField(PROGRESS, progress)])


def without_progress(frame: DataFrame, told: Sequence[str], metrics: str | None) -> DataFrame:
    """Return the rows that are no progress, whose sums Spark observes under the name `metrics`, if there is one."""
    from pyspark.sql import functions as F

    if metrics is not None:
        frame = frame.observe(metrics, *(F.sum(f"{PROGRESS}.{name}").alias(name) for name in told))
    return frame.where(F.col(PROGRESS).isNull()).drop(PROGRESS)


def named(resolved: ResolvedJoin) -> list[Column]:
    """Return the columns of `joined_frame` under the names of the result."""
    from pyspark.sql import functions as F

    return [F.col(place(number)).alias(output.field.name) for number, output in enumerate(resolved.outputs)]


def place(number: int) -> str:
    """Return what `joined_frame` calls a column: those of the result may have any names."""
    return f"c{number}"


def ticks(frame: DataFrame, time: str) -> DataFrame:
    """Return no rows, of an operator with state: for such a one Spark runs a batch when the watermark has moved."""
    from pyspark.sql import functions as F

    return frame.select(F.col(quoted(time)).alias("time")).where(F.rand() < -1).dropDuplicates(["time"])
