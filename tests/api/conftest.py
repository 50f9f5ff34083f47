"""The Spark session of the transforms' tests. A Connect suite has its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import sparkext
from tests.support.sessions import SETTINGS, shared_session

pytest.register_assert_rewrite("tests.api.spark_checks")
from tests.api import spark_checks  # noqa: E402


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a classic session, with the extension if the environment requests it."""
    with shared_session("sparkext tests", tmp_path_factory.mktemp("warehouse"), _configured) as session:
        yield session
    if spark_checks.EXTENSION:
        assert spark_checks.PLANNED[True] > 3 * spark_checks.PLANNED[False], spark_checks.PLANNED


def _configured(builder: SparkSession.Builder) -> SparkSession.Builder:
    # A JVM keeps its initial settings, and the extension's tests may have started it.
    builder = builder.config("spark.sql.extensions", "").config("spark.python.daemon.module", "pyspark.daemon")
    return sparkext.configure(builder.config("spark.sparkext.mode", "hint")) if spark_checks.EXTENSION else builder


@pytest.fixture(scope="session")
def connect_settings() -> dict[str, str]:
    """Return the same settings for the session of a Connect suite."""
    return dict(SETTINGS)
