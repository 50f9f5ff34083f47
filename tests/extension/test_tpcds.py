"""Plans of TPC-DS queries at scale equal the golden plans."""

from __future__ import annotations

from collections.abc import Iterator

import pyspark
import pytest
from pyspark.sql import SparkSession

from bench.cases.queries import tpcds
from tests.extension import tpcds_plans


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[SparkSession]:
    with tpcds_plans.tables(spark):
        yield spark


@pytest.mark.skipif(not pyspark.__version__.startswith("4.3."), reason="other versions' own plans differ")
@pytest.mark.parametrize("name", tpcds.QUERIES)
def test_plans_are_the_golden_ones(tables: SparkSession, name: str) -> None:
    """After an intended change, run `python -m tests.extension.tpcds_plans` and review the difference."""
    assert tpcds_plans.plan(tables, name) == tpcds_plans.golden_file(name).read_text()
