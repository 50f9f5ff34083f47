"""`stream_join` on Columns gives the rows of Spark's own join of tables, wherever each conjunct is evaluated."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparkext import SparkExtError
from sparkext.spark.session_settings import settings_of
from sparkext.streaming.arguments import JoinedStreams
from sparkext.streaming.join.column_condition import read_columns
from sparkext.streams import stream_join
from tests.support.feeds import Feed, Sink, bare, points, run, spans
from tests.support.rows import rows_of

Condition = Callable[[DataFrame, DataFrame], Column]

CONDITIONS: dict[str, tuple[Condition, tuple[list[str], list[str], int]]] = {
    "names": (
        lambda one, other: (one.price >= other.low) & (other.high > one["price"]),
        ([], ["price >= low", "price < high"], 0),
    ),
    "texts": (
        lambda one, other: F.expr("price between low and high and k = d"),
        (["k = d"], ["price >= low", "price <= high"], 0),
    ),
    "band": (
        lambda one, other: other.low.between(one.price - 2, one.price + 2),
        ([], ["computed0_0 <= low", "computed0_1 >= low"], 0),
    ),
    "casts, and more values than an index has": (
        lambda one, other: (
            (one.k == other.rid) & (one.k >= other.rid - 1) & (one.price + 1 > other.low) & (one.price + 1 < other.high)
        ),
        (
            ["computed0_0 = rid"],
            ["computed0_0 >= computed1_0", "computed0_1 > low"],
            1,
        ),
    ),
    "one side alone": (
        lambda one, other: one.k.eqNullSafe(other.d) & (one.id > 5) & other.rid.isin(2, 3, 5, 7, 11, 13),
        (["k <=> d"], [], 0),
    ),
    "a function of both": (
        lambda one, other: (one.k == other.d) & ((F.abs(one.price - other.low) < 30) | other.high.isNull()),
        (["k = d"], [], 1),
    ),
    "between of an expression": (
        lambda one, other: F.expr("k = d and price * 2 between low and high"),
        (["k = d"], [], 1),
    ),
    "more comparisons than an index has": (
        lambda one, other: (
            (one.price >= other.low)
            & (one.id <= other.rid)
            & (one.k <= other.d)
            & (one.at <= other.time)
            & (one.price < other.high + 50)
        ),
        ([], ["price >= low", "id <= rid"], 3),
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_like_a_join_of_tables(feeds: tuple[Feed, Feed], name: str, tmp_path: Path) -> None:
    condition, parts = CONDITIONS[name]
    draw, sink, (left, right) = random.Random(name), Sink(), feeds
    for here, there in ((30, 20), (0, 40), (50, 0)):
        left.add(points(draw, here))
        right.add(spans(draw, there))
    one, other = left.stream(), right.stream()
    out = stream_join(one, other, on=condition(one, other))
    run(out, tmp_path / "cp", sink)
    tables = left.table(), right.table()
    expected = tables[0].join(tables[1], condition(*tables))
    assert sink.rows() == rows_of(expected) and sink.rows().total() > 0
    assert bare(out.schema) == bare(expected.schema)
    assert _parts(one, other, condition(one, other)) == parts


def _parts(left: DataFrame, right: DataFrame, on: Column) -> tuple[list[str], list[str], int]:
    """Return the equalities and comparisons that an index looks up, and the number of conjuncts after the join."""
    problems: list[str] = []
    streams = JoinedStreams(left, right, settings_of(left.sparkSession), case_sensitive=False)
    read = read_columns(streams, on, "inner", problems)
    assert read is not None and not problems
    equal = [f"{pair.left} {'<=>' if pair.null_safe else '='} {pair.right}" for pair in read.names.pairs]
    compared = [f"{pair.left} {pair.op} {pair.right}" for pair in read.names.ranges]
    short = [[text.replace("__sparkext_compared_", "computed") for text in texts] for texts in (equal, compared)]
    return short[0], short[1], len(read._rest)


@pytest.mark.parametrize("how", ["left", "semi"])
def test_other_kinds(feeds: tuple[Feed, Feed], how: str, tmp_path: Path) -> None:
    """Conjuncts on the right side filter it before the join; those on the left only if unmatched rows are dropped."""
    draw, sinks, (left, right) = random.Random(3), (Sink(), Sink()), feeds
    for number in range(4):
        left.add([row for row in points(draw, 15, number * 20) if row[1] is not None])
        right.add([row for row in spans(draw, 15, number * 20) if row[1] is not None])
    one, other = left.stream().withWatermark("at", "10 seconds"), right.stream().withWatermark("time", "10 seconds")
    on = (one.k == other.d + 1) & (other.rid > 3)
    if how == "semi":
        on &= one.id < 12
    during = F.expr("at <= time + interval 15 seconds and time <= at + interval 25 seconds")
    run(stream_join(one, other, on=on, how=how, retain=("25 seconds", "15 seconds")), tmp_path / "ours", sinks[0])
    run(one.join(other, on & during, how), tmp_path / "spark's", sinks[1])
    assert sinks[0].rows() == sinks[1].rows() and sinks[0].rows().total() > 0


def test_one_stream_with_itself(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """Both sides have the same columns, which Spark distinguishes by name, and a conjunct reads both sides."""
    draw, sink, (left, _) = random.Random(5), Sink(), feeds
    for _ in range(3):
        left.add(points(draw, 20))

    def pairs(frame: DataFrame, other: DataFrame) -> tuple[DataFrame, DataFrame, Column]:
        other = other.select(*(F.col(name).alias(f"{name}2") for name in other.columns))
        return frame, other, (frame.k == other.k2) & (frame.id + other.id2 > 15)

    stream, table = left.stream(), left.table()
    one, other, on = pairs(stream, stream)
    run(stream_join(one, other, on=on), tmp_path / "cp", sink)
    one, other, on = pairs(table, table)
    assert sink.rows() == rows_of(one.join(other, on)) and sink.rows().total() > 0


def test_conditions_that_cannot_be(feeds: tuple[Feed, Feed]) -> None:
    one, other = feeds[0].stream(), feeds[1].stream()
    near = F.abs(one.price - other.low) < 3
    for on, how, told in (
        (near, "inner", r"no part of it compares a value of the left side with a value of the right side"),
        (F.lit(True), "inner", "no part of it compares"),
        ((one.k == other.d) & (F.rand() < 0.5), "inner", "NON_DETERMINISTIC"),
        (F.col("nowhere") == other.d, "inner", "UNRESOLVED_COLUMN"),
        (
            (one.k == other.d) & near,
            "semi",
            r"how='semi': \(abs\(\(price - low\)\) < .*\) is supported only for inner joins",
        ),
        ((one.k == other.d) & (one.id > 3), "left", r"how='left': \(id > .*\) is supported only for inner joins"),
    ):
        with pytest.raises(SparkExtError, match=told):
            stream_join(one, other, on=on, how=how)
    with pytest.raises(SparkExtError, match="more than one column named 'k'"):
        stream_join(one, other.withColumnRenamed("d", "k"), on=one.k == F.col("rid"))


def test_another_condition_behind_a_checkpoint(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    """Computed columns have the same names for any expression, so the state has to record the condition."""
    draw, (left, right) = random.Random(6), feeds
    one, other = left.stream(), right.stream()
    for added in (1, 2):
        left.add(points(draw, 5))
        right.add(spans(draw, 5))
        out = stream_join(one, other, on=one.id == other.rid + added, name="hits")
        if added == 1:
            run(out, tmp_path / "cp")
            continue
        with pytest.raises(StreamingQueryException, match="another operator"):
            run(out, tmp_path / "cp")
