"""The checks of `doctor` on a Spark session and its workers: a local session, or the session of `spark-submit`."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkext._version import __version__
from sparkext.cli.finding import Finding, Status, format_release, parse_release, run_guarded
from sparkext.cli.local_session import start_local_session, summarise_error
from sparkext.config import find_configuration_problems
from sparkext.errors import EnvironmentProblemError
from sparkext.spark.extension import list_declined_joins, plans_joins
from sparkext.spark.jar import locate_jar
from sparkext.spark.jvm import find_table_format_version, started_by_spark_submit
from sparkext.spark.session import configure
from sparkext.spark.session_settings import is_local_master, read_configured_options
from sparkext.spark.worker_python import explain_worker_failure, query_workers
from sparkext.wording import LIMITS, format_bytes, format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKES = {"Delta Lake": (4, 4), "Iceberg": (1, 12)}
"""The table formats whose files workers read, with the releases that are tested."""

_NAME_THIS_PYTHON = f"set spark.sparkext.python or PYSPARK_PYTHON to a Python with sparkext, such as {sys.executable}"
_ENOUGH_DISK = 10 << 30
_ENOUGH_MEMORY = 512 << 20


def run_session_checks() -> Iterator[Finding]:
    """Yield the finding of every check. A check that cannot run yields a warning with the reason."""
    reported = set()
    try:
        for finding in _run_checks_in_session():
            reported.add(finding.title)
            yield finding
    except Exception as error:
        yield Finding(Status.FAIL, "session", summarise_error(error), "start a session by hand and read Spark's log")
    yield from skip_checks([title for title in SESSION_CHECKS if title not in reported], "there is no session")


def skip_checks(titles: Iterable[str], reason: str) -> Iterator[Finding]:
    """Yield a warning for each of these checks."""
    for title in titles:
        yield Finding(Status.WARN, title, f"not checked: {reason}")


def _run_checks_in_session() -> Iterator[Finding]:
    started = time.perf_counter()
    refusals: list[EnvironmentProblemError] = []
    with _start_session(refusals) as spark:
        seconds = time.perf_counter() - started
        yield run_guarded("session", lambda: check_session(spark.version, str(spark.sparkContext.master), seconds))
        yield from (Finding(Status.WARN, "extension", f"not loaded: {refusal}") for refusal in refusals)
        yield run_guarded("options", lambda: check_options(spark))
        yield run_guarded("io encryption", lambda: check_io_encryption(spark))
        yield run_guarded("lake tables", check_table_formats)
        if is_local_master(spark):
            yield run_guarded("local dirs", lambda: check_local_dirs(spark))
        else:
            yield Finding(Status.OK, "local dirs", "not checked: the executors' folders are on other nodes")
        try:
            facts = collect_worker_facts(spark)
        except Exception as error:
            yield check_dead_worker(error)
            yield from skip_checks(WORKER_CHECKS, "no worker answered")
        else:
            for title, check in WORKER_CHECKS.items():
                yield from _run_check_on_nodes(title, check, facts)
        yield run_guarded("a join", lambda: check_join(spark))


@contextmanager
def _start_session(refusals: list[EnvironmentProblemError]) -> Iterator[SparkSession]:
    """Start a small local session, or under `spark-submit` a session with its options on its cluster.

    If a local session cannot load the extension, the error is added to `refusals`.
    """

    def with_extension(builder: SparkSession.Builder) -> SparkSession.Builder:
        try:
            return configure(builder)
        except EnvironmentProblemError as refusal:
            with suppress(EnvironmentProblemError):
                locate_jar()  # raises if there is no jar, which another check reports
                refusals.append(refusal)
            return builder

    if not started_by_spark_submit():
        with start_local_session("sparkext doctor", {"spark.master": "local[1]"}, with_extension) as spark:
            yield spark
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("sparkext doctor").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _run_check_on_nodes(
    title: str, check: Callable[[Mapping[str, Any]], Finding], facts: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Yield the distinct findings of one check. If there are several nodes, each finding names its nodes."""
    hosts: dict[Finding, list[str]] = {}
    for node in facts:
        hosts.setdefault(run_guarded(title, lambda node=node: check(node)), []).append(node["host"])  # type: ignore[misc]
    for finding, names in hosts.items():
        yield finding if len(facts) == 1 else replace(finding, detail=f"{', '.join(names)}: {finding.detail}")


def check_session(version: str, master: str, seconds: float) -> Finding:
    """Check that the JVM's Spark and the package pyspark are of the same release."""
    package = importlib.import_module("pyspark").__version__
    if parse_release(version) != parse_release(package):
        home = os.environ.get("SPARK_HOME", "unset")
        detail = f"the JVM runs Spark {version}, the package is pyspark {package} (SPARK_HOME is {home})"
        return Finding(Status.WARN, "session", detail, "unset SPARK_HOME, or install the same version of pyspark")
    return Finding(Status.OK, "session", f"Spark {version} started in {seconds:.1f} s ({master})")


