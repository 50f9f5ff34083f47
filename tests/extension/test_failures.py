"""Failures around a pipelined join: the error or fallback that users get, and that no files or threads remain."""

from __future__ import annotations

import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread, TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from sparkext.errors import EnvironmentProblemError
from sparkext.spark import jar, jvm
from sparkext.spark.launch import read_builder_options
from sparkext.storage.local_folder import local_folder
from sparkext.worker import work_order
from tests.support.planned_joins import assert_declined, assert_like_spark, assert_pipelined, mode, without_names
from tests.support.read_only import read_only_install, restricted_python
from tests.support.rows import rows_of
from tests.support.sessions import configured, started_with
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent
PATIENCE = 60.0
PYTHON = "spark.sparkext.python"


def joined(spark: SparkSession, probe: DataFrame | None = None, build: DataFrame | None = None) -> DataFrame:
    """Return a hinted join of `probe.k` with `build.dk`; both default to small tables."""
    probe = probe if probe is not None else spark.range(20).selectExpr("id", "id % 5 AS k")
    build = build if build is not None else spark.range(4).selectExpr("id AS dk", "concat('d', id) AS name")
    return probe.join(build.hint("pipelined_join"), F.col("k") == F.col("dk"))


def assert_usable(spark: SparkSession) -> None:
    assert_pipelined(assert_like_spark(spark, lambda: joined(spark)), 1)


def build_files(spark: SparkSession) -> set[str]:
    """Return the names of the files in the driver's folder of build sides."""
    return {
        file.name
        for folder in Path(spark.sparkContext._temp_dir).parent.glob("sparkext-*")
        for file in folder.iterdir()
    }


def assert_freed(spark: SparkSession, before: set[str]) -> None:
    """Assert that no publishing thread runs, and that no new file remains once plans are garbage-collected."""
    jvm = spark.sparkContext._jvm
    threads = getattr(
        getattr(jvm.org.apache.spark.sql.sparkext.build_sides, "BuildSidePublisher$"), "MODULE$"
    ).threads()
    wait_until(lambda: threads.getActiveCount() == 0, "all build threads have ended")

    def collected() -> bool:
        gc.collect()
        jvm.System.gc()
        return build_files(spark) <= before

    wait_until(collected, "all build files are deleted")


# --- build sides ---


def test_an_error_in_the_build_sides_query(spark: SparkSession) -> None:
    broken = spark.range(4).selectExpr("id AS dk", "if(id = 3, raise_error('no such luck'), 'x') AS name")
    frame = joined(spark, build=broken)
    assert_pipelined(frame, 1)
    with pytest.raises(Exception, match=r"\[USER_RAISED_EXCEPTION\] no such luck"):
        frame.collect()
    with mode(spark, "off"), pytest.raises(Exception, match=r"\[USER_RAISED_EXCEPTION\] no such luck"):
        joined(spark, build=broken).collect()
    assert_usable(spark)


def test_one_failing_build_side_ends_the_others(spark: SparkSession, tmp_path: Path) -> None:
    before = build_files(spark)
    started = tmp_path / "started"

    @F.udf("string", useArrow=False)
    def fail_once_the_other_runs(value: int) -> str:
        deadline = time.monotonic() + PATIENCE
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        raise ValueError("no such luck")

    slow = spark.range(0, 10_000, 1, 1).select(F.col("id").alias("ek"), sleeping(started)("id").alias("slept"))
    failing = spark.range(0, 4, 1, 1).select(F.col("id").alias("dk"), fail_once_the_other_runs("id").alias("name"))
    with configured(spark, spark_sql_adaptive_enabled="false"):
        chain = spark.range(20).selectExpr("id AS k").join(slow.hint("pipelined_join"), F.col("k") == F.col("ek"))
        frame = joined(spark, probe=chain, build=failing)
        assert_pipelined(frame, 2)
        with pytest.raises(Exception, match="ValueError: no such luck"):
            frame.collect()
    del frame
    assert_freed(spark, before)
    assert_usable(spark)


def test_files_are_freed_with_the_plan(spark: SparkSession) -> None:
    before = build_files(spark)
    frame = joined(spark)
    assert_pipelined(frame, 1)
    expected = rows_of(frame)
    assert build_files(spark) - before
    gc.collect()
    spark.sparkContext._jvm.System.gc()
    assert rows_of(frame) == expected
    frame.limit(1).collect()
    cached = joined(spark).cache()
    cached.count()
    cached.unpersist()
    del frame, cached
    assert_freed(spark, before)
    assert_usable(spark)


# --- tasks ---


def sleeping(started: Path) -> Callable[..., F.Column]:
    """Return a slow function that creates the file `started` when it is first called."""

    @F.udf("bigint", useArrow=False)
    def function(value: int) -> int:
        started.touch()
        time.sleep(0.1)
        return value

    return function


