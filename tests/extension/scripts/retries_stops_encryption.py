"""A killed worker's task is retried; a session is stopped during a query; encryption declines joins; Kryo is strict."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import InheritableThread
from pyspark.sql import SparkSession

import sparkext
from tests.extension.conftest import SETTINGS
from tests.extension.test_failures import PATIENCE, joined, killing, sleeping
from tests.support.planned_joins import assert_declined, assert_like_spark, assert_pipelined
from tests.support.sessions import start_session
from tests.support.waiting import wait_until


def session(master: str, **more: str) -> SparkSession:
    return start_session(master, {**SETTINGS, **more}, sparkext.configure)


def a_task_is_retried(spark: SparkSession, folder: Path) -> None:
    killed, again = folder / "killed", folder / "again"
    frame = joined(spark, probe=spark.range(20).select(killing(killed, again)("id").alias("k")))
    assert_pipelined(frame, 1)
    assert sorted(row["k"] for row in frame.collect()) == [k for k in range(4) for _ in range(4)]
    assert killed.exists() and again.exists()


def a_session_is_stopped(spark: SparkSession, folder: Path) -> None:
    started = folder / "started"
    raised: list[BaseException] = []

    def run() -> None:
        frame = joined(spark, probe=spark.range(0, 10_000, 1, 2).select(sleeping(started)("id").alias("k")))
        assert_pipelined(frame, 1)
        try:
            frame.collect()
        except Exception as error:
            raised.append(error)

    thread = InheritableThread(target=run)
    thread.start()
    wait_until(started.exists, "the query runs")
    spark.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    # Both PySpark and Spark may fail again on the stopped session while they handle the first error.
    told = [str(error) for error in (*raised, *(error.__context__ for error in raised))]
    expected = ("SparkContext was shut down", '"org.apache.spark.SparkContext.dagScheduler()" is null')
    assert any(one in text for one in expected for text in told), told


def an_encrypted_session(spark: SparkSession) -> None:
    out = assert_like_spark(spark, lambda: joined(spark))
    assert_declined(out, "spark.io.encryption.enabled is true")


def a_session_that_serializes_what_is_registered(spark: SparkSession) -> None:
    assert_pipelined(assert_like_spark(spark, lambda: joined(spark)), 1)


def main(folder: Path) -> None:
    spark = session("local[2,3]")
    a_task_is_retried(spark, folder)
    a_session_is_stopped(spark, folder)
    spark = session("local[2]", **{"spark.io.encryption.enabled": "true"})
    an_encrypted_session(spark)
    spark.stop()
    strict = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}
    spark = session("local[2]", **strict, **{"spark.kryo.registrationRequired": "true"})
    a_session_that_serializes_what_is_registered(spark)
    spark.stop()
    print("all is well")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