def check_options(spark: SparkSession) -> Finding:
    """Check this package's options in the session."""
    options = read_configured_options(spark)
    problems = find_configuration_problems(options)
    if problems:
        return Finding(Status.WARN, "options", problems[0], "see python -m sparkext options", tuple(problems[1:]))
    return Finding(Status.OK, "options", f"{format_count(len(options), 'option')} set")


def check_io_encryption(spark: SparkSession) -> Finding:
    """Check whether Spark encrypts its files on local disks, including broadcasts."""
    if spark.sparkContext.getConf().get("spark.io.encryption.enabled", "false") == "true":
        advice = "set spark.io.encryption.enabled=false if that is allowed, or keep build sides small"
        detail = "on: each worker process holds its own copy of a build side, and the session extension plans no join"
        return Finding(Status.WARN, "io encryption", detail, advice)
    return Finding(Status.OK, "io encryption", "off: the workers of a node share one copy of a build side")


def check_table_formats() -> Finding:
    """Check the versions of the table formats in the session."""
    releases = {name: version for name in LAKES if (version := find_table_format_version(name)) is not None}
    if not releases:
        return Finding(Status.OK, "lake tables", "the session has neither Delta Lake nor Iceberg; both are optional")
    versions = ", ".join(f"{name} {version}" for name, version in releases.items())
    untested = [name for name, version in releases.items() if parse_release(version) != LAKES[name]]
    if untested:
        tested = " and ".join(f"{name} {format_release(LAKES[name])}" for name in untested)
        advice = f"compare results with spark.sparkext.mode=off first: tested with {tested}"
        return Finding(Status.WARN, "lake tables", versions, advice)
    return Finding(Status.OK, "lake tables", f"{versions}: workers read their tables")


def check_local_dirs(spark: SparkSession) -> Finding:
    """Check free space and write permission in the folders for build sides, indexes and spills."""
    configured = spark.sparkContext.getConf().get("spark.local.dir", tempfile.gettempdir())
    folders = os.environ.get("SPARK_LOCAL_DIRS", configured or "").split(",")
    locked = [folder for folder in folders if not os.access(folder, os.W_OK | os.X_OK)]
    if locked:
        advice = "create it, or set SPARK_LOCAL_DIRS to folders that can be written"
        return Finding(Status.FAIL, "local dirs", f"not writable: {', '.join(locked)}", advice)
    free = {folder: shutil.disk_usage(folder).free for folder in folders}
    free_space = ", ".join(f"{format_bytes(space)} free in {folder}" for folder, space in free.items())
    if min(free.values()) < _ENOUGH_DISK:
        advice = f"set SPARK_LOCAL_DIRS to a disk with {format_bytes(_ENOUGH_DISK)}, or keep build sides small"
        return Finding(Status.WARN, "local dirs", f"{free_space}: little for build sides and their indexes", advice)
    return Finding(Status.OK, "local dirs", f"{free_space}, for build sides and their indexes")


# --- checks of workers ----------------------------------------------------------------------------


def collect_worker_facts(spark: SparkSession) -> list[dict[str, Any]]:
    """Return facts about one Python worker of each node that a job with one task per core reaches.

    `host`: the node's name; `python` and `executable`; `imports`: versions by package; `cache`: the folder of numba's
    compiled kernels; `headroom`: the bytes that the worker may allocate and the binding limit, or empty; `memory`:
    pairs of name and value from which the headroom is computed. A fact that could not be determined is `!` and the
    error.
    """

    def probe(_: int) -> str:
        import importlib
        import json
        import platform
        import socket
        import sys

        def attempt(question: Callable[[], Any]) -> Any:
            try:
                return question()
            except Exception as error:
                return f"!{type(error).__name__}: {error}"

        def version(name: str) -> Any:
            return importlib.import_module(name).__version__

        def cache() -> Any:
            jit = importlib.import_module("sparkext.kernels.runtime.jit")
            return jit.kernel(jit.freeze).stats.cache_path

        def headroom() -> Any:
            return importlib.import_module("sparkext.memory.probes").process_probe().headroom() or ()

        def memory() -> Any:
            return importlib.import_module("sparkext.memory.probes").process_probe().describe()

        names = ("sparkext", "pyarrow", "numba")
        facts = {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "imports": {name: attempt(lambda name=name: version(name)) for name in names},  # type: ignore[misc]
            "cache": attempt(cache),
            "headroom": attempt(headroom),
            "memory": attempt(memory),
        }
        return json.dumps(facts)

    by_node: dict[str, dict[str, Any]] = {}
    for facts in map(json.loads, query_workers(spark, probe, spark.sparkContext.defaultParallelism)):
        by_node.setdefault(facts["host"], facts)
    return list(by_node.values())


