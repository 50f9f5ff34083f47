"""Runs tests on other Sparks and other Pythons. All other tests run on Spark 4.3 and Python 3.11.

`make versions` runs all of it, two at a time, and `.venv/bin/nox -s "versions(spark-4.0)" [-- other tests]` one of it.
Each version has an environment of its own in `.nox`, with that PySpark and this package from its sources. The Pythons
have to be installed; everything else is fetched, half a gigabyte a version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import nox

sys.path.append(str(Path(__file__).parent))  # a command does not look for modules where it is called

from docs.tools.support import list_folders
from sparkext import __version__
from sparkext.spark.jar import SPARK_MINORS

ROOT = Path(__file__).parent
DIST = ROOT / "dist"

nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False  # also where CI is set: they are skipped, and the summary says so

TWO_PROCESSES = ("-n", "2", "--dist", "load")

TOOLS = ("setuptools>=77", "pytest>=8.3,<9.2", "pytest-timeout", "hypothesis", "psutil")

RECORD = ("-p", "tests.support.record", "--record", "docs/support.jsonl")
"""Records the outcome of whole suites, from which the page on versions is generated."""

SUITE_TOOLS = (
    "pyspark[connect]",
    "pytest-xdist",
    "duckdb",
    "ipykernel",
    "jupytext",
    "moto[server]>=5",
    "nbclient",
    "polars",
    "tpchgen-cli>=3",
    "tpcgen-cli>=4",
    "tqdm",
)
"""Additional packages that whole suites need."""

STREAMS = "tests/streaming/join/test_stream_join.py::test_progress"
"""The last test of a run: it ends the session that the other tests share."""

_EVERYWHERE = (
    "tests/api/test_equivalence.py::test_every_alias_means_what_spark_means",
    "tests/api/test_equivalence.py::test_payload_of_every_type",
    "tests/api/test_ranges.py::test_every_shape[a point in an interval]",
)
SMALL = (*_EVERYWHERE, STREAMS)
LARGE = (
    *_EVERYWHERE,
    "tests/api/test_equivalence.py::test_join_nullable_with_not_null_keys",
    "tests/api/test_equivalence.py::test_composite_keys",
    "tests/api/test_edges.py",
    "tests/api/test_local_build_sides.py::test_all_kinds_of_join",
    STREAMS,
)

# Spark 3.5 has no variants, its cache fails for structs without fields, and streams are joined from 4.0 on.
NOT_IN_3_5 = ("test_payload_of_every_type", "test_a_null_struct_whose_fields_cannot_be_null", "test_progress")

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""The versions that a release is installed in."""


@nox.session(allow_parallel=True, python="3.11")
def tables(session: nox.Session) -> None:
    """Run the tests of Delta Lake and Iceberg tables on Spark 4.1, with fewer combinations than `lakes`.

    It is the longest session, so it is the first of those that run two at a time.
    """
    _install(session, "4.1", "pytest-xdist")
    session.run("pytest", "-q", *TWO_PROCESSES, *(session.posargs or ["tests/lakes"]), env={"SPARK_HOME": None})


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
    """Run transforms on another Spark and Python. If there is a jar for that Spark, Catalyst plans them."""
    planned = _install(session, spark)
    options = ["-k", f"not ({' or '.join(NOT_IN_3_5)})"] if spark == "3.5" else []
    environment = {"SPARK_HOME": None, "SPARKEXT_TEST_EXTENSION": "1" if planned else None}
    session.run("pytest", "-q", *options, *(session.posargs or suites), env=environment)


@nox.session(default=False, python="3.11")
@nox.parametrize("spark", [nox.param(minor, id=f"spark-{minor}") for minor in SPARK_MINORS])
def suites(session: nox.Session, spark: str) -> None:
    """Run whole suites on every Spark that there is a jar for."""
    _install(session, spark, *SUITE_TOOLS)
    options = ["-q", "--whole", "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"]
    # Tests of table formats have a session of their own.
    recorded = [*RECORD, *(f"tests/{folder}" for folder in list_folders() if folder != "lakes")]
    session.run("pytest", *options, *(session.posargs or recorded), env={"SPARK_HOME": None})


@nox.session(default=False)
@nox.parametrize(
    ["python", "spark"],
    [nox.param("3.13", "4.1", id="spark-4.1"), nox.param("3.11", "4.2", id="spark-4.2")],
)
def lakes(session: nox.Session, spark: str) -> None:
    """Run the tests of Delta Lake and Iceberg tables on the Sparks that both have releases for."""
    _install(session, spark, "pytest-xdist")
    recorded = [*RECORD, "--whole", "tests/lakes"]
    session.run("pytest", "-q", *TWO_PROCESSES, *(session.posargs or recorded), env={"SPARK_HOME": None})


