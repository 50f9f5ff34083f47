"""Publication of build sides in classic sessions: one copy per node, deleted in time, safe against failures."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import pyarrow as pa
import pytest
from pyspark.accumulators import _accumulatorRegistry
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join, report
from sparkext.build_sides import published_files, sources
from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import INDEX_SUFFIX, LOCK_SUFFIX
from sparkext.errors import BuildSideTooLargeError
from sparkext.joins import publishing
from sparkext.joins.lineage import find_lineage
from sparkext.kernels.keys.normalised import normalise_keys
from sparkext.storage.container import atomic_file
from sparkext.storage.last_used import LruCache
from tests.api.spark_checks import assert_like_spark, assert_pipelined
from tests.support.frames import frame

HERE = Path(__file__).parent
PATIENCE = 60
FULL_MASK = (1 << 64) - 1
RECIPE = IndexRecipe((0,), (pa.int64(),), (False,), "auto", FULL_MASK)


# Memory-mapped files of processes.


@dataclass
class Mapping:
    """The mappings of one file by one process; sizes in KiB are sums over all mappings."""

    path: str
    inode: int
    rss: int = 0
    pss: int = 0
    anonymous: int = 0


_SIZES = {"Rss": "rss", "Pss": "pss", "Anonymous": "anonymous"}


def mapped_files(process: int, name: str) -> dict[str, Mapping]:
    """Return the process's mappings of files whose path contains `name`, by path. Empty if the process has ended."""
    found: dict[str, Mapping] = {}
    current: Mapping | None = None
    try:
        lines = Path(f"/proc/{process}/smaps").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        header = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+) +(/.*)?$", line)
        if header:
            inode, path = int(header[1]), header[2] or ""
            current = found.setdefault(path, Mapping(path, inode)) if name in path else None
            continue
        size = re.match(r"(\w+): +(\d+) kB", line)
        if size and current is not None and size[1] in _SIZES:
            attribute = _SIZES[size[1]]
            setattr(current, attribute, getattr(current, attribute) + int(size[2]))
    return found


def python_workers() -> list[int]:
    """Return Spark's Python workers and their daemons below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def workers_that_map(name: str) -> dict[int, dict[str, Mapping]]:
    """Return each Python worker's mappings of files whose path contains `name`, by process."""
    by_process = {process: mapped_files(process, name) for process in python_workers()}
    return {process: files for process, files in by_process.items() if files}


def assert_one_copy(name: str, build_suffix: str) -> None:
    """Assert that two workers map the same build file and index, without copied pages, and share them in memory."""
    by_process = workers_that_map(name)
    assert len(by_process) == 2, by_process
    first, second = by_process.values()
    assert set(first) == set(second)
    assert sorted(Path(path).suffix for path in first) == sorted([build_suffix, INDEX_SUFFIX])
    for path in first:
        assert first[path].inode == second[path].inode == Path(path).stat().st_ino
        for mapping in (first[path], second[path]):
            assert mapping.rss > 512
            assert mapping.anonymous == 0  # no page was copied on write
            assert mapping.pss < 0.9 * mapping.rss, mapping
        assert first[path].pss + second[path].pss <= Path(path).stat().st_size / 1024 + 64