def test_no_report_of_a_task_that_is_cut_short_stays(spark: SparkSession) -> None:
    """The worker may write a report after its task in the JVM has looked for it, and be killed while it writes."""
    [folder] = spark.sparkContext.parallelize([0], 1).map(lambda _: local_folder()).collect()
    large = spark.range(0, 1_000_000, 1, 2).selectExpr("id", "id % 5 AS k")
    for _ in range(5):
        assert len(joined(spark, probe=large).limit(1).collect()) == 1
    (folder / "a-run.1.report.ab12.part").touch()
    jvm = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.sparkext.protocol.TaskReports.removeLater(
        jvm.java.io.File(str(folder / "a-run.1.report")).toPath()
    )
    wait_until(lambda: not [*folder.glob("*.report*")], "no report is left")


@pytest.mark.parametrize("side", ["build", "probe"])
def test_a_query_is_cancelled(spark: SparkSession, tmp_path: Path, side: str) -> None:
    before = build_files(spark)
    started = tmp_path / "started"
    numbers = spark.range(0, 10_000, 1, 2)
    raised: list[str] = []

    def run() -> None:
        spark.sparkContext.setJobGroup(f"cancelled {side}", "to be cancelled")
        if side == "build":
            frame = joined(spark, build=numbers.select(F.col("id").alias("dk"), sleeping(started)("id").alias("name")))
        else:
            frame = joined(spark, probe=numbers.select(sleeping(started)("id").alias("k")))
        assert_pipelined(frame, 1)
        try:
            frame.collect()
        except Exception as error:
            raised.append(str(error))

    thread = InheritableThread(target=run)
    thread.start()
    wait_until(started.exists, f"the {side} side runs")
    spark.sparkContext.cancelJobGroup(f"cancelled {side}")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(raised) == 1 and "cancelled" in raised[0], raised
    del thread, run
    assert_freed(spark, before)
    assert_usable(spark)


def test_a_failing_function_on_the_probe_side(spark: SparkSession) -> None:
    @F.udf("bigint", useArrow=False)
    def fail(value: int) -> int:
        raise ValueError("no such luck")

    frame = joined(spark, probe=spark.range(20).select(fail("id").alias("k")))
    assert_pipelined(frame, 1)
    with pytest.raises(Exception, match="ValueError: no such luck"):
        frame.collect()
    assert_usable(spark)


def test_a_killed_worker(spark: SparkSession, tmp_path: Path) -> None:
    """Without retries, the query fails instead of hanging."""
    frame = joined(
        spark, probe=spark.range(20).select(killing(tmp_path / "killed", tmp_path / "again")("id").alias("k"))
    )
    assert_pipelined(frame, 1)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        frame.collect()
    assert (tmp_path / "killed").exists()
    assert_usable(spark)