@nox.session(name="bench-lakes", default=False, python="3.11")
def bench_lakes(session: nox.Session) -> None:
    """Time three joins of tables of Delta Lake, Iceberg and plain files, in a Spark that both have a release for."""
    _install(session, "4.1", "tpchgen-cli>=3", "tqdm>=4.66")
    session.run("python", "-m", "bench", *(session.posargs or ["lakes"]), env={"SPARK_HOME": None})


@nox.session(default=False, python="3.11")
def wheel(session: nox.Session) -> None:
    """Build the wheel, with a jar for every Spark that there is a shim for, and the sdist, into dist/."""
    _build(session, DIST)


@nox.session(name="release-check", default=False, python="3.11")
def release_check(session: nox.Session) -> None:
    """Check a release: its part of the changelog, reproducible bytes, all jars, and valid metadata."""
    _check_changelog(session)
    _build(session, DIST)
    again = Path(session.create_tmp()).absolute() / "again"
    _build(session, again)
    if _digests(DIST) != _digests(again):
        session.error(f"built twice, and not the same: {_digests(DIST)} and {_digests(again)}")
    (built,) = DIST.glob("*.whl")
    jars = {Path(name).stem.rpartition("-")[2] for name in zipfile.ZipFile(built).namelist() if name.endswith(".jar")}
    if jars != set(SPARK_MINORS):
        session.error(f"the wheel has jars for {sorted(jars)}, and there are sources for {SPARK_MINORS}")
    session.install("twine>=6")
    session.run("twine", "check", "--strict", *map(str, DIST.iterdir()))


@nox.session(name="release-install", default=False, python=PYTHONS, requires=["release-check"])
def release_install(session: nox.Session) -> None:
    """Run `doctor` and the demo from the wheel alone, in a clean environment of every Python."""
    (built,) = DIST.glob("*.whl")
    session.install(f"sparkext[demo] @ {built.as_uri()}")
    elsewhere = session.create_tmp()
    python = str(Path(session.bin) / "python")
    with session.chdir(elsewhere):
        environment = {"SPARK_HOME": None, "PYSPARK_PYTHON": python}
        session.run("python", "-m", "sparkext", "doctor", env=environment)
        session.run("python", "-m", "sparkext", "demo", "--sf", "0.01", env=environment)


def _install(session: nox.Session, spark: str, *more: str) -> bool:
    """Install a Spark and this package; return whether there is a jar for it, which then is built."""
    session.install(f"pyspark=={spark}.*", *TOOLS, *more)
    session.install("--no-build-isolation", "--editable", ".")
    planned = spark in SPARK_MINORS
    if planned:
        session.run("python", "-m", "sparkext", "jar", "--build")
    return planned


def _check_changelog(session: nox.Session) -> None:
    """Check that the changelog has a part for this release with its date, or a part for unreleased changes."""
    heading = r"\[Unreleased\]" if ".dev" in __version__ else rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d"
    told = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text(), re.M | re.S)
    if told is None or "- " not in told[1]:
        session.error(f"CHANGELOG.md does not describe {__version__}: the part {heading} is missing or empty")


def _build(session: nox.Session, folder: Path) -> None:
    """Build wheel and sdist of the last commit, reproducibly, with the packages installed here alone."""
    reference, *others = reversed(SPARK_MINORS)
    session.install(f"pyspark=={reference}.*", "setuptools>=77", "build>=1.2")
    pysparks = [_pyspark(session, minor) for minor in others]
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    committed = session.run("git", "log", "-1", "--format=%ct", external=True, silent=True)
    environment = {
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", str(committed).strip()),
        "SPARKEXT_PYSPARK": ":".join(map(str, pysparks)),
    }
    session.run("python", "-m", "build", "--no-isolation", "--outdir", str(folder), env=environment)


def _pyspark(session: nox.Session, minor: str) -> Path:
    """Return the folder of a PySpark whose classes a jar is compiled against; no environment imports it."""
    folder = Path(session.create_tmp()).absolute() / f"pyspark-{minor}"
    if not folder.exists():
        session.run_install(
            "uv",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(folder),
            f"pyspark=={minor}.*",
            external=True,
        )
    return folder / "pyspark"


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
