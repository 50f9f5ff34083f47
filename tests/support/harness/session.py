"""The session of a harness: small, on two cores, and quick to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def harness_session(extended: bool = True, **more: str) -> Iterator[SparkSession]:
    """Start Spark with some more settings, and with the extension unless `extended` is false."""
    import sparkext
    from bench.engines.spark_session import spark_session

    # The second compiler costs more than it saves, and a concurrent collector marks the heap on every page.
    os.environ.setdefault(
        "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
    )
    with TemporaryDirectory() as warehouse:
        settings = {
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "2",
            "spark.buffer.pageSize": "1m",
            "spark.ui.retainedJobs": "5",
            "spark.ui.retainedStages": "5",
            "spark.sql.ui.retainedExecutions": "5",
            "spark.sql.warehouse.dir": warehouse,
            # Spark's ORC reader fails on some pushed-down lists of decimals.
            "spark.sql.orc.filterPushdown": "false",
            "spark.sparkext.debug.sessions": "true",
            **more,
        }
        with spark_session(2, sparkext.configure if extended else None, **settings) as spark:
            spark.sparkContext.setLogLevel("OFF")
            yield spark
