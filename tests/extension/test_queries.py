"""A fixed part of `python -m tests.fuzz`: random queries whose eligible joins are pipelined, compared with Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.fuzz.hunt import Hunt
from tests.fuzz.running import Runner
from tests.fuzz.tally import GROUPS

SEED = 21
QUERIES = 90


def test_random_queries(spark: SparkSession, tmp_path: Path) -> None:
    runner = Runner(spark, tmp_path)
    hunt = Hunt(runner, SEED)
    try:
        hunt.run(range(QUERIES))
    finally:
        runner.close()
    tally = hunt.tally
    assert not hunt.found, "\n\n".join(hunt.found)
    assert tally.queries == QUERIES
    # A run with few pipelines, or with many meaningless queries, would prove nothing.
    assert tally.meaningless < 0.1 * QUERIES and tally.empty < 0.7 * QUERIES, tally
    assert tally.with_pipelines > 0.75 * tally.with_joins > 0.35 * QUERIES and tally.share_pipelined > 0.75, tally
    assert sum(tally.grouped.values()) > 0.2 * QUERIES, tally
    assert all(tally.behind[name] > 3 for name in (*GROUPS, "filters of joins")), tally
    assert {"inner", "left", "full", "semi", "anti", "existence"} <= {kind for kind, _ in tally.pipelined}, tally
    assert {"equal keys", "ranges", "every pair"} <= {form for _, form in tally.pipelined}, tally
    scans = {scan.partition(" (")[0] for scan in tally.scans}
    assert scans == {"fused", "rows from Spark", "columns from Spark"}, tally