def meeting(folder: Path, tasks: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that waits until `tasks` tasks have started, each in its own worker."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (folder / str(os.getpid())).touch()
        started = time.monotonic()
        while len(list(folder.iterdir())) < tasks:
            assert time.monotonic() - started < 60, "the tasks do not run at the same time"
            time.sleep(0.01)
        yield from batches

    return wait


def probe_in_two_workers(spark: SparkSession, folder: Path) -> DataFrame:
    """Return 200,000 rows `k` in two partitions, each of which spans all keys, whose tasks run at the same time."""
    folder.mkdir()
    spread = (F.col("id") % 100_000 * 1_000_003).alias("k")
    return spark.range(0, 200_000, 1, 2).select(spread).mapInArrow(meeting(folder, 2), "k bigint")


def build_of_megabytes(spark: SparkSession) -> DataFrame:
    """Return 100,000 rows whose keys need a hash index: some megabytes of rows, and as many for the index."""
    return spark.range(100_000).select((F.col("id") * 1_000_003).alias("k"), F.col("id").alias("w"))


def test_one_copy_of_build_side_and_index_per_node(spark: SparkSession, tmp_path: Path) -> None:
    probe, build = probe_in_two_workers(spark, tmp_path / "meeting"), build_of_megabytes(spark)
    out = probe.transform(pipelined_join(build, "k"))
    assert_pipelined(out, joins=1, crossings=2)  # the other crossing is the barrier's
    assert out.select(F.sum("w"), F.count("*")).first() == (2 * sum(range(100_000)), 200_000)
    assert report(out).joins[0].index == "hash"
    assert_one_copy(path_of(out).name, "")


# Files on the driver.


def path_of(df: DataFrame, number: int = 0) -> Path:
    lineage = find_lineage(df)
    assert lineage is not None
    source = lineage.sources[number]
    assert isinstance(source, published_files.BroadcastFile)
    return source.path()


def files_of(path: Path) -> set[str]:
    """Return the names of the build file, its indexes, their locks, and any other file with its prefix."""
    return {item.name for item in path.parent.glob(f"{path.name}*")}


def driver_files(spark: SparkSession) -> set[str]:
    return {item.name for item in Path(spark.sparkContext._temp_dir).iterdir()}


def sweep(spark: SparkSession) -> None:
    """Collect garbage in both languages, then publish a build side, which deletes unreferenced ones."""
    gc.collect()
    spark.sparkContext._jvm.java.lang.System.gc()
    left_of(spark).transform(pipelined_join(right_of(spark), "k"))


def swept(spark: SparkSession, done: Callable[[], bool]) -> bool:
    """Sweep until `done`; give up after 20 seconds."""
    started = time.monotonic()
    while not done():
        if time.monotonic() - started > 20:
            return False
        sweep(spark)
        time.sleep(0.2)
    return True


def left_of(spark: SparkSession) -> DataFrame:
    return frame(spark, k=[1, 2, 2, None, 5], v=list("abcde"))


def right_of(spark: SparkSession) -> DataFrame:
    return frame(spark, k=[2, 2, 5, None, 7], w=list("ABCDE"))


def join_and_run(spark: SparkSession) -> tuple[DataFrame, Path]:
    out, rows = assert_like_spark(left_of(spark), right_of(spark), "k")
    assert rows.total() == 5
    path = path_of(out)
    assert {Path(name).suffix for name in files_of(path)} == {"", INDEX_SUFFIX, LOCK_SUFFIX}
    return out, path


def test_files_go_when_no_plan_refers_to_them(spark: SparkSession) -> None:
    out, path = join_and_run(spark)
    for _ in range(2):
        sweep(spark)
    assert path.exists() and str(path) in publishing._published
    assert out.count() == 5
    del out
    assert swept(spark, lambda: not path.exists())
    assert files_of(path) == set()
    assert str(path) not in publishing._published


def select_of(spark: SparkSession, out: DataFrame) -> Callable[[], int]:
    return out.where("w is not null").select("w").count


def view_of(spark: SparkSession, out: DataFrame) -> Callable[[], int]:
    out.createOrReplaceTempView("publishing_view")
    return lambda: spark.table("publishing_view").count()


def rdd_of(spark: SparkSession, out: DataFrame) -> Callable[[], int]:
    rows = out.rdd
    return lambda: len(rows.collect())


def chain_of(spark: SparkSession, out: DataFrame) -> Callable[[], int]:
    """The second join's pipeline replaces the first one, and needs its build side."""
    other = frame(spark, w=["A", "B", "C"], x=[1, 2, 3])
    longer = out.transform(pipelined_join(other, "w"))
    assert_pipelined(longer, joins=2)
    return longer.count


def full_join_of(spark: SparkSession, out: DataFrame) -> Callable[[], int]:
    longer = out.transform(pipelined_join(frame(spark, w=["A", "B", "C"]), "w", "full"))
    assert_pipelined(longer, joins=1, crossings=3)
    return longer.count


@pytest.mark.parametrize("derive", [select_of, view_of, rdd_of, chain_of, full_join_of], ids=lambda each: each.__name__)
def test_files_stay_while_something_derived_lives(
    spark: SparkSession, derive: Callable[[SparkSession, DataFrame], Callable[[], int]]
) -> None:
    out, path = join_and_run(spark)
    run = derive(spark, out)
    del out
    for _ in range(2):
        sweep(spark)
    assert path.exists()
    assert run() == 5
    assert path.exists()
    spark.catalog.dropTempView("publishing_view")
    del run
    assert swept(spark, lambda: not path.exists())
    assert files_of(path) == set()


def test_a_frame_that_never_ran_leaves_nothing_either(spark: SparkSession) -> None:
    out = left_of(spark).transform(pipelined_join(right_of(spark), "k"))
    path = path_of(out)
    assert files_of(path) == {path.name}
    del out
    assert swept(spark, lambda: not path.exists())


def test_a_failing_build_side_raises_what_spark_raises_and_leaves_nothing(spark: SparkSession) -> None:
    @F.udf("bigint")
    def refuse(value: int) -> int:
        raise ValueError(f"no such value: {value}")

    before, published = driver_files(spark), set(publishing._published)
    failing = spark.range(3).select(refuse("id").alias("k"))
    with pytest.raises(PythonException, match="no such value"):
        failing.toArrow()
    with pytest.raises(PythonException, match="no such value"):
        left_of(spark).transform(pipelined_join(failing, "k"))
    assert driver_files(spark) <= before
    assert set(publishing._published) == published
    join_and_run(spark)


def test_too_large_a_build_side_leaves_neither_files_nor_jobs(spark: SparkSession) -> None:
    before, published = driver_files(spark), set(publishing._published)
    large = spark.range(0, 3_000_000, 1, 30).select(F.col("id").alias("k"))
    with pytest.raises(BuildSideTooLargeError, match=r"rows.*1,000,000"):
        left_of(spark).transform(pipelined_join(large, "k", max_build_bytes=1_000_000, partitioned=False))
    assert driver_files(spark) <= before
    assert set(publishing._published) == published
    tracker, started = spark.sparkContext.statusTracker(), time.monotonic()
    while tracker.getActiveJobsIds():
        assert time.monotonic() - started < PATIENCE, "the build side's job is still running"
        time.sleep(0.05)
    join_and_run(spark)


def test_the_job_of_too_large_a_build_side_is_cancelled(spark: SparkSession) -> None:
    """Other jobs continue, even if the error, and so its traceback with all frames, is still referenced."""
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.05)
            yield batch

    large = spark.range(0, 12_000_000, 1, 40).withColumnRenamed("id", "k").mapInArrow(slowly, "k bigint")
    context.setJobGroup("too large", "a build side")
    try:
        with pytest.raises(BuildSideTooLargeError) as kept:
            left_of(spark).transform(pipelined_join(large, "k", max_build_bytes=1_000_000, partitioned=False))
    finally:
        context._jsc.clearJobGroup()
    assert spark.range(10).count() == 10
    (stage,) = (stage for job in tracker.getJobIdsForGroup("too large") for stage in tracker.getJobInfo(job).stageIds)
    started = time.monotonic()
    while stage in tracker.getActiveStageIds():
        assert time.monotonic() - started < PATIENCE
        time.sleep(0.05)
    assert tracker.getStageInfo(stage).numCompletedTasks < 40
    del kept


