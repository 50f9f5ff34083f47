"""A driver that may be killed at any time, for two streams of files on a cluster. One executor is killed per phase.

The sink writes each batch once, to files. The program prints that all is well if a run has reached the end of its
input, and the files have the rows of the same query on tables, up to the watermark.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkext.streams import cql, ordered, stream_join
from tests.support.cluster import FEW_RETRIES
from tests.support.feeds import MATCH, ON, POINTS, SPANS
from tests.support.rows import rows_of
from tests.support.sessions import start_session

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "3",
    "spark.task.maxFailures": "8",
    **FEW_RETRIES,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.speculation.quantile": "0.3",
}


def passing(marks: Path, phase: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches. Once per phase, kill the executor after its first batch, and once per phase, be slow."""
    for batch in batches:
        yield batch
        context = TaskContext.get()
        assert context is not None
        if claimed(marks / f"{phase} killed"):
            os.kill(executor(), signal.SIGKILL)
        if context.attemptNumber() == 0 and claimed(marks / f"{phase} slow"):
            time.sleep(5)


def claimed(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def executor() -> int:
    """Return the process id of the JVM that runs this task."""
    return next(parent.pid for parent in psutil.Process().parents() if parent.name() == "java")


LATE = "10 seconds"
HITS = """
    REGISTER STREAM points (id bigint, k int, price double);
    REGISTER STREAM spans (rid bigint, d int, low double, high double);
    REGISTER QUERY hits ISTREAM(SELECT p.id, s.rid, p.price, s.low FROM points [Range 5 seconds] p,
        spans [Range 5 seconds] s WHERE p.k = s.d AND p.price >= s.low AND p.price < s.high);
"""


def joined(points: DataFrame, spans: DataFrame) -> DataFrame:
    if points.isStreaming:
        return stream_join(points, spans, on=ON)
    return points.join(spans, F.expr(MATCH))


def numbered(rows: pa.Table, count: int) -> tuple[pa.Table, int]:
    numbers = pa.array(range(count, count + rows.num_rows), pa.int64())
    return rows.select(["k", "id", "at"]).append_column("number", numbers), count + rows.num_rows


def in_order(points: DataFrame, spans: DataFrame) -> DataFrame:
    marked = points.withWatermark("at", LATE)
    schema = "k int, id long, at timestamp, number long"
    return ordered(marked, time="at", order_key="k", operator_key="k", apply=numbered, schema=schema, state=0)


def continuous(points: DataFrame, spans: DataFrame) -> DataFrame:
    spans = spans.withColumnRenamed("time", "at")
    return cql(HITS).output("hits", points=points, spans=spans, time="at", watermark=LATE)


QUERIES = {"join": joined, "order": in_order, "cql": continuous}


def due(rows: DataFrame, points: DataFrame, spans: DataFrame) -> DataFrame:
    """Return the rows that the last watermark has passed, which is the slower stream's watermark."""
    ends = [frame.agg(F.max(time)).first()[0] for frame, time in ((points, "at"), (spans, "time"))]  # type: ignore[index]
    return rows.where(F.col("at") <= F.lit(min(ends)) - F.expr(f"INTERVAL {LATE}"))


def main(query: str, master: str, place: str, secret: str) -> None:
    folder = Path(place)
    spark = start_session(master, {**SETTINGS, **dict(pair.split("=") for pair in secret.split(","))})
    streams = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side))
        for side, schema in (("left", POINTS), ("right", SPANS))
    ]
    sent = streams[0].mapInArrow(partial(passing, folder / "marks", "sending"), streams[0].schema)
    made = QUERIES[query](sent, streams[1])
    out = made.mapInArrow(partial(passing, folder / "marks", "joining"), made.schema)
    writer = out.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start(str(folder / "sink"), format="parquet").awaitTermination()
    left, right = (
        spark.read.schema(schema).parquet(str(folder / side)) for side, schema in (("left", POINTS), ("right", SPANS))
    )
    expected = QUERIES[query](left, right)
    if query != "join":
        expected = due(expected, left, right if query == "cql" else left.withColumnRenamed("at", "time"))
    assert rows_of(spark.read.parquet(str(folder / "sink"))) == rows_of(expected)
    print(f"all {expected.count()} rows are well")


if __name__ == "__main__":
    main(*sys.argv[1:])
