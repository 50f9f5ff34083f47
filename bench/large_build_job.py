"""One job of `survival.large-build`, in a process of its own: a build side of several times the memory of the workers.

`python -m bench.large_build_job WAY FOLDER` starts Spark, joins in one of the ways, and prints rows and sums as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BUILD_ROWS = 14_000_000
PROBE_ROWS = 2_000_000
PAYLOAD_BYTES = 200
BUILD_BYTES = BUILD_ROWS * (8 + 8 + PAYLOAD_BYTES + 4)
"""As Arrow."""

HEAP = "600m"
OURS = "sparkext, partitioned"
WAYS = {
    OURS: "PIPELINED_JOIN(build, 'partitioned=always')",
    "Spark, merge hint": "MERGE(build)",
    "Spark, shuffle_hash hint": "SHUFFLE_HASH(build)",
}
_ROWS_AT_ONCE = 500_000


def write_tables(folder: Path) -> None:
    """Write the build side, whose keys are scattered, and probe rows of which each meets one of its rows."""
    for name, rows, batches in (("build", BUILD_ROWS, _build), ("probe", PROBE_ROWS, _probe)):
        (folder / name).mkdir()
        for number, start in enumerate(range(0, rows, _ROWS_AT_ONCE)):
            table = batches(np.arange(start, min(start + _ROWS_AT_ONCE, rows), dtype=np.int64))
            pq.write_table(table, folder / name / f"{number}.parquet", row_group_size=100_000)


def _build(numbers: np.ndarray) -> pa.Table:
    text = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width=PAYLOAD_BYTES, padding="x")
    return pa.table({"bk": numbers * 7919 % BUILD_ROWS, "bn": numbers, "bt": text})


def _probe(numbers: np.ndarray) -> pa.Table:
    return pa.table({"k": numbers * 7 % BUILD_ROWS, "n": numbers})


def main(way: str, folder: Path) -> None:
    """Run one way."""
    from bench.spark_session import spark_session
    from sparkext import configure

    settings = {
        "spark.driver.memory": HEAP,
        "spark.sparkext.mode": "hint",
        "spark.sql.shuffle.partitions": "64",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with spark_session(2, configure if way == OURS else None, **settings) as spark:
        for name in ("probe", "build"):
            spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        sums = "count(*) AS rows, sum(bn) AS sum, sum(length(bt)) AS text"
        [row] = spark.sql(f"SELECT /*+ {WAYS[way]} */ {sums} FROM probe JOIN build ON k = bk").collect()
        print(json.dumps(row.asDict()))


def expected() -> dict[str, int]:
    """The answer, by arithmetic: 7919 has an inverse for as many keys as there are, which share no factor with it."""
    inverse = pow(7919, -1, BUILD_ROWS)
    total = sum(int((keys * inverse % BUILD_ROWS).sum()) for keys in _keys())
    return {"rows": PROBE_ROWS, "sum": total, "text": PROBE_ROWS * PAYLOAD_BYTES}


def _keys() -> Iterator[np.ndarray]:
    for start in range(0, PROBE_ROWS, _ROWS_AT_ONCE):
        yield np.arange(start, min(start + _ROWS_AT_ONCE, PROBE_ROWS), dtype=np.int64) * 7 % BUILD_ROWS


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
