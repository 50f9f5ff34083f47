"""Calls of the public functions as users write them: mypy has to accept each, and to reject those at the end.

`make lint` checks this file against the installed package; it is never executed. A call that mypy wrongly accepts
leaves an unused `type: ignore`, which is an error as well.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from sparkext import asof_join, pipelined_join, scan_parquet, theta_join
from sparkext.streams import cql, ordered, stream_asof_join, stream_join


def joins(a: DataFrame, b: DataFrame, table: pa.Table, frame: pd.DataFrame) -> list[DataFrame]:
    return [
        a.transform(pipelined_join(b, "id")),
        a.transform(pipelined_join(b, on=["id", "day"], how="left")),
        a.transform(pipelined_join(b, on=[("id", "key")])),
        a.transform(pipelined_join(b, on=[("id", "<=>", "key"), ("time", ">=", "start")])),
        a.transform(pipelined_join(b, on=[("id", "key"), ("time", ">=", "start")])),
        a.transform(pipelined_join(b, on=a.id == b.id)),
        a.transform(pipelined_join(b, on=[a.id == b.id, a.time < b.time], how="semi")),
        a.transform(pipelined_join(b, on=(F.col("x") > F.col("y")) & a["z"].eqNullSafe(b["z"]))),
        a.transform(pipelined_join(table, how="cross", max_build_bytes="1g")),
        a.transform(pipelined_join(frame, on="id", partitioned=False, algorithm="hash")),
        a.transform(asof_join(b, on=("time", "at"), by=["id"], tolerance=timedelta(minutes=5))),
        a.transform(asof_join(table, "time", by=[("id", "key")], direction="nearest", tolerance=5)),
        a.transform(asof_join(table, "time", tolerance="10 minutes")),
        a.transform(theta_join(b, lambda left, right: left.x < right.y)),
        a.transform(theta_join(b, _near, how="left")),
        pipelined_join(a, b, "id"),
        pipelined_join(pipelined_join(a, table, on=["id"]), b, on=[("id", "key")], how="left"),
        asof_join(a, b, on="time", tolerance=timedelta(minutes=5)),
        theta_join(a, frame, _near, how="semi"),
        a.transform(pipelined_join, b, on="id"),
    ]


def _near(left: Any, right: Any) -> bool:
    return bool(left.x - right.x < 1)


def scans(spark: SparkSession) -> list[DataFrame]:
    return [
        scan_parquet(spark, "/data/a"),
        scan_parquet(spark, ["/data/a", "/data/b"], columns=["x"], filters=[("x", ">", 5.0), ("y", "is null")]),
        scan_parquet(spark, "/data/a", filters=[[("x", "in", {1, 2})], [("t", "<", datetime(2026, 1, 1))]]),
    ]


def reports(spark: SparkSession, out: DataFrame) -> None:
    session = sparkext.configure(SparkSession.builder.appName("typed")).getOrCreate()
    assert session is spark
    report = sparkext.report(out)
    names: list[str] = [join.operator for join in report.joins]
    query = out.writeStream.format("memory").start()
    batches = sparkext.report(query).batches
    reasons: list[str] = sparkext.declined(out)
    print(names, batches, reasons, report.to_pandas().columns)


def streams(a: DataFrame, b: DataFrame) -> list[DataFrame]:
    queries = cql("REGISTER STREAM s (x double); REGISTER QUERY q ISTREAM(SELECT * FROM s)", missing_delay="insert")
    return [
        stream_join(a, b, on="id", retain="1 hour"),
        stream_join(a, b, on=[("price", ">=", "low")], how="left", retain=("1 hour", None), name="prices"),
        stream_join(a, b, on="id", retain=(timedelta(hours=1), "interval 2 hours")),
        stream_join(a, b, on=a.price >= b.low),
        stream_join(a, b, on=_near),
        a.transform(stream_join(b, on="id", name="ids")),
        a.transform(stream_asof_join(b, on="time")),
        a.transform(ordered(time="ts", order_key="device")),
        a.transform(queries.output("q", time="ts")),
        a.transform(queries.outputs("q", "r", time="ts", serial=True)),
        queries.outputs("q", "r", time="ts", s=a),
        stream_asof_join(a, b, on=("traded", "quoted"), by="symbol", tolerance=timedelta(minutes=5)),
        ordered(a, time="ts", order_key="device"),
        ordered(
            a, time="ts", order_key=F.col("device") % 7, operator_key=["device"], apply=_same, schema="ts timestamp"
        ),
        queries.output("q", s=a, time="ts", watermark="10 seconds"),
        queries.output("q", s=a, time="ts", watermark=timedelta(seconds=10)),
    ]


def _same(rows: pa.Table) -> pa.Table:
    return rows


def refused(a: DataFrame, b: DataFrame) -> None:
    pipelined_join(b, on=5)  # type: ignore[call-overload]
    pipelined_join(b, on={"a": "b"})  # type: ignore[call-overload]
    pipelined_join(b, "id", partitioned="yes")  # type: ignore[call-overload]
    pipelined_join(b, "id", hwo="left")  # type: ignore[call-overload]
    pipelined_join(a, b, on=5)  # type: ignore[call-overload]
    pipelined_join(a, b, b)  # type: ignore[call-overload]
    theta_join(b, "x < y")  # type: ignore[call-overload]
    ordered(a, order_key="device")  # type: ignore[call-overload]
    stream_join(a, b, on="id", retain=60)  # type: ignore[call-overload]
    stream_join(a, b, "id")  # type: ignore[call-overload]
    a.transform(ordered(a, time="ts"))  # type: ignore[arg-type]
