"""The Spark session of the extension's tests: classic, on two cores, with the extension loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkext

sys.path.insert(0, str(Path(__file__).parent))  # extension_checks
pytest.register_assert_rewrite("extension_checks")

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # Or every aggregate and broadcast of a few rows would allocate and clear 64 MB.
    "spark.buffer.pageSize": "1m",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sparkext.mode": "hint",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the extension, in hint mode."""
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()
    builder = SparkSession.builder.master("local[2]").appName("sparkext extension tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    session = sparkext.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
