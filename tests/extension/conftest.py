"""The Spark session of the extension's tests: with the extension loaded, in hint mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import sparkext
from tests.support.sessions import SETTINGS as SHARED
from tests.support.sessions import shared_session

SETTINGS = {**SHARED, "spark.sparkext.mode": "hint"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session with the extension in hint mode."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    with shared_session("sparkext extension tests", warehouse, sparkext.configure, SETTINGS) as session:
        yield session
