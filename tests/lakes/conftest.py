"""The Spark session of the tests on Delta Lake and Iceberg tables, if these have a release for the Spark version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

import sparkext
from tests.lakes.formats import Lake, formats_of, packages_locked, session_settings
from tests.support.sessions import SETTINGS as SHARED
from tests.support.sessions import shared_session

pytest.register_assert_rewrite("tests.lakes.lake_checks")

MINOR = ".".join(pyspark.__version__.split(".")[:2])


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session with the extension in hint mode, and with the table formats that this Spark has."""
    if not formats_of(MINOR):
        pytest.skip(f"neither Delta nor Iceberg has a release for Spark {MINOR}")
    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = {**SHARED, "spark.sparkext.mode": "hint", **session_settings(MINOR, warehouse)}
    with ExitStack() as running:
        with packages_locked():
            session = running.enter_context(
                shared_session("sparkext on lakes", warehouse, sparkext.configure, settings)
            )
        yield session


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, spark: SparkSession) -> Lake:
    """Return each format in turn. The quicker one is first, and gets the reduced combinations."""
    known = formats_of(MINOR)
    if request.param not in known:
        pytest.skip(f"{request.param} has no release for Spark {MINOR}")
    return known[request.param]


@pytest.fixture(scope="session")
def dims(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Return the table that is joined with the tables: plain files."""
    path = str(tmp_path_factory.mktemp("plain") / "dims")
    spark.range(60).selectExpr("id % 45 AS dk", "concat('n', id) AS name").coalesce(1).write.parquet(path)
    return spark.read.parquet(path)