def killing(killed: Path, again: Path) -> Callable[..., F.Column]:
    """Return a function that kills all other workers at its first call, and records whether its task is a retry."""

    def others() -> list[int]:
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(status.read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == os.getppid() and int(status.parent.name) != os.getpid():
                found.append(int(status.parent.name))
        return found

    @F.udf("bigint", useArrow=False)
    def function(value: int) -> int:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            again.touch()
        try:
            os.close(os.open(killed, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return value % 5
        deadline = time.monotonic() + 10
        while len(others()) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)  # two tasks with two workers each
        for process in others():
            os.kill(process, signal.SIGKILL)
        time.sleep(1)
        return value % 5

    return function


# --- the environment ---


def script(path: Path, *lines: str) -> Path:
    """Write an executable shell script."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def worker_python(spark: SparkSession) -> Any:
    """Return the JVM object that queries Python interpreters."""
    return getattr(getattr(spark.sparkContext._jvm.org.apache.spark.sql.sparkext.python, "WorkerPython$"), "MODULE$")


def test_a_python_that_does_not_exist(spark: SparkSession) -> None:
    with started_with(spark, PYTHON, "/nonexistent/python"):
        out = assert_like_spark(spark, lambda: joined(spark))
        assert_declined(out, "no Python to run a pipeline: /nonexistent/python does not start: ")
    assert_usable(spark)


@pytest.mark.parametrize(
    ("options", "problem"),
    [("-I -S", "No module named 'sparkext'"), ("-S", "sparkext needs numba, numpy, pandas, pyarrow")],
)
def test_a_python_without_packages(spark: SparkSession, tmp_path: Path, options: str, problem: str) -> None:
    python = script(tmp_path / "python", f'cd "{ROOT}" && exec "{sys.executable}" {options} "$@"')
    with started_with(spark, PYTHON, python):
        out = assert_like_spark(spark, lambda: joined(spark))
        assert_declined(out, f"no Python to run a pipeline: {python} cannot run sparkext: ")
        assert problem in sparkext.declined(out)[0]


def test_a_python_that_cannot_cache_kernels(spark: SparkSession, tmp_path: Path) -> None:
    environment = read_only_install(tmp_path)
    (Path(environment["TMPDIR"]) / f"sparkext-{os.geteuid()}").touch()  # a file blocks the path of the private folder
    exports = [f"export {name}='{environment[name]}'" for name in ("HOME", "TMPDIR", "PYTHONPATH")]
    command = shlex.join(restricted_python())
    python = script(tmp_path / "python", *exports, 'cd "$TMPDIR"', "unset NUMBA_CACHE_DIR", f'exec {command} "$@"')
    answer = worker_python(spark).ask(str(python), 60_000)
    assert answer.isLeft()
    reason = without_names(str(answer.left().get()))
    assert reason.startswith(f"{python} cannot run sparkext: RuntimeError: no folder to cache compiled kernels in")


def test_a_session_cannot_name_the_python(spark: SparkSession) -> None:
    """The driver starts this Python, regardless of the session's user."""
    with pytest.raises(AnalysisException) as refused:
        spark.conf.set(PYTHON, "/nonexistent/python")
    assert refused.value.getCondition().startswith("CANNOT_MODIFY") and PYTHON in str(refused.value)
    with pytest.raises(AnalysisException, match=PYTHON):
        spark.sql(f"SET {PYTHON}=/nonexistent/python")
    assert_usable(spark)


def test_the_python_of_a_session_is_for_its_functions(spark: SparkSession) -> None:
    """Functions use the Python of the session.

    Pipelines use the Python that was checked, regardless of session settings.
    """
    function = F.udf(lambda value: value, "long")
    for named in ("/nonexistent/python", None, "/nonexistent/other"):
        settings = {} if named is None else {"spark_sql_execution_pyspark_python": named}
        with configured(spark, **settings):
            assert_usable(spark)
            called = spark.range(1).select(function("id"))
            if named is None:
                assert called.count() == 1 and called.collect() == [(0,)]
            else:
                with pytest.raises(Exception, match=f'Cannot run program "{named}"'):
                    called.collect()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["sleep 1000 & echo $! > {started}", "wait"], "does not answer within 0.5 s"),
        (["sleep 1000 & echo $! > {started}", "exec yes"], "printed more than 65536 bytes instead of its version"),
        (
            ["exec 3>&1; (setsid sleep 1000 >&3 & echo $! > {started}); echo 3.1 none"],
            "has sparkext none, but this jar",
        ),
    ],
    ids=["silent", "endless", "leaves its output open"],
)
def test_a_python_that_does_not_end(spark: SparkSession, tmp_path: Path, lines: list[str], problem: str) -> None:
    started = tmp_path / "started"
    python = script(tmp_path / "python", *(line.format(started=started) for line in lines))
    told = worker_python(spark).ask(str(python), 500)
    process = int(started.read_text())
    if "setsid" in lines[0]:
        os.kill(process, signal.SIGKILL)  # detached from its parent, so that nobody waits for it
    assert told.isLeft() and without_names(str(told.left().get())).startswith(f"{python} {problem}")
    wait_until(lambda: not Path(f"/proc/{process}").exists(), "what it has started is gone")


