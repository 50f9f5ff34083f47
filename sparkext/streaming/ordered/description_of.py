"""The description of an `ordered` that is sent to its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkext.config import Settings
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.plans.streams.order_table import BUCKETS, OrderTable
from sparkext.rows.time_order import TimeOrder
from sparkext.rows.types import arrow_key_type, spark_key_type
from sparkext.shuffle.partitioning import Partitioning
from sparkext.spark.arrow import arrow_schema
from sparkext.streaming.ordered.description import BUCKET_FIELDS, KeyedOperator, OrderedRows
from sparkext.streaming.state.stream_state import StoredSide
from sparkext.streaming.stream_operator import identify_operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class OrderColumns:
    """A DataFrame whose first `width` columns are the user's, and the positions of time, key and tie columns."""

    frame: DataFrame
    width: int
    time: int
    orders: tuple[int, ...]
    operators: tuple[int, ...]
    ties: int | None


@dataclass(frozen=True)
class AppliedOperator:
    """An operator, its fingerprint `made_by`, the schema of its results, and the position of the time in it."""

    operator: KeyedOperator
    schema: StructType
    time: int
    made_by: str


def describe_order(
    columns: OrderColumns,
    apply: AppliedOperator | None,
    table: OrderTable,
    settings: Settings,
    tasks_sharing: int | None,
    *,
    splits: bool,
    keeps_late: bool,
    name: str | None,
) -> OrderedRows:
    """Return the description of an `ordered` that is sent to its tasks."""
    frame = columns.frame
    fields, rows = frame.schema.fields, arrow_schema(frame.schema)
    is_stream = frame.isStreaming
    order = TimeOrder(len(rows), columns.time, columns.ties)
    key_columns = tuple(dict.fromkeys([*columns.orders, *columns.operators]))
    result_schema, result_order = pa.schema([*rows][: columns.width]), order
    if apply is not None:
        result_schema = arrow_schema(apply.schema)
        result_order = TimeOrder(len(result_schema), apply.time, rank=len(result_schema))
    inputs = f"{frame.schema.simpleString()} by {columns.time}, {columns.orders}, {columns.operators}, {columns.ties}"
    made_by = f"rows in order, {inputs}, {'as they are' if apply is None else apply.made_by}"
    return OrderedRows(
        *identify_operator("ordered", made_by, name),
        table.partitions,
        settings,
        tasks_sharing,
        is_stream=is_stream,
        rows=StoredSide(
            pa.schema([*rows, *BUCKET_FIELDS]), columns.time if is_stream else None, 0 if is_stream else None
        ),
        order_keys=_create_partitioning(frame, columns.orders, settings),
        operator_keys=_create_partitioning(frame, columns.operators, settings) if columns.operators else None,
        key_types=tuple(str(spark_key_type(fields[column])) for column in key_columns),
        user_columns=tuple(frame.columns[: columns.width]),
        order=order,
        operator=None if apply is None else apply.operator,
        result_schema=result_schema,
        result_order=result_order,
        table=table,
        splits=splits,
        keeps_late=keeps_late,
    )


def _create_partitioning(frame: DataFrame, columns: tuple[int, ...], settings: Settings) -> Partitioning:
    """Return the partitioning of columns into buckets. Null is a key like any other value."""
    kinds = [spark_key_type(frame.schema.fields[column]) for column in columns]
    types = tuple(arrow_key_type(kind) for kind in kinds if kind is not None)
    table = RoutingTable(BUCKETS, 1)
    return Partitioning(columns, types, (True,) * len(columns), table, False, settings.debug_hash_mask)
