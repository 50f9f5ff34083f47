"""A fixed part of `python -m tests.fuzz.chains --through spark`: random chains, compared with Spark and DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fuzz.chains.__main__ import checked_by_spark, run

SEED = 9
CASES = 10


def test_random_chains(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if spark.version < "4.3":
        pytest.skip("some of the chains have an ASOF JOIN, which is new in 4.3")
    with checked_by_spark(spark, tmp_path) as check:
        tally = run("spark", SEED, range(CASES), check)
    assert not tally.problems, capsys.readouterr().out
    assert tally.cases == CASES and tally.rows > 100
    assert tally.paths["joins in pipelines"] > 1.2 * CASES, tally.paths
    assert tally.paths["joins by Spark"] <= sum(n for path, n in tally.paths.items() if path.startswith("declined"))
    assert tally.paths["scan=fused"] and tally.paths["scan=rows from Spark"], tally.paths