def test_a_python_that_hangs_is_not_waited_for_by_every_plan(spark: SparkSession, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    silent = script(tmp_path / "silent", f"echo >> {asked}", "exec sleep 1000")
    broken = script(tmp_path / "broken", f"echo >> {asked}", "exit 1")
    answers = spark._jvm.org.apache.spark.sql.sparkext.python.PythonAnswers(1000, 3000)  # type: ignore[union-attr]
    for python, times in ((silent, 1), (broken, 3)):
        asked.write_text("")
        assert [answers.of(str(python)).isLeft() for _ in range(3)] == [True] * 3
        assert len(asked.read_text()) == times
    asked.write_text("")
    time.sleep(3)
    assert answers.of(str(silent)).isLeft() and len(asked.read_text()) == 1


def test_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    """With `/path/to/venv/bin/python job.py`, functions run in the path's `python3`, as without the extension."""
    # That `python3` finds the packages that were copied there, but not this one, which is installed by a link.
    path = f'PYTHONPATH="$PYTHONPATH:{sysconfig.get_path("platlib")}"'
    script(tmp_path / "python3", f'{path} WHICH_PYTHON=another exec "{sys.executable}" -S "$@"')
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "PYTHONPATH"))}
    environment["PATH"] = os.pathsep.join([str(tmp_path), environment["PATH"]])
    ran = subprocess.run(
        [sys.executable, str(SCRIPTS / "scripts" / "unactivated.py")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env=environment,
    )
    assert ran.returncode == 0 and "all is well" in ran.stdout, ran.stdout + ran.stderr


def test_a_worker_of_another_version() -> None:
    """Planning checked that the driver's Python matches the jar's version. An executor may have another version."""
    with pytest.raises(EnvironmentProblemError, match=r"has sparkext 0\.0\.1, but this worker .* has "):
        work_order.make(json.dumps({"package": "0.0.1"}))


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate the state before the first session."""
    monkeypatch.setattr(jvm, "read_running_conf", lambda key: None)
    monkeypatch.setattr(jvm, "find_jvm", lambda: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)


@pytest.mark.usefixtures("no_jvm")
def test_configure_keeps_what_is_set() -> None:
    builder = SparkSession.Builder()
    builder.config("spark.jars", "a.jar, b.jar").config("spark.sql.extensions", "org.example.Other")
    builder.config("spark.python.daemon.module", "their.daemon").config("spark.sparkext.python", "their-python")
    for _ in range(2):
        assert sparkext.configure(builder) is builder
        options = read_builder_options(builder)
        assert options["spark.jars"] == f"a.jar,b.jar,{jar.locate_jar()}"
        assert options["spark.sql.extensions"] == "org.example.Other,io.sparkext.SparkExtensions"
        assert options["spark.python.daemon.module"] == "their.daemon"
        assert options["spark.sparkext.python"] == "their-python"


@pytest.mark.usefixtures("no_jvm")
def test_configure_keeps_what_the_command_line_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark starts its JVM with this command line, and only jars on the command line are loaded."""
    line = "--conf spark.sql.extensions=org.example.Other --conf=spark.python.daemon.module=theirs {} pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", line.format("--driver-memory 2g"))
    options = read_builder_options(sparkext.configure(SparkSession.Builder()))
    assert options["spark.sql.extensions"] == "org.example.Other,io.sparkext.SparkExtensions"
    assert options["spark.python.daemon.module"] == "theirs"
    assert options["spark.jars"] == str(jar.locate_jar())
    for given in ("--jars a.jar", "--jars=a.jar", "-c spark.jars=a.jar"):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", line.format(given))
        with pytest.raises(EnvironmentProblemError, match=r"PYSPARK_SUBMIT_ARGS names jars \(a\.jar\).*sparkext_"):
            sparkext.configure(SparkSession.Builder())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", line.format(f"--jars a.jar,{jar.locate_jar()}"))
    options = read_builder_options(sparkext.configure(SparkSession.Builder()))
    assert options["spark.jars"] == f"a.jar,{jar.locate_jar()}"
    name = jar.locate_jar().name
    for given in (f"--jars 'a.jar, hdfs:/jars/{name}'", f"--jars a.jar --driver-class-path /b.jar:/opt/{name}"):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", line.format(given))
        sparkext.configure(SparkSession.Builder())


@pytest.mark.usefixtures("no_jvm")
def test_configure_keeps_what_a_file_of_the_command_line_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark reads this file instead of `spark-defaults.conf`, or after it."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.jars default.jar\nspark.python.daemon.module theirs\n")
    own = tmp_path / "own.conf"
    own.write_text("# mine\nspark.jars=own.jar\nspark.sql.extensions: org.example.Other\n")
    for given, daemon in (("", "sparkext.daemon"), ("--load-spark-defaults", "theirs")):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {own} {given} pyspark-shell")
        options = read_builder_options(sparkext.configure(SparkSession.Builder()))
        assert options["spark.jars"] == f"own.jar,{jar.locate_jar()}"
        assert options["spark.sql.extensions"] == "org.example.Other,io.sparkext.SparkExtensions"
        assert options["spark.python.daemon.module"] == daemon


def test_configure_where_the_extension_runs(spark: SparkSession) -> None:
    builder = SparkSession.Builder()
    assert sparkext.configure(builder) is builder
    assert "spark.jars" not in read_builder_options(builder)
    assert builder.getOrCreate().sparkContext is spark.sparkContext


@pytest.mark.usefixtures("no_jvm")
def test_a_missing_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jar, "JAR_FOLDER", tmp_path)
    with pytest.raises(EnvironmentProblemError, match=r"there is no jar for Spark .*jar --build"):
        sparkext.configure(SparkSession.Builder())


@pytest.mark.parametrize("script", ["retries_stops_encryption.py", "configured_too_late.py", "from_object_store.py"])
def test_in_a_process_of_its_own(tmp_path: Path, script: str) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, SCRIPTS / "scripts" / script, tmp_path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1:] == ["all is well"], done.stdout + done.stderr[-9000:]
