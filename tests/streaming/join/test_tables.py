"""Transforms join a stream with a table: each batch gives the rows of a join of tables."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkext import asof_join, pipelined_join, report, theta_join
from tests.support.feeds import MATCH, ON, Feed, Sink, points, run, spans
from tests.support.rows import rows_of


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_kinds(feeds: tuple[Feed, Feed], how: str, tmp_path: Path) -> None:
    """Two joins form one pipeline; the query stops and resumes."""
    draw, sink, (left, right) = random.Random(how), Sink(), feeds
    right.add(spans(draw, 40))
    table = right.table()
    other = table.select(F.col("d").alias("e"), F.col("rid").alias("other"))

    def joined() -> DataFrame:
        first = left.stream().transform(pipelined_join(table.drop("time"), on=ON, how=how))
        return first.transform(pipelined_join(other, on=[("k", "e")]))

    for sizes in ((30, 0), (20,)):
        for rows in sizes:
            left.add(points(draw, rows))
        out = joined()
        run(out, tmp_path / "cp", sink)
    expected = left.table().join(table.drop("time"), F.expr(MATCH), how).join(other, F.expr("k = e"))
    assert sink.rows() == rows_of(expected) and sink.rows().total() > 0
    assert len(report(out).tasks) > 0


def test_nearest_and_theta(feeds: tuple[Feed, Feed], tmp_path: Path) -> None:
    draw, sinks, (left, right) = random.Random(1), (Sink(), Sink()), feeds
    right.add(spans(draw, 40))
    for rows in (20, 30):
        left.add(points(draw, rows))
    transforms = (
        asof_join(right.table(), on=("price", "low"), by=[("k", "d")]),
        theta_join(right.table(), lambda one, other: one.price > other.low and one.k == other.d),
    )
    for number, (transform, sink) in enumerate(zip(transforms, sinks, strict=True)):
        run(left.stream().transform(transform), tmp_path / f"cp {number}", sink)
        assert sink.rows() == rows_of(left.table().transform(transform)) and sink.rows().total() > 0
