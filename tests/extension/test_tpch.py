"""TPC-H's 22 queries: the plans equal the golden plans, and every mode gives the same rows."""

from __future__ import annotations

from collections import Counter

import pyspark
import pytest
from pyspark.sql import SparkSession

from bench.cases.queries import tpch
from sparkext.cli.tpch import ensure_tables
from tests.extension import tpch_plans
from tests.support.planned_joins import pipelines_of


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> SparkSession:
    folder = ensure_tables(tpch_plans.SCALE_FACTOR)
    tpch_plans.register_tables(spark, folder)
    return spark


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.skipif(not pyspark.__version__.startswith("4.3."), reason="other versions' own plans differ")
@pytest.mark.parametrize("mode", tpch_plans.MODES)
@pytest.mark.parametrize("number", tpch.QUERIES)
def test_plans_are_the_golden_ones(tables: SparkSession, number: int, mode: str) -> None:
    """After an intended change, run `python -m tests.extension.tpch_plans` and review the difference."""
    with tpch_plans.settings(tables, mode):
        assert tpch_plans.plan(tables, number, mode) == tpch_plans.golden_file(mode, number).read_text()


_LEFT_OUT = pytest.mark.whole(reason="`bench --quick` compares the rows of all queries; here each mode runs six")


@pytest.mark.parametrize(
    ("number", "mode"),
    [
        pytest.param(number, mode, marks=() if place % 4 == ("auto", "hint").index(mode) else _LEFT_OUT)
        for place, number in enumerate(tpch.QUERIES)
        for mode in ("auto", "hint")
    ],
)
def test_rows_are_the_same_in_every_mode(tables: SparkSession, number: int, mode: str) -> None:
    rows: dict[str, Counter[str]] = {}
    for asked in (mode, "off"):
        with tpch_plans.settings(tables, asked):
            out = tables.sql(tpch_plans.query(number, asked))
            assert asked != "off" or not pipelines_of(out)
            rows[asked] = Counter(map(repr, out.collect()))
    assert rows[mode] == rows["off"]
    assert rows["off"]


def test_hints_make_pipelines(tables: SparkSession) -> None:
    """Without pipelines in hint mode, comparing its rows would prove nothing."""
    with tpch_plans.settings(tables, "hint"):
        planned = {n: sum(pipelines_of(tables.sql(tpch_plans.query(n, "hint")))) for n in tpch.QUERIES}
    assert {number for number, joins in planned.items() if joins == 0} == WITHOUT_A_HINTED_JOIN


WITHOUT_A_HINTED_JOIN: set[int] = {1, 6}
