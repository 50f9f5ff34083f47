"""One job of `survival.large-build` or `hot-build`, in its own process: a build side larger than memory.

`python -m bench.cases.memory.large_build_job WAY FOLDER` starts Spark, runs the join with the hint of `WAYS`, and
prints the number of rows and sums as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data.keys import padded

BUILD_ROWS = 14_000_000
PROBE_ROWS = 2_000_000
PAYLOAD_BYTES = 200

HEAP = "600m"
OURS = "sparkext, partitioned"
WAYS = {
    OURS: "PIPELINED_JOIN(build, 'partitioned=always')",
    "Spark, merge hint": "MERGE(build)",
    "Spark, shuffle_hash hint": "SHUFFLE_HASH(build)",
}
_ROWS_AT_ONCE = 500_000

_HOT = -1
_COLD_SHARE = 100


def write_tables(folder: Path, *, hot: bool) -> None:
    """Write the build side and the probe side.

    Without `hot`, keys are scattered, and each probe row matches one build row. With `hot`, all build rows except one
    in a hundred have the same key; one probe row has this key, and the other probe rows have no match.
    """
    build_keys, probe_keys = (_hot_build_keys, _hot_probe_keys) if hot else (_build_keys, _probe_keys)

    def build(numbers: np.ndarray) -> pa.Table:
        text = padded(numbers, PAYLOAD_BYTES, "x")
        return pa.table({"bk": build_keys(numbers), "bn": numbers, "bt": text})

    def probe(numbers: np.ndarray) -> pa.Table:
        return pa.table({"k": probe_keys(numbers), "n": numbers})

    for name, rows, batches in (("build", BUILD_ROWS, build), ("probe", PROBE_ROWS, probe)):
        (folder / name).mkdir()
        for number, start in enumerate(range(0, rows, _ROWS_AT_ONCE)):
            table = batches(np.arange(start, min(start + _ROWS_AT_ONCE, rows), dtype=np.int64))
            pq.write_table(table, folder / name / f"{number}.parquet", row_group_size=100_000)


def _build_keys(numbers: np.ndarray) -> np.ndarray:
    return numbers * 7919 % BUILD_ROWS


def _probe_keys(numbers: np.ndarray) -> np.ndarray:
    return numbers * 7 % BUILD_ROWS


def _hot_build_keys(numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers % _COLD_SHARE == 0, numbers, _HOT)


def _hot_probe_keys(numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers == 0, _HOT, numbers + BUILD_ROWS)


def main(way: str, folder: Path) -> None:
    """Run the join in one of the `WAYS`."""
    from bench.engines.spark_session import spark_session
    from sparkext import configure

    settings = {
        "spark.driver.memory": HEAP,
        "spark.sparkext.mode": "hint",
        "spark.sql.shuffle.partitions": "64",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    with spark_session(2, configure if way == OURS else None, **settings) as spark:
        for name in ("probe", "build"):
            spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        sums = "count(*) AS rows, sum(bn) AS sum, sum(length(bt)) AS text"
        [row] = spark.sql(f"SELECT /*+ {WAYS[way]} */ {sums} FROM probe JOIN build ON k = bk").collect()
        print(json.dumps(row.asDict()))


def expected(*, hot: bool) -> dict[str, int]:
    """Return the answer, by arithmetic: 7919 has an inverse modulo `BUILD_ROWS`, as they share no factor."""
    if hot:
        rows = BUILD_ROWS - BUILD_ROWS // _COLD_SHARE
        cold = _COLD_SHARE * sum(range(BUILD_ROWS // _COLD_SHARE))
        total = BUILD_ROWS * (BUILD_ROWS - 1) // 2 - cold
    else:
        rows, inverse = PROBE_ROWS, pow(7919, -1, BUILD_ROWS)
        total = sum(int((keys * inverse % BUILD_ROWS).sum()) for keys in _all_probe_keys())
    return {"rows": rows, "sum": total, "text": rows * PAYLOAD_BYTES}


def _all_probe_keys() -> Iterator[np.ndarray]:
    for start in range(0, PROBE_ROWS, _ROWS_AT_ONCE):
        yield _probe_keys(np.arange(start, min(start + _ROWS_AT_ONCE, PROBE_ROWS), dtype=np.int64))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
