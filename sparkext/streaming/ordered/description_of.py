"""The description of an `ordered` that is sent to its tasks."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkext.config import Settings
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.plans.streams.order_table import BUCKETS, OrderTable
from sparkext.rows.time_order import TimeOrder
from sparkext.rows.types import arrow_key_type, spark_key_type
from sparkext.shuffle.partitioning import Partitioning
from sparkext.spark.arrow import arrow_schema
from sparkext.streaming.arguments import derive_operator_name
from sparkext.streaming.ordered.description import BUCKET_FIELDS, KeyedOperator, OrderedRows, TimedOperator
from sparkext.streaming.state.stream_state import StoredSide

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
class UserFunction:
    """A user's function. `schema` is the schema of its results, `time` the position of the time in it.

    `initial` and `pickles` are as in `KeyedOperator`.
    """

    function: Callable[..., Any]
    schema: StructType
    time: int
    initial: bytes | None
    pickles: bool


@dataclass(frozen=True)
class TimedFunction:
    """A function and its options, as in `TimedOperator`.

    `schema` is the schema of its results, `time` the position of the time in it. `made_by` is its fingerprint.
    """

    function: Callable[..., Any]
    schema: StructType
    time: int
    keys: int
    until: int
    made_by: str


def describe_order(
    columns: OrderColumns,
    apply: UserFunction | TimedFunction | None,
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
    places = tuple(dict.fromkeys([*columns.orders, *columns.operators]))
    operator: KeyedOperator | TimedOperator | None = None
    results, result_order = pa.schema([*rows][: columns.width]), order
    if apply is not None:
        names = tuple(frame.columns[: columns.width])
        if isinstance(apply, TimedFunction):
            operator = TimedOperator(apply.function, names, apply.keys, apply.until)
        else:
            operator = KeyedOperator(apply.function, names, apply.initial, apply.pickles)
        results = arrow_schema(apply.schema)
        result_order = TimeOrder(len(results), apply.time, rank=len(results))
    of = f"{frame.schema.simpleString()} by {columns.time}, {columns.orders}, {columns.operators}, {columns.ties}"
    made_by = f"rows in order, {of}, {'as they are' if apply is None else apply.schema.simpleString()}"
    if isinstance(apply, TimedFunction):
        made_by = f"{made_by}, {apply.made_by}"
    return OrderedRows(
        name=name or derive_operator_name("ordered", made_by),
        is_named=name is not None,
        made_by=made_by,
        token=uuid.uuid4().hex,
        is_stream=is_stream,
        rows=StoredSide(
            pa.schema([*rows, *BUCKET_FIELDS]), columns.time if is_stream else None, 0 if is_stream else None
        ),
        order_keys=_create_partitioning(frame, columns.orders, settings),
        operator_keys=_create_partitioning(frame, columns.operators, settings) if columns.operators else None,
        key_types=tuple(str(spark_key_type(fields[place])) for place in places),
        order=order,
        operator=operator,
        result_schema=results,
        result_order=result_order,
        partitions=table.partitions,
        table=table,
        splits=splits,
        keeps_late=keeps_late,
        settings=settings,
        tasks_sharing=tasks_sharing,
    )


def _create_partitioning(frame: DataFrame, places: tuple[int, ...], settings: Settings) -> Partitioning:
    """Return the partitioning of columns into buckets. Null is a key like any other value."""
    kinds = [spark_key_type(frame.schema.fields[place]) for place in places]
    types = tuple(arrow_key_type(kind) for kind in kinds if kind is not None)
    table = RoutingTable(BUCKETS, 1)
    return Partitioning(places, types, (True,) * len(places), table, False, settings.debug_hash_mask)
