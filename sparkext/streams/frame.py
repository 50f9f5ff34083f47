"""The streaming DataFrame of a join: both sides as cells, which meet in slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.plans.fragments import LEFT, RIGHT
from sparkext.spark.frames import map_in_arrow, quoted
from sparkext.spark.session_settings import parallelism
from sparkext.spark.slot_keys import slot_keys
from sparkext.spark.stream_queries import tell_checkpoints
from sparkext.streams.planned import event_time
from sparkext.worker.micro_batch import CHECKPOINT, RUN
from sparkext.worker.stream_cells_task import COLUMNS, DDL, SlotNumbersTask, StreamCellsTask
from sparkext.worker.stream_join import PROGRESS, PROGRESS_FIELDS, StreamJoin
from sparkext.worker.stream_join_task import StreamJoinTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from sparkext.state.join_state import StoredSide
    from sparkext.transforms.columns import OutputField


def slots_of(session: SparkSession) -> int:
    """Return how many tasks of a batch join."""
    return max(1, min(int(session.conf.get("spark.sql.shuffle.partitions") or "1"), parallelism(session)))


def described(left: DataFrame, right: DataFrame, sides: tuple[StoredSide, StoredSide]) -> str:
    """Tell two sides from others: state is of one join only."""
    kept = ", ".join("for ever" if side.retained is None else f"{side.retained} µs" for side in sides)
    return f"{left.schema.simpleString()} and {right.schema.simpleString()}, kept {kept}"


def joined_frame(left: DataFrame, right: DataFrame, join: StreamJoin, fields: Sequence[StructField]) -> DataFrame:
    """Return what a join of two streams emits, as columns `c0`, `c1`, … of these fields."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    tell_checkpoints(left.sparkSession, CHECKPOINT, RUN)
    keys = slot_keys(join.slots)
    cells = [map_in_arrow(frame, StreamCellsTask(join, side, keys), DDL) for side, frame in enumerate((left, right))]
    both = cells[LEFT].unionAll(cells[RIGHT])
    if join.waits:
        time = left.columns[event_time(join.sides[LEFT])]
        both = both.unionAll(map_in_arrow(_ticks(left, time), SlotNumbersTask(keys), DDL))
    progress = StructType([StructField(field, LongType()) for field in PROGRESS_FIELDS])
    emitted = StructType([*fields, StructField(PROGRESS, progress)])
    places = [place(number) for number in range(len(fields))]
    joined = both.repartition(join.slots, COLUMNS[0]).mapInArrow(StreamJoinTask(join), emitted).toDF(*places, PROGRESS)
    told = [F.sum(f"{PROGRESS}.{field}").alias(field) for field in PROGRESS_FIELDS]
    rows = joined.observe(join.metrics, *told).where(F.col(PROGRESS).isNull())
    return rows.drop(PROGRESS)


def named(outputs: Sequence[OutputField]) -> list[Column]:
    """Return the columns of `joined_frame` under the names of the result."""
    from pyspark.sql import functions as F

    return [F.col(place(number)).alias(output.field.name) for number, output in enumerate(outputs)]


def place(number: int) -> str:
    """Return what `joined_frame` calls a column: those of the result may have any names."""
    return f"c{number}"


def _ticks(frame: DataFrame, time: str) -> DataFrame:
    """Return no rows, of an operator with state: for such a one Spark runs a batch when the watermark has moved."""
    from pyspark.sql import functions as F

    return frame.select(F.col(quoted(time)).alias("time")).where(F.rand() < -1).dropDuplicates(["time"])
