"""The Spark session of the tests. One per process: a classic one, unless a Connect suite asks for its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkext

sys.path.insert(0, str(Path(__file__).parent))  # spark_checks
pytest.register_assert_rewrite("spark_checks")
import spark_checks  # noqa: E402

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # Or every aggregate and broadcast of a few rows would allocate and clear 64 MB.
    "spark.buffer.pageSize": "1m",
    # Not UTC, and with summer time: timestamps must not shift on their way.
    "spark.sql.session.timeZone": "America/New_York",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two cores; with the extension if the environment asks for it."""
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()  # the extension's tests have left it
    builder = SparkSession.builder.master("local[2]").appName("sparkext tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    warehouse = tmp_path_factory.mktemp("warehouse")
    builder = builder.config("spark.sql.warehouse.dir", str(warehouse))
    # A JVM keeps the settings that it was started with, and the extension's tests may have started this one.
    builder = builder.config("spark.sql.extensions", "").config("spark.python.daemon.module", "pyspark.daemon")
    if spark_checks.EXTENSION:
        builder = sparkext.configure(builder.config("spark.sparkext.mode", "hint"))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    if spark_checks.EXTENSION:
        assert spark_checks.PLANNED[True] > 3 * spark_checks.PLANNED[False], spark_checks.PLANNED


@pytest.fixture(scope="session")
def connect_settings() -> dict[str, str]:
    """The same settings for a session that a Connect suite starts."""
    return dict(SETTINGS)