def check_dead_worker(error: Exception) -> Finding:
    """Return the finding that no worker answered, with the reason."""
    return Finding(Status.FAIL, "worker", f"no answer: {explain_worker_failure(error)}", _NAME_THIS_PYTHON)


def check_worker_python(facts: Mapping[str, Any]) -> Finding:
    """Check that the worker's Python is of the same release as this Python."""
    detail = f"{facts['python']} ({facts['executable']})"
    if parse_release(facts["python"]) != sys.version_info[:2]:
        detail = f"{detail}, but this is {format_release(sys.version_info[:2])}"
        return Finding(Status.FAIL, "worker python", detail, _NAME_THIS_PYTHON)
    return Finding(Status.OK, "worker python", f"{detail}, the same release as the driver's")


def check_worker_imports(facts: Mapping[str, Any]) -> Finding:
    """Check that the worker can import the packages, and has the same version of sparkext."""
    detail = ", ".join(f"{name} {version.lstrip('!')}" for name, version in facts["imports"].items())
    if any(version.startswith("!") for version in facts["imports"].values()):
        advice = f"install sparkext for {facts['executable']}, or {_NAME_THIS_PYTHON}"
        return Finding(Status.FAIL, "worker imports", detail, advice)
    if facts["imports"]["sparkext"] != __version__:
        advice = "install the same version on the driver and on all nodes"
        return Finding(Status.FAIL, "worker imports", f"{detail}, but the driver has sparkext {__version__}", advice)
    return Finding(Status.OK, "worker imports", f"{detail}: a worker can import everything that joins need")


def check_numba_cache(facts: Mapping[str, Any]) -> Finding:
    """Check the folder of compiled kernels: without a writable folder, numba raises an error."""
    if facts["cache"].startswith("!"):
        advice = "set NUMBA_CACHE_DIR (or spark.executorEnv.NUMBA_CACHE_DIR) to a folder that workers can write"
        return Finding(Status.FAIL, "numba cache", facts["cache"].lstrip("!"), advice)
    return Finding(Status.OK, "numba cache", f"compiled kernels are cached in {facts['cache']}")


def check_worker_memory(facts: Mapping[str, Any]) -> Finding:
    """Check the memory limits from which a worker derives its output budgets."""
    broken = [fact for fact in (facts["memory"], facts["headroom"]) if isinstance(fact, str)]
    if broken:
        return Finding(Status.FAIL, "memory", broken[0].lstrip("!"), "this is a bug in sparkext: please report it")
    limits = tuple(f"{name}: {value}" for name, value in facts["memory"][:-1])
    if not facts["headroom"]:
        detail = "no memory limit is known, so budgets do not adapt to memory"
        return Finding(Status.WARN, "memory", detail, "set spark.sparkext.memory.maxBytes", limits)
    free, limit = facts["headroom"]
    detail = f"{format_bytes(free)} free for a worker, determined by {LIMITS[limit]}"
    if free < _ENOUGH_MEMORY:
        recommended = format_bytes(_ENOUGH_MEMORY)
        advice = f"free some memory: a worker needs at least 256 MiB for joins; {recommended} is recommended"
        return Finding(Status.WARN, "memory", detail, advice, limits)
    return Finding(Status.OK, "memory", detail, more=limits)


def check_join(spark: SparkSession) -> Finding:
    """Check that a join of a few rows returns the right number of rows, and whether the extension plans it."""
    from sparkext.api.join import pipelined_join

    started = time.perf_counter()
    left, right = spark.range(1000), spark.range(500).selectExpr("id", "id AS twice")
    joined = left.transform(pipelined_join(right, on="id"))
    rows = joined.count()
    if rows != 500:
        advice = "this is a bug in sparkext: please report it"
        return Finding(Status.FAIL, "a join", f"returned {rows} rows instead of 500", advice)
    timing = f"500 of 1,000 rows in {time.perf_counter() - started:.1f} s"
    if not plans_joins(spark):
        return Finding(Status.OK, "a join", f"{timing}, through mapInArrow: no extension plans joins in this session")
    if reasons := list_declined_joins(joined):
        return Finding(Status.WARN, "a join", f"{timing}, by Spark: the extension declined it", f"fix: {reasons[0]}")
    return Finding(Status.OK, "a join", f"{timing}, planned by the extension")


WORKER_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], Finding]] = {
    "worker python": check_worker_python,
    "worker imports": check_worker_imports,
    "numba cache": check_numba_cache,
    "memory": check_worker_memory,
}

SESSION_CHECKS = ("session", "options", "io encryption", "lake tables", "local dirs", *WORKER_CHECKS, "a join")
"""The titles of the checks that are reported as not checked if they do not run."""
