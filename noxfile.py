"""The joins on other Sparks and other Pythons, each once; what is not here is tested on Spark 4.3 and Python 3.11.

`make versions` runs all of it, two at a time, and `.venv/bin/nox -s "versions(spark-4.0)" [-- other tests]` one of it.
Each has an environment of its own in `.nox`, with that PySpark and this package from its sources. The Pythons have to
be there; everything else is fetched, half a gigabyte a version.
"""

from __future__ import annotations

from collections.abc import Sequence

import nox

from sparkext.spark.jar import supported_minors

nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False  # also where CI is set: they are skipped, and the summary says so

TOOLS = ("setuptools>=77", "pytest>=8.3", "pytest-timeout", "hypothesis", "psutil")

LARGE = (
    "tests/transforms/test_equivalence.py",
    "tests/transforms/test_edges.py",
    "tests/transforms/test_local_build_sides.py::test_all_kinds_of_join",
)
SMALL = (
    "tests/transforms/test_equivalence.py::test_every_alias_means_what_spark_means",
    "tests/transforms/test_equivalence.py::test_payload_of_every_type",
    "tests/transforms/test_ranges.py::test_every_shape[a point in an interval]",
)

SMALL_LAKES = (
    "tests/lakes/test_tables.py::test_columns_that_come_and_go",
    "tests/lakes/test_tables.py::test_older_states",
)
"""What the gate runs of the suite on tables of Delta Lake and Iceberg; `make lakes` runs all of it."""

# Spark 3.5 has no variants, and its cache fails for structs without fields.
NOT_IN_3_5 = ("test_payload_of_every_type", "test_a_null_struct_whose_fields_cannot_be_null")


@nox.session(allow_parallel=True)
@nox.parametrize(
    ["python", "spark", "suites"],
    [
        nox.param("3.11", "4.2", LARGE, id="spark-4.2"),
        nox.param("3.13", "4.1", SMALL, id="spark-4.1"),
        nox.param("3.12", "4.0", SMALL, id="spark-4.0"),
        nox.param("3.10", "3.5", SMALL, id="spark-3.5"),
    ],
)
def versions(session: nox.Session, spark: str, suites: Sequence[str]) -> None:
    """Transforms on another Spark and Python; with the jar, where there is a shim: then Catalyst plans them."""
    session.install(f"pyspark=={spark}.*", *TOOLS)
    session.install("--no-build-isolation", "--editable", ".")
    planned = spark in supported_minors()
    if planned:
        session.run("python", "-m", "sparkext", "jar", "--build")
    options = ["-k", f"not ({' or '.join(NOT_IN_3_5)})"] if spark == "3.5" else []
    environment = {"SPARK_HOME": None, "SPARKEXT_TEST_EXTENSION": "1" if planned else None}
    session.run("pytest", "-q", *options, *(session.posargs or suites), env=environment)
    if spark == "4.1" and not session.posargs:
        session.run("pytest", "-q", *SMALL_LAKES, env={"SPARK_HOME": None})


@nox.session(default=False)
@nox.parametrize(
    ["python", "spark"],
    [nox.param("3.13", "4.1", id="spark-4.1"), nox.param("3.11", "4.2", id="spark-4.2")],
)
def lakes(session: nox.Session, spark: str) -> None:
    """Tables of Delta Lake and of Iceberg, with the jar, on the Sparks that these have releases for."""
    session.install(f"pyspark=={spark}.*", *TOOLS)
    session.install("--no-build-isolation", "--editable", ".")
    session.run("python", "-m", "sparkext", "jar", "--build")
    session.run("pytest", "-q", *(session.posargs or ["tests/lakes"]), env={"SPARK_HOME": None})
