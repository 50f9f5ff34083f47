"""Every join type through both APIs, in one session. `make check` runs these tests for each version of Spark.

Hinted joins are planned by Catalyst; transforms run through `mapInArrow` while the mode is off.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkext import asof_join, pipelined_join
from tests.support.planned_joins import assert_pipelined, mode, pipelines_of, plan_of
from tests.support.rows import rows_of

DOORS = {"extension": "hint", "mapInArrow": "off"}
KINDS = ("inner", "left", "right", "full", "semi", "anti")


class Tables(NamedTuple):
    facts: DataFrame
    items: DataFrame
    days: DataFrame


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return facts in Parquet files, with null and repeated keys; items, some with other keys; days from the JVM."""
    folder: Path = tmp_path_factory.mktemp("tables")
    facts = spark.range(200).selectExpr("id", "nullif(id % 9, 4) AS item", "id DIV 2 AS day", "concat('n', id) AS note")
    items = spark.range(12).selectExpr("nullif(id % 10, 7) AS item", "concat('item ', id) AS name")
    for name, frame in {"facts": facts, "items": items}.items():
        frame.write.parquet(str(folder / name))
    days = spark.range(20).selectExpr("id * 5 AS first", "id * 5 + 6 AS last", "cast(id AS decimal(9, 2)) AS price")
    return Tables(spark.read.parquet(str(folder / "facts")), spark.read.parquet(str(folder / "items")), days)


def assert_as_spark(
    spark: SparkSession, door: str, joins: int, ours: Callable[[], DataFrame], own: Callable[[], DataFrame]
) -> None:
    """Assert that the API was used, and that names, types, nullability and rows equal those of Spark's own join."""
    with mode(spark, DOORS[door]):
        got = ours()
        if door == "extension":
            assert_pipelined(got, joins)
        else:
            assert "MapInArrow" in plan_of(got) and not pipelines_of(got)
        rows = rows_of(got)
    with mode(spark, "off"):
        expected = own()
        assert [(f.name, f.dataType, f.nullable) for f in got.schema] == [
            (f.name, f.dataType, f.nullable) for f in expected.schema
        ]
        assert rows == rows_of(expected) and rows


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", KINDS)
def test_every_kind_on_one_key(spark: SparkSession, tables: Tables, door: str, how: str) -> None:
    facts, items, _ = tables
    ours = {
        "extension": lambda: facts.join(items.hint("pipelined_join"), "item", how),
        "mapInArrow": lambda: facts.transform(pipelined_join(items, on="item", how=how)),
    }
    assert_as_spark(spark, door, 1, ours[door], lambda: facts.join(items, "item", how))


@pytest.mark.parametrize("door", DOORS)
def test_a_chain_with_a_range(spark: SparkSession, tables: Tables, door: str) -> None:
    facts, items, days = tables
    within = (facts["day"] >= days["first"]) & (facts["day"] < days["last"])
    ours = {
        "extension": lambda: facts.join(items.hint("pipelined_join"), "item").join(days.hint("pipelined_join"), within),
        "mapInArrow": lambda: facts.transform(pipelined_join(items, on="item")).transform(
            pipelined_join(days, on=[("day", ">=", "first"), ("day", "<", "last")])
        ),
    }
    assert_as_spark(spark, door, 2, ours[door], lambda: facts.join(items, "item").join(days, within))


@pytest.mark.parametrize("door", DOORS)
def test_the_nearest_row(spark: SparkSession, tables: Tables, door: str) -> None:
    facts, _, days = tables
    assert_as_spark(
        spark,
        door,
        1,
        lambda: facts.transform(asof_join(days, on=("day", "first"))),
        lambda: facts.join(days, days["first"] == facts["day"] - facts["day"] % 5, "left"),
    )
