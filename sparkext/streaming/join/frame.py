"""The streaming DataFrame of a join: blocks of both sides, joined in partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.plans.shuffle.fragments import LEFT, RIGHT
from sparkext.shuffle.blocks import DDL, FRAMES
from sparkext.spark.frames import map_in_arrow
from sparkext.spark.partition_keys import find_partition_keys
from sparkext.spark.session_settings import count_tasks_per_executor
from sparkext.spark.worker_python import run_in_workers
from sparkext.streaming.frames import count_partitions, create_ticks, name_column
from sparkext.streaming.join.description import PROGRESS_FIELDS
from sparkext.streaming.join.description_of import describe_join, require_event_time
from sparkext.streaming.join.join_task import StreamJoinTask
from sparkext.streaming.join.send_task import PartitionIdsTask, StreamJoinSendTask
from sparkext.streaming.progress import PROGRESS, add_progress_column, remove_progress_rows
from sparkext.streaming.state.checkpoints import report_checkpoints

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkext.joins.resolved_join import ResolvedJoin
    from sparkext.streaming.arguments import JoinedStreams
    from sparkext.streaming.state.stream_state import StoredSide


def create_join_frame(
    streams: JoinedStreams,
    resolved: ResolvedJoin,
    sides: tuple[StoredSide, StoredSide],
    name: str | None,
    *details: str,
    task: type[StreamJoinTask] = StreamJoinTask,
) -> DataFrame:
    """Return the rows of a join of two streams, as columns `c0`, `c1`, … (see `name_column`).

    `details` are further parts of the join's fingerprint: joins with the same columns that differ otherwise must not
    share a state.
    """
    left, right = streams.left, streams.right
    session = left.sparkSession
    partitions = count_partitions(session)
    retention = ", ".join("for ever" if side.retained is None else f"{side.retained} µs" for side in sides)
    inputs = f"{left.schema.simpleString()} and {right.schema.simpleString()}, kept {retention}"
    made_by = ", ".join([f"{resolved.spec.label} of {inputs}", *details])
    tasks = count_tasks_per_executor(session)
    join = describe_join(resolved, sides, partitions, streams.settings, tasks, made_by, name)
    report_checkpoints(session)
    keys = find_partition_keys(partitions)
    blocks = [
        map_in_arrow(frame, StreamJoinSendTask(join, side, keys), DDL) for side, frame in enumerate((left, right))
    ]
    all_blocks = blocks[LEFT].unionAll(blocks[RIGHT])
    if join.waits:
        time = left.columns[require_event_time(sides[LEFT])]
        all_blocks = all_blocks.unionAll(map_in_arrow(create_ticks(left, time), PartitionIdsTask(join, keys), DDL))
    fields = [output.field for output in resolved.outputs]
    output_schema = add_progress_column(fields, PROGRESS_FIELDS)
    names = [name_column(number) for number in range(len(fields))]
    joined = run_in_workers(all_blocks.repartition(partitions, FRAMES.names[0]), task(join), output_schema).toDF(
        *names, PROGRESS
    )
    return remove_progress_rows(joined, PROGRESS_FIELDS, join.metrics)


def restore_names(resolved: ResolvedJoin) -> list[Column]:
    """Return the columns of `create_join_frame` under the names of the result."""
    from pyspark.sql import functions as F

    return [F.col(name_column(number)).alias(output.field.name) for number, output in enumerate(resolved.outputs)]
