"""A session for streams, without the extension."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.feeds import POINTS, SPANS, Feed
from tests.support.sessions import SETTINGS, STREAMS, shared_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {**SETTINGS, **STREAMS, "spark.sql.shuffle.partitions": "2"}
    with shared_session("streams", tmp_path_factory.mktemp("warehouse"), lambda builder: builder, settings) as session:
        yield session


@pytest.fixture
def feeds(spark: SparkSession, tmp_path: Path) -> tuple[Feed, Feed]:
    return Feed(spark, tmp_path / "points", POINTS), Feed(spark, tmp_path / "spans", SPANS)