def test_a_publication_that_fails_leaves_nothing(spark: SparkSession) -> None:
    before, published = driver_files(spark), set(publishing._published)

    def write(stream: IO[bytes]) -> None:
        stream.write(b"x" * 10_000_000)
        raise OSError(errno.ENOSPC, "the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        publishing.publish_file(spark, write)
    assert driver_files(spark) <= before
    assert set(publishing._published) == published


def test_build_sides_that_go_at_once_in_two_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both threads detect that the content has been collected before either deletes the file.

    A second build side's folder no longer exists.
    """
    both = threading.Barrier(2)

    class Gone:
        def refersTo(self, other: None) -> bool:
            both.wait(PATIENCE)
            return True

    class Running:
        _jsc = object()

    context, path, vanished = Running(), tmp_path / "side", tmp_path / "vanished" / "side"
    path.touch()
    owned = {str(path): (weakref.ref(context), Gone()), str(vanished): (lambda: None, None)}
    monkeypatch.setattr(publishing, "_published", owned)
    with ThreadPoolExecutor(2) as pool:
        for sweeping in [pool.submit(publishing._sweep) for _ in range(2)]:
            sweeping.result()
    assert not owned and not path.exists()


def test_metrics_go_with_their_frame(spark: SparkSession) -> None:
    """PySpark itself keeps accumulators and their values until the application ends."""

    def held() -> int:
        gc.collect()
        params = [one for one in _accumulatorRegistry.values() if type(one.accum_param).__name__ == "LastRun"]
        return sum(len(one.value) for one in params)

    before = held()
    out, _ = join_and_run(spark)
    assert held() > before
    del out
    assert held() <= before


def test_fifty_joins_in_a_row_do_not_pile_up(spark: SparkSession) -> None:
    """Neither workers (descriptors, mapped files) nor the driver (descriptors, files) accumulate resources."""
    folder = spark.sparkContext._temp_dir

    def descriptors() -> int:
        return max(psutil.Process(process).num_fds() for process in python_workers())

    def join(number: int) -> None:
        build = spark.createDataFrame(pa.table({"k": [number, 5], "w": [number, -number]}))
        out = probe.transform(pipelined_join(build, "k"))
        assert sorted(row.w for row in out.collect()) == sorted([number, -number])
        assert report(out).joins[0].build_rows == 2

    # The probe side is not a local relation, which Spark would evaluate without a worker.
    probe = spark.range(0, 1000, 1, 2).select(F.col("id").alias("k"))
    for number in range(100, 110):
        join(number)
    before, of_driver = descriptors(), psutil.Process().num_fds()
    files: list[dict[str, Mapping]] = []
    for number in range(110, 150):
        join(number)
        files = list(workers_that_map(folder).values())
        assert all(len(each) <= 2 * 16 for each in files), [len(each) for each in files]
    assert files
    assert descriptors() <= before + 3
    assert psutil.Process().num_fds() <= of_driver + 5
    assert swept(spark, lambda: len(publishing._published) <= 5), publishing._published
    kept = {Path(path).name for path in publishing._published}
    left = {name.split(".")[0] for name in driver_files(spark)}
    assert len(left - kept) <= 5, left - kept


# Indexes that cannot be shared.


def published_file(folder: Path, keys: list[int]) -> Path:
    path = folder / "side"
    with atomic_file(path) as stream:
        write_build_file(pa.table({"key": pa.array(keys, pa.int64())}), stream)
    return path


@dataclass(frozen=True)
class LocalFile(published_files.MappedFile):
    """A build file outside of Spark's broadcasts."""

    where: Path

    def path(self) -> Path:
        return self.where


def no_space(path: Path, recipe: IndexRecipe) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def matches_of(side: Any, keys: list[int]) -> list[list[int]]:
    matches = side.index.lookup(normalise_keys([pa.array(keys, pa.int64())], [False]))
    from tests.support.kernel_inputs import match_lists

    return match_lists(matches)


def test_an_index_that_does_not_fit_the_disk_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = published_file(tmp_path, [10, 5, 10])
    monkeypatch.setattr(published_files, "open_build_side", no_space)
    monkeypatch.setattr(sources, "_private", LruCache(sources._PRIVATE_BUILD_SIDES))
    source = LocalFile(path)
    with pytest.warns(UserWarning, match=r"(?s)No space left on device.*own copy in memory"):
        side = source.open(RECIPE)
    assert side.rows == 3
    assert matches_of(side, [10, 5, 7]) == [[0, 2], [1], []]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert source.open(RECIPE) is side
        other = source.open(IndexRecipe((0,), (pa.int64(),), (False,), "sort_merge", FULL_MASK))
    assert other.index.kind == "ordered"
    assert {item.name for item in tmp_path.iterdir()} == {"side"}


def test_a_private_index_does_not_outlive_its_build_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is the same, but the rows differ."""
    monkeypatch.setattr(published_files, "open_build_side", no_space)
    monkeypatch.setattr(sources, "_private", LruCache(sources._PRIVATE_BUILD_SIDES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert matches_of(LocalFile(published_file(tmp_path, [10, 5, 10])).open(RECIPE), [10, 5]) == [[0, 2], [1]]
        assert matches_of(LocalFile(published_file(tmp_path, [5, 10, 7])).open(RECIPE), [10, 5]) == [[1], [0]]


def test_private_indexes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_files, "open_build_side", no_space)
    monkeypatch.setattr(sources, "_private", LruCache(sources._PRIVATE_BUILD_SIDES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(2 * sources._PRIVATE_BUILD_SIDES):
            folder = tmp_path / str(number)
            folder.mkdir()
            side = LocalFile(published_file(folder, [number])).open(RECIPE)
            assert matches_of(side, [number, -1]) == [[0], []]
            assert len(sources._private) <= sources._PRIVATE_BUILD_SIDES


def test_a_build_file_that_is_gone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError), warnings.catch_warnings():
        warnings.simplefilter("error")
        LocalFile(tmp_path / "nowhere").open(RECIPE)
    monkeypatch.setattr(published_files, "open_build_side", no_space)
    with pytest.raises(OSError, match="No space left"):
        LocalFile(tmp_path / "nowhere").open(RECIPE)


@dataclass
class FakeBroadcast:
    """An encrypted broadcast in a worker: its value, already decrypted."""

    value: bytes


def test_encrypted_build_sides_are_not_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers release broadcasts between tasks.

    The next one may reuse the same memory address, and must not be confused.
    """
    monkeypatch.setattr(sources, "_private", LruCache(sources._PRIVATE_BUILD_SIDES))
    for number in range(20):
        sink = pa.BufferOutputStream()
        write_build_file(pa.table({"key": pa.array([number, 100], pa.int64())}), sink)
        broadcast = FakeBroadcast(sink.getvalue().to_pybytes())
        side = published_files.BroadcastBytes(str(number), broadcast).open(RECIPE)
        assert matches_of(side, [number, number - 1]) == [[0], []]
        del broadcast, side


# Separate sessions.


def run_alone(script: str, *arguments: object) -> tuple[dict[str, Any], str]:
    """Run a script in a process of its own; return its last line of output as JSON, and its stderr."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PREAMBLE) + textwrap.dedent(script), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=HERE.parent.parent,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1]), ran.stderr


PREAMBLE = """
import gc, json, os, sys
from pathlib import Path
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
import pyarrow as pa
from pyspark.sql import SparkSession, functions as F
from tests.api.spark_checks import assert_pipelined, rows_of, spark_join
from tests.support.frames import frame
from sparkext import pipelined_join, report
from sparkext.errors import InvalidJoinError
from sparkext.joins import publishing
from sparkext.joins.lineage import find_lineage

def session(master="local[2]", **settings):
    builder = SparkSession.builder.master(master)
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
             "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
             "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    for key, value in {**quiet, **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark

def joined(left, right, on="k", how="inner", crossings=1):
    out = left.transform(pipelined_join(right, on, how))
    assert_pipelined(out, joins=1, crossings=crossings)
    want, got = rows_of(spark_join(left, right, on, how)), rows_of(out)
    assert got == want, (got, want)
    return out

def source_of(out):
    return find_lineage(out).sources[0]
"""


def test_encryption_gives_right_answers_and_warns_once() -> None:
    told, stderr = run_alone(
        """
        spark = session(**{"spark.io.encryption.enabled": "true"})
        probe = spark.range(0, 200, 1, 4).select(F.col("id").alias("k"))
        kinds = set()
        for number in range(18):  # more than a worker keeps open
            right = frame(spark, k=[number, number + 1, None], w=[str(number), "x", "y"])
            out = joined(probe, right, "k", ("inner", "left", "anti")[number % 3])
            kinds.add(type(source_of(out)).__name__)
            gc.collect()
        for how in "right", "full":
            out = joined(probe, right, "k", how, crossings=2)
            kinds.add(type(source_of(out)).__name__)
        told = {"kinds": sorted(kinds), "published": len(publishing._published)}
        try:
            probe.transform(pipelined_join(right, "k", partitioned=True))
        except InvalidJoinError as error:
            told["refused"] = "spark.io.encryption.enabled" in str(error)
        print(json.dumps(told))
        spark.stop()
        """
    )
    assert told == {"kinds": ["BroadcastBytes"], "published": 0, "refused": True}
    assert len(re.findall(r"UserWarning: spark\.io\.encryption\.enabled", stderr)) == 1, stderr


def test_stopping_the_session_removes_every_file(tmp_path: Path) -> None:
    told, _ = run_alone(
        """
        local = Path(sys.argv[1])
        def files():
            return sorted(str(p) for p in local.rglob("*") if p.is_file())
        spark = session(**{"spark.local.dir": str(local)})
        probe = spark.range(0, 20, 1, 2).select(F.col("id").alias("k"))
        kept = [joined(probe, frame(spark, k=[1, 2, n]), "k") for n in range(3)]
        paths = [source_of(out).path() for out in kept]
        suffixes = sorted({p.suffix for path in paths for p in path.parent.glob(path.name + "*")})
        published = len(publishing._published)
        spark.stop()
        again = session(**{"spark.local.dir": str(local)})
        probe = again.range(0, 20, 1, 2).select(F.col("id").alias("k"))
        out = joined(probe, frame(again, k=[1, 2]), "k")
        after_stop = [str(p) for path in paths for p in path.parent.glob(path.name + "*")]
        published_again = sorted(publishing._published) == [str(source_of(out).path())]
        again.stop()
        print(json.dumps({"suffixes": suffixes, "published": published, "inside": str(local) in str(paths[0]),
                          "after_stop": after_stop, "published_again": published_again}))
        """,
        tmp_path,
    )
    assert [item for item in tmp_path.rglob("*") if item.is_file()] == []
    assert told["inside"] and told["published_again"] and told["published"] >= 3
    assert told["suffixes"] == ["", INDEX_SUFFIX, LOCK_SUFFIX]
    assert told["after_stop"] == []


DAEMON = """
import errno, os, signal, sys, time
from pathlib import Path

from pyspark import daemon
from sparkext.build_sides import index_builder
from sparkext.build_sides import index_store

TOKENS = Path(os.environ["TOKENS"])
build_index, write_index_file = index_builder.build_index, index_store.write_index_file

def taken(token):
    try:
        (TOKENS / token).rename(TOKENS / (token + " taken"))
    except FileNotFoundError:
        return False
    return True

def build(rows, columns, recipe, threads):
    with (TOKENS / "builds").open("a") as log:
        log.write("build\\n")
    if taken("die building"):
        os.kill(os.getpid(), signal.SIGKILL)
    return build_index(rows, columns, recipe, threads)

def write(index, info, stream, columns):
    if taken("die writing"):
        write_index_file(index, info, stream, columns)
        stream.truncate(stream.tell() // 2)
        stream.flush()
        (TOKENS / "half-written").write_text(stream.name if isinstance(stream.name, str) else "open")
        os.kill(os.getpid(), signal.SIGKILL)
    if (TOKENS / "disk full").exists():
        raise OSError(errno.ENOSPC, "No space left on device")
    write_index_file(index, info, stream, columns)

index_builder.build_index, index_store.write_index_file = build, write

if __name__ == "__main__":
    daemon.manager()
"""


def test_a_builder_that_is_killed_in_a_task(tmp_path: Path) -> None:
    """The worker dies within Spark: the task is retried, and another worker completes the index build.

    The workers' daemon is replaced by one that patches the index store, so that the package itself runs unchanged.
    """
    code, tokens = tmp_path / "code", tmp_path / "tokens"
    code.mkdir()
    tokens.mkdir()
    (code / "dying_daemon.py").write_text(DAEMON)
    told, _ = run_alone(
        """
        code, tokens = map(Path, sys.argv[1:])
        spark = session("local[2,3]", **{
            "spark.python.daemon.module": "dying_daemon",
            "spark.executorEnv.PYTHONPATH": str(code),
            "spark.executorEnv.TOKENS": str(tokens),
        })
        told = {}
        probe = spark.range(0, 2000, 1, 2).select((F.col("id") * 1000003).alias("k"))
        for number, token in enumerate(["none", "die building", "die writing", "disk full"]):
            (tokens / "builds").unlink(missing_ok=True)
            (tokens / token).touch()
            right = spark.range(number, 1000).select((F.col("id") * 1000003).alias("k"), F.col("id").alias("w"))
            out = joined(probe, right)
            tasks = report(out).tasks
            path = source_of(out).path()
            beside = sorted(p.suffix for p in path.parent.glob(path.name + ".*"))
            told[token] = {
                "rows": sum(task.rows_in for task in tasks),
                "attempts": max(task.task.attempt for task in tasks),
                "taken": (tokens / (token + " taken")).exists(),
                "builds": len((tokens / "builds").read_text().splitlines()) if (tokens / "builds").exists() else 0,
                "beside": beside,
            }
            (tokens / token).unlink(missing_ok=True)
        told["half-written"] = (tokens / "half-written").exists()
        print(json.dumps(told))
        spark.stop()
        """,
        code,
        tokens,
    )
    shared = sorted([INDEX_SUFFIX, LOCK_SUFFIX])
    assert told["none"] == {"rows": 2000, "attempts": 0, "taken": False, "builds": 1, "beside": shared}
    for token in ("die building", "die writing"):
        assert told[token] == {"rows": 2000, "attempts": 1, "taken": True, "builds": 2, "beside": shared}, token
    assert told["half-written"]
    full = told["disk full"]
    assert full["rows"] == 2000 and full["attempts"] == 0
    assert full["beside"] == [LOCK_SUFFIX]
