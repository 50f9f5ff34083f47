"""NOT NULL columns, at the top level or nested, are stored and read correctly across batches and restarts.

Spark sends rows as a query declares them, segments and indexes return rows as they were stored, and a restarted query
may declare other columns as NOT NULL.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructType, TimestampNTZType

from sparkext.asof.resolved_as_of import AsOfArguments, resolve_as_of
from sparkext.asof.stream_as_of_join import derive_stored_sides
from sparkext.config import read_settings
from sparkext.joins.columns import JoinInputs, OutputField
from sparkext.joins.join_condition import read_condition
from sparkext.joins.resolved_join import resolve_join
from sparkext.plans.pipeline.spec import PROBE, ColumnRef
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.plans.streams.order_table import BUCKETS, create_first_table
from sparkext.rows.time_order import TimeOrder
from sparkext.shuffle.partitioning import Partitioning
from sparkext.spark.arrow import arrow_schema
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.join.description_of import describe_join, renumber_build_columns
from sparkext.streaming.ordered.description import BUCKET_FIELDS, OrderedRows
from sparkext.streaming.state.stream_state import StoredSide
from tests.streaming.order_tasks import OrderedQuery
from tests.streaming.tasks import Query, Rows, on_a_node, plain
from tests.support.times import micros

START = datetime(2026, 1, 1)
AT, KEY, ID = range(3)
BATCHES = 8
DECLARED = [[False], [False, True], [True, False]]
"""Whether columns are nullable, in each run of a query."""


@pytest.fixture(autouse=True)
def a_node(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_node(tmp_path_factory.mktemp("node"), monkeypatch, 2)


def columns(nullable: bool) -> StructType:
    """Return a time, a key, a number, and nested columns, the last of which always contains nulls."""
    inner = StructType().add("x", IntegerType(), nullable).add("texts", ArrayType(StringType(), nullable), nullable)
    return (
        StructType()
        .add("at", TimestampNTZType(), nullable)
        .add("key", StringType(), nullable)
        .add("id", LongType(), nullable)
        .add("inner", inner, nullable)
        .add("map", MapType(StringType(), ArrayType(inner, nullable), nullable), nullable)
        .add("perhaps", inner, True)
    )


def made_rows(draw: random.Random, batch: int) -> Rows:
    def inner() -> dict[str, Any]:
        return {"x": draw.randrange(9), "texts": ["a", "b", "c"][: draw.randrange(4)]}

    return [
        (
            START + timedelta(seconds=10 * batch + draw.randrange(20)),
            draw.choice("abc"),
            100 * batch + number,
            inner(),
            [(name, [inner()] * draw.randrange(2)) for name in "pq"[: draw.randrange(3)]],
            draw.choice([None, inner()]),
        )
        for number in range([20, 0, 5][batch % 3])
    ]


def watermark(batch: int) -> datetime:
    return START + timedelta(seconds=10 * batch) if batch < BATCHES else datetime(2027, 1, 1)


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("splits", [True, False])
def test_rows_in_order(tmp_path: Path, splits: bool, declared: list[bool]) -> None:
    draw = random.Random(f"{splits} {declared}")
    query = OrderedQuery(
        ordered(declared[0], splits), tmp_path / "cp", draw, declared=arrow_schema(columns(declared[0]))
    )
    known: Rows = []
    for batch in range(BATCHES + 2):
        nullable = declared[batch * len(declared) // (BATCHES + 2)]
        query.restart(**{name: getattr(ordered(nullable, splits), name) for name in ("rows", "result_schema")})
        query.declared = arrow_schema(columns(nullable))
        rows = made_rows(draw, batch + 1) if batch < BATCHES else []
        query.watermark = micros(watermark(batch))
        query.process([rows[::2], rows[1::2]])
        known += rows
    out = [row for batch in query.emitted for partition in batch for row in partition]
    assert not query.late and len(known) > 50
    for key in "abc":
        own = sorted((row for row in known if row[KEY] == key), key=lambda row: (row[AT], row[ID]))
        assert [row for row in out if row[KEY] == key] == [tuple(map(plain, row)) for row in own]


def ordered(nullable: bool, splits: bool) -> OrderedRows:
    schema = arrow_schema(columns(nullable))
    keys = [
        Partitioning((column,), (schema.types[column],), (True,), RoutingTable(BUCKETS, 1), False, 0xFFFFFFFFFFFFFFFF)
        for column in (KEY, ID)
    ]
    order = TimeOrder(len(schema), AT, ID)
    return OrderedRows(
        name="order",
        is_named=True,
        made_by="test",
        token="run 0",
        is_stream=True,
        rows=StoredSide(pa.schema([*schema, *BUCKET_FIELDS]), AT, 0),
        order_keys=keys[0],
        operator_keys=keys[1],
        key_types=("string", "int64"),
        user_columns=tuple(schema.names),
        order=order,
        operator=None,
        result_schema=schema,
        result_order=order,
        partitions=2,
        table=create_first_table(2),
        splits=splits,
        keeps_late=True,
        settings=read_settings(lambda key: None, {"spark.sparkext.debug.partitions": "random"}),
        tasks_sharing=None,
    )


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("how", ["left", "inner"])
def test_the_nearest_row(tmp_path: Path, how: str, declared: list[bool]) -> None:
    def expected(left: Rows, right: Rows) -> Rows:
        found = []
        for row in left:
            before = [other for other in right if other[KEY] == row[KEY] and other[AT] <= row[AT]]
            if before:
                found.append((*row, *max(before, key=lambda other: (other[AT], other[ID]))))
            elif how == "left":
                found.append((*row, *[None] * len(row)))
        return found

    check(partial(nearest, how), expected, tmp_path, declared, how)


def nearest(how: str, nullable: bool) -> StreamJoin:
    outputs, right, problems = *both(nullable), list[str]()
    arguments = AsOfArguments(("at", "at2"), [("key", "key2")], "backward", None, True, how)
    resolved = resolve_as_of(JoinInputs(outputs, right.fields, 1, "auto", False), arguments, problems)
    assert resolved is not None, problems
    sides = derive_stored_sides(columns(nullable), right, resolved, ID)
    return describe_join(resolved, sides, 2, read_settings(lambda key: None, {}), 1, "an as-of join")


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("how", ["inner", "left", "semi"])
def test_all_that_match(tmp_path: Path, how: str, declared: list[bool]) -> None:
    def expected(left: Rows, right: Rows) -> Rows:
        found = []
        for row in left:
            pairs = [
                other for other in right if other[KEY] == row[KEY] and abs((other[AT] - row[AT]).total_seconds()) <= 15
            ]
            if how == "semi":
                found += [row] * bool(pairs)
            else:
                found += [(*row, *other) for other in pairs]
                found += [(*row, *[None] * len(row))] * (how == "left" and not pairs)
        return found

    check(partial(matching, how), expected, tmp_path, declared, how)


def matching(how: str, nullable: bool) -> StreamJoin:
    outputs, right, problems = *both(nullable), list[str]()
    condition = read_condition([("key", "key2")], how, how, problems)
    assert condition is not None, problems
    resolved = resolve_join(JoinInputs(outputs, right.fields, 1, "auto", False), condition, how, problems)
    assert resolved is not None, problems
    sides = [
        StoredSide(arrow_schema(schema), AT, 15_000_000, how != "inner" and not side)
        for side, schema in enumerate((columns(nullable), right))
    ]
    settings = read_settings(lambda key: None, {})
    return describe_join(renumber_build_columns(resolved), tuple(sides), 2, settings, 1, "a join")


def both(nullable: bool) -> tuple[list[OutputField], StructType]:
    """Return the columns of the left side and those of the right side, which have other names."""
    right = StructType()
    for field in columns(nullable):
        right = right.add(f"{field.name}2", field.dataType, field.nullable)
    return [OutputField(field, ColumnRef(PROBE, number)) for number, field in enumerate(columns(nullable))], right


def check(
    join: Callable[[bool], StreamJoin],
    expected: Callable[[Rows, Rows], Rows],
    tmp_path: Path,
    declared: list[bool],
    how: str,
) -> None:
    """Compare the rows of a join with a nested loop over all pairs. The declared nullability changes per run."""
    draw = random.Random(f"{how} {declared}")
    query = Query(join(declared[0]), tmp_path / "cp", draw)
    left, right = list[Any](), list[Any]()
    for batch in range(BATCHES + 2):
        nullable = declared[batch * len(declared) // (BATCHES + 2)]
        query.restart(**{name: getattr(join(nullable), name) for name in ("sides", "output_schema")})
        query.declared = tuple(arrow_schema(schema) for schema in (columns(nullable), both(nullable)[1]))
        new = [made_rows(draw, batch + 1) if batch < BATCHES else [] for _ in range(2)]
        query.watermark = micros(watermark(batch))
        query.process([new[0]], [new[1][::2], new[1][1::2]])
        left += new[0]
        right += new[1]
    assert query.emitted == Counter(tuple(map(plain, row)) for row in expected(left, right)) and len(left) > 50
