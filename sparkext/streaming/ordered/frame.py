"""The DataFrame of an `ordered`: rows are sent in blocks to partitions.

Partitions with a part of a split order key send their results on to a partition that merges them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkext.config import Settings
from sparkext.plans.streams.order_table import OrderTable, create_first_table, distribute_keys, plan_next_table
from sparkext.shuffle.blocks import DDL
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import map_in_arrow, pick, quote_name
from sparkext.spark.partition_keys import find_partition_keys
from sparkext.spark.session_settings import count_tasks_per_executor
from sparkext.spark.worker_python import run_in_workers
from sparkext.streaming.frames import count_partitions, create_ticks, name_column
from sparkext.streaming.ordered.count_buckets_task import COUNTS_DDL, CountBucketsTask
from sparkext.streaming.ordered.description import ORDERED_FIELDS, OrderedRows
from sparkext.streaming.ordered.description_of import AppliedOperator, OrderColumns, describe_order
from sparkext.streaming.ordered.merge_task import MergeTask
from sparkext.streaming.ordered.order_task import SplitKeysTask, WholeKeysTask
from sparkext.streaming.ordered.send_task import OrderedSendTask
from sparkext.streaming.progress import PROGRESS, add_progress_column, remove_progress_rows
from sparkext.streaming.state.checkpoints import report_checkpoints
from sparkext.streaming.watermarks import MARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField


def create_order_frame(
    columns: OrderColumns,
    apply: AppliedOperator | None,
    settings: Settings,
    *,
    split: bool,
    late: str | None,
    name: str | None,
) -> DataFrame:
    """Return the rows in order, or the results of `apply`; see `ordered` for the other arguments."""
    from pyspark.sql import functions as F

    frame = columns.frame
    session = frame.sparkSession
    partitions = count_partitions(session)
    # A restart needs the same sources and stateful operators in Spark's plan, whatever the number of partitions.
    splits = split and (partitions > 1 or frame.isStreaming)
    ordered = describe_order(
        columns,
        apply,
        create_first_table(partitions),
        settings,
        count_tasks_per_executor(session),
        splits=splits,
        keeps_late=late is not None,
        name=name,
    )
    if apply is not None and (count := apply.operator.keys) is not None:
        # Keys are remainders of a hash, so they have similar numbers of rows.
        ordered = replace(ordered, table=distribute_keys(partitions, ordered.buckets_of(count).tolist()))
    elif not frame.isStreaming:
        ordered = replace(ordered, table=_assign_buckets(columns, ordered))
    if frame.isStreaming:
        report_checkpoints(session)
    keys = find_partition_keys(partitions)
    blocks = map_in_arrow(frame, OrderedSendTask(ordered, keys), DDL)
    if frame.isStreaming:
        tick = create_ticks(frame, frame.columns[columns.time])
        blocks = blocks.unionAll(map_in_arrow(tick, OrderedSendTask(ordered, keys), DDL))
    received = blocks.repartition(partitions, "partition")
    fields = list(frame.schema.fields[: columns.width] if apply is None else apply.schema.fields)
    result_fields = _add_late_column(fields, frame.schema.fields[: columns.width], late)
    output_schema = add_progress_column(result_fields, ORDERED_FIELDS)
    names = [name_column(number) for number in range(len(result_fields))]
    out = run_in_workers(received, WholeKeysTask(ordered), output_schema)
    if splits:
        results = run_in_workers(received, SplitKeysTask(ordered, keys), DDL).repartition(partitions, "partition")
        out = out.unionAll(run_in_workers(results, MergeTask(ordered), output_schema))
    out = remove_progress_rows(
        out.toDF(*names, PROGRESS), ORDERED_FIELDS, ordered.metrics if frame.isStreaming else None
    )
    metadata = [dict(field.metadata or {}) for field in result_fields]
    if apply is not None and frame.isStreaming:  # results have times of input rows, so the watermark holds for them
        metadata[apply.time][MARK] = frame.schema.fields[columns.time].metadata[MARK]
    outputs = [
        F.col(name_column(number)).alias(field.name, metadata=metadata[number])
        for number, field in enumerate(result_fields)
    ]
    return out.select(*outputs)


def _assign_buckets(columns: OrderColumns, ordered: OrderedRows) -> OrderTable:
    """Return the assignment of buckets for a DataFrame that is no stream. Runs a job that counts its rows."""
    if ordered.partitions == 1:
        return ordered.table
    if not columns.orders:  # all rows are in one bucket
        return replace(ordered.table, merged={0: 0}) if ordered.splits else ordered.table
    keys = replace(ordered.order_keys, key_columns=tuple(range(len(columns.orders))))
    schema = arrow_schema(columns.frame.select(*(quote_name(columns.frame.columns[n]) for n in columns.orders)).schema)
    task = CountBucketsTask(keys, schema, settings=ordered.settings, tasks_sharing=ordered.tasks_sharing)
    counts = map_in_arrow(pick(columns.frame, columns.orders), task, COUNTS_DDL)
    rows = Counter[int]()
    for bucket, count in counts.collect():
        rows[bucket] += count
    return plan_next_table(ordered.table, rows, {}, ordered.splits)


def _add_late_column(fields: list[StructField], rows: list[StructField], late: str | None) -> list[StructField]:
    """Return the columns of the result. If late rows are emitted, all other columns are nullable."""
    from pyspark.sql.types import StructField, StructType

    if late is None:
        return fields
    nullable = [StructField(field.name, field.dataType, True, field.metadata) for field in fields]
    return [*nullable, StructField(late, StructType(rows))]
