"""A Connect session whose server has the extension: the plan, the rows, and the calls that are rejected."""

from __future__ import annotations

import contextlib
import io

import pytest
from pyspark.sql import SparkSession

import sparkext
from sparkext.errors import EnvironmentProblemError, ExtensionMissingError, ReportUnavailableError

with pytest.raises(EnvironmentProblemError, match="a client cannot load the extension into the Connect server"):
    sparkext.configure(SparkSession.builder.remote("sc://127.0.0.1:15002"))

builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.sparkext.mode", "hint")
spark = sparkext.configure(builder).getOrCreate()
try:
    probe = spark.range(0, 20, 1, 3).selectExpr("id", "id % 5 AS k")
    build = spark.range(3).selectExpr("id AS j", "concat('p', id) AS p").hint("pipelined_join")
    joined = probe.join(build, probe.k == build.j)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        joined.explain()
    assert "PipelinedJoin [inner: k = j]" in shown.getvalue(), shown.getvalue()
    expected = [(number, number % 5, number % 5, f"p{number % 5}") for number in range(20) if number % 5 < 3]
    assert sorted(tuple(row) for row in joined.collect()) == expected
    with pytest.raises(ExtensionMissingError, match="explain"):
        sparkext.declined(joined)
    with pytest.raises(ReportUnavailableError):
        sparkext.report(joined)
finally:
    spark.stop()
