"""Hundreds of small queries in one session, with a look for leaked resources."""

from __future__ import annotations

import gc
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa

import sparkext
from bench.engines.spark_session import spark_session
from bench.harness import Bench, Case, WrongAnswerError
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Queries of all types alternate. After every few queries, garbage is collected in Python and the JVM, and resources are
counted: memory, file descriptors and mappings of Python workers, descriptors of the JVM, files, broadcasts. The last
quarter of the samples after the warm-up is compared with the first: steady growth is a leak. A query that fails in a
worker ends the worker, which would hide its leaks. Such queries run afterwards, in a separate round, which looks for
leaks outside of workers.
soak.theta: every second function captures another number. A case fails if a resource has grown by more than its
tolerance."""

_QUERIES, _WARM_UP = 500, 100
_EVERY = 25
_FAILING = 2 * _EVERY
_SETTLING_SECONDS = 20.0

Query = Callable[[], None]


@dataclass(frozen=True)
class Column:
    """A counted resource, and the tolerated growth between the medians of quarters: a share and an absolute amount."""

    name: str
    share: float
    amount: float
    in_workers: bool = False

    @property
    def tolerance(self) -> str:
        """The tolerance as text."""
        return f"{self.share:.0%} + {self.amount:g}"

    def grown(self, before: float, after: float) -> bool:
        """Return whether the growth exceeds the tolerance."""
        return after > before * (1 + self.share) + self.amount


COLUMNS = (
    Column("workers", 0, 0, in_workers=True),
    Column("worker RSS MiB", 0.05, 8, in_workers=True),
    Column("worker anon MiB", 0.05, 8, in_workers=True),
    Column("worker fds", 0, 2, in_workers=True),
    Column("worker maps", 0.02, 10, in_workers=True),
    Column("mapped files", 0, 2, in_workers=True),
    Column("daemon RSS MiB", 0.05, 4),
    Column("daemon fds", 0, 2),
    Column("daemon maps", 0.02, 10),
    Column("JVM fds", 0, 5),
    Column("JVM threads", 0, 8),
    Column("driver fds", 0, 2),
    Column("driver anon MiB", 0.05, 8),
    Column("local files", 0, 6),
    Column("broadcasts", 0, 4),
    Column("build sides", 0, 2),
    Column("operators", 0, 4),
    Column("/dev/shm", 0, 0),
    Column("temp files", 0, 0),
)

_LIVE = {
    "broadcasts": "org.apache.spark.broadcast.TorrentBroadcast",
    "build sides": "org.apache.spark.api.python.PythonBroadcast",
    "operators": "org.apache.spark.sql.sparkext.exec.PipelinedJoinExec",
}

Sample = dict[str, float]


def cases() -> list[Case]:
    """Return the cases: queries of all types, and theta joins alone."""
    title = f"{_QUERIES} small queries in one session: growth of resources"
    theta = f"{_QUERIES} theta joins in one session, each with a new function: growth of resources"
    return [
        Case("soak.queries", title, partial(_run, False), scaled=False, named=True),
        Case("soak.theta", theta, partial(_run, True), scaled=False, named=True),
    ]


def _run(theta: bool, bench: Bench) -> None:
    count = 2 * _EVERY if bench.tiny else _QUERIES
    with tempfile.TemporaryDirectory() as folder:
        local, tables = Path(folder) / "local", Path(folder) / "tables"
        local.mkdir()
        with _session(Path(folder), local) as spark:
            queries = Queries(spark, tables)
            probe = Probe(spark, local)
            samples = _soaked(queries.theta_alone if theta else queries.rotation, queries, probe, count)
            failing = _soaked(queries.failing_in_workers, queries, probe, _FAILING)
    grown = report(samples) + report_failing(failing)
    if grown and not bench.tiny:
        raise WrongAnswerError("\n".join(f"GROWN: {line}" for line in grown))


@contextmanager
def _session(folder: Path, local: Path) -> Iterator[SparkSession]:
    # A temporary folder of its own separates the files of this session from the files of other processes.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # If set, it would override spark.local.dir.
    os.environ.pop("SPARK_LOCAL_DIRS", None)
    settings = {
        "spark.local.dir": str(local),
        "spark.sparkext.mode": "hint",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder}",
    }
    with spark_session(2, sparkext.configure, **settings) as spark:
        yield spark


def _soaked(rotation: Sequence[Query], queries: Queries, probe: Probe, count: int) -> list[tuple[int, Sample]]:
    """Run `count` queries in turn; return samples before the first query and after every `_EVERY` queries."""
    samples = [(0, probe.sample())]
    started = time.perf_counter()
    for number in range(1, count + 1):
        rotation[number % len(rotation)]()
        if number % _EVERY == 0:
            queries.sweep()
            samples.append((number, probe.sample()))
            print(f"  {number} queries in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return samples


class Queries:
    """Small queries of all types, as functions that run a query and compare its number of rows with its first run.

    Build sides are files (`dims`) and rows from Spark (`made`).
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._answers: dict[str, int] = {}
        self._write(folder)
        kinds = ("JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "RIGHT JOIN")
        joins = [f"{kind} {build} ON k = dk" for kind in kinds for build in ("dims", "made")]
        joins += [
            "JOIN dims ON at >= low AND at < high",
            "LEFT JOIN made ON k = dk AND at > low",
            "JOIN dims ON abs(x - low) < 1 AND k + dk > 90",
            "JOIN dims ON k = dims.dk LEFT JOIN made ON k = made.dk",
            "JOIN dims ON k = dk LIMIT 5",
        ]
        self.rotation: list[Query] = [
            *(self._counted(f"SELECT /*+ PIPELINED_JOIN(dims, made) */ * FROM facts {join}") for join in joins),
            self._counted("as of", self._as_of),
            self._counted("theta", self._theta),
            self._counted("local", self._local),
            self._failing("raise_error", "no such luck", self._broken_build_side),
            self._failing("too large", "does not fit", self._large_build_side),
        ]
        self.theta_alone: list[Query] = [self._theta_with_its_rows]
        self._thetas = 0
        self.failing_in_workers = [self._failing("theta", "no such luck", self._broken_theta), self.rotation[0]]

    def sweep(self) -> None:
        """Remove the files of transforms that no longer exist, by running a transform, which removes them."""
        gc.collect()
        self._spark.sparkContext._jvm.System.gc()
        self._local().collect()

    def _write(self, folder: Path) -> None:
        facts = self._spark.range(2_000).selectExpr("id", "id % 90 k", "id * 7 % 500 at", "id / 3 x")
        dims = self._spark.range(120).selectExpr("id % 80 dk", "concat('n', id) name", "id * 4 low", "id * 4 + 9 high")
        for name, frame, files in (("facts", facts, 2), ("dims", dims, 1)):
            frame.repartition(files).write.parquet(str(folder / name))
            self._spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        self._made().createOrReplaceTempView("made")

    def _made(self) -> DataFrame:
        return self._spark.range(120).selectExpr("id dk", "concat('r', id) name", "id * 4 low")

    def _counted(self, name: str, query: Callable[[], DataFrame] | None = None) -> Query:
        def run() -> None:
            rows = len((self._spark.sql(name) if query is None else query()).collect())
            if self._answers.setdefault(name, rows) != rows:
                raise AssertionError(f"{name}: {rows} rows, {self._answers[name]} the first time")

        return run

    def _failing(self, name: str, message: str, query: Callable[[], DataFrame]) -> Query:
        def run() -> None:
            try:
                query().collect()
            except Exception as error:
                if message not in str(error):
                    raise
            else:
                raise AssertionError(f"{name}: nothing failed")

        return run

    def _as_of(self) -> DataFrame:
        dims = self._spark.table("dims")
        return self._spark.table("facts").transform(sparkext.asof_join(dims, on=("at", "low")))

    def _theta(self) -> DataFrame:
        def near(left: Any, right: Any) -> bool:
            return abs(left.x - right.low) < 2

        return self._spark.table("facts").transform(sparkext.theta_join(self._made(), near))

    def _theta_with_its_rows(self) -> None:
        """Check the number of rows of a theta join by arithmetic: the ids of `facts` are the integers below 2,000."""
        self._thetas += 1
        limit = self._thetas % 1_999 if self._thetas % 2 else 500

        def below(left: Any, right: Any) -> bool:
            return left.id + right.dk < limit

        one = pa.table({"dk": [0, 1_000]})
        rows = self._spark.table("facts").transform(sparkext.theta_join(one, below)).count()
        if rows != limit + max(0, limit - 1_000):
            raise AssertionError(f"theta below {limit}: {rows} rows")

    def _local(self) -> DataFrame:
        table = pa.table({"k": range(50), "name": [f"l{number}" for number in range(50)]})
        return self._spark.table("facts").transform(sparkext.pipelined_join(table, on="k", how="left"))

    def _broken_build_side(self) -> DataFrame:
        broken = self._spark.range(40).selectExpr("id dk", "if(id = 30, raise_error('no such luck'), 'x') name")
        return self._hinted(broken)

    def _large_build_side(self) -> DataFrame:
        return self._hinted(self._spark.range(0, 3_000, 1, 2).selectExpr("id dk", "uuid() name"), maxBytes="10k")

    def _hinted(self, build: DataFrame, **options: str) -> DataFrame:
        hints = [f"{name}={value}" for name, value in options.items()]
        facts = self._spark.table("facts")
        return facts.join(build.hint("pipelined_join", *hints), facts.k == build.dk)

    def _broken_theta(self) -> DataFrame:
        def fails(left: Any, right: Any) -> bool:
            if left.id == 77:
                raise ValueError("no such luck")
            return left.id == right.low

        return self._spark.table("facts").transform(sparkext.theta_join(self._made(), fails))


class Probe:
    """Counts resources, after garbage collection in Python and the JVM."""

    def __init__(self, spark: SparkSession, local: Path) -> None:
        self._jvm = spark.sparkContext._jvm
        self._context = spark.sparkContext
        self._local = local
        self._java = psutil.Process(self._jvm.java.lang.ProcessHandle.current().pid())
        self._others = {name: count() for name, count in _OUTSIDE.items()}

    def sample(self) -> Sample:
        """Count all resources, after the cleanup that follows queries has settled, for at most `_SETTLING_SECONDS`."""
        deadline = time.monotonic() + _SETTLING_SECONDS
        before = None
        while before != (now := self._settling()) and time.monotonic() < deadline:
            before = now
        return {**now, **self._workers(), "driver anon MiB": _anonymous_mib(psutil.Process())}

    def _settling(self) -> Sample:
        """Collect garbage, wait 0.5 s for the cleanup that it triggers, and count."""
        gc.collect()
        live = self._live()
        time.sleep(0.5)
        return {
            **live,
            "JVM fds": self._java.num_fds(),
            "driver fds": psutil.Process().num_fds(),
            "local files": sum(path.is_file() for path in self._local.rglob("*")),
            **{name: count() - self._others[name] for name, count in _OUTSIDE.items()},
        }

    def _live(self) -> Sample:
        """Count the live JVM objects of the classes in `_LIVE`. The count collects garbage first."""
        text = self._histogram()
        counts = {name: int(count) for count, name in re.findall(r"^\s*\d+:\s+(\d+)\s+\d+\s+(\S+)", text, re.MULTILINE)}
        return {name: counts.get(full_name, 0) for name, full_name in _LIVE.items()}

    def _histogram(self) -> str:
        """Return the JVM's histogram of objects by class, by reflection: Py4J cannot access the bean server's class."""
        find = self._jvm.java.lang.Class.forName
        types = ("javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", "[Ljava.lang.String;")
        invoke = find("javax.management.MBeanServer").getMethod("invoke", self._array("Class", map(find, types)))
        command = self._jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
        arguments = self._array("Object", [self._array("String", [])])
        call = [command, "gcClassHistogram", arguments, self._array("String", [types[-1]])]
        server = self._jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        return str(invoke.invoke(server, self._array("Object", call)))

    def _array(self, of: str, values: Iterable[object]) -> Any:
        held = list(values)
        array = self._context._gateway.new_array(getattr(self._jvm.java.lang, of), len(held))
        for place, value in enumerate(held):
            array[place] = value
        return array

    def _workers(self) -> Sample:
        daemons = [child for child in _children(self._java) if "daemon" in " ".join(child.cmdline())]
        workers = [child for daemon in daemons for child in _children(daemon)]
        return {
            "JVM threads": self._java.num_threads(),
            "workers": len(workers),
            "worker RSS MiB": _most(workers, lambda worker: worker.memory_info().rss / 2**20),
            "worker anon MiB": _most(workers, _anonymous_mib),
            "worker fds": _most(workers, lambda worker: worker.num_fds()),
            "worker maps": _most(workers, lambda worker: len(_maps(worker))),
            "mapped files": _most(workers, self._mapped),
            "daemon RSS MiB": _most(daemons, lambda daemon: daemon.memory_info().rss / 2**20),
            "daemon fds": _most(daemons, lambda daemon: daemon.num_fds()),
            "daemon maps": _most(daemons, lambda daemon: len(_maps(daemon))),
        }

    def _mapped(self, worker: psutil.Process) -> int:
        """Return the number of existing or deleted files in Spark's folder that a worker has mapped."""
        paths = {line.split(maxsplit=5)[5] for line in _maps(worker) if len(line.split(maxsplit=5)) == 6}
        return sum(path.startswith(str(self._local)) for path in paths)


def _children(process: psutil.Process) -> list[psutil.Process]:
    """Return the running children. The list also has ended processes until their parent reads their status."""
    return [child for child in process.children() if child.status() != psutil.STATUS_ZOMBIE]


def _most(processes: Sequence[psutil.Process], count: Callable[[psutil.Process], float]) -> float:
    return max((count(process) for process in processes), default=0)


def _maps(process: psutil.Process) -> list[str]:
    return Path(f"/proc/{process.pid}/maps").read_text().splitlines()


def _anonymous_mib(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024


def _named(folder: Path) -> int:
    return sum(1 for _ in folder.glob("sparkext*"))


# Files of other sessions on this machine are counted before the first query, and subtracted.
_OUTSIDE: dict[str, Callable[[], int]] = {
    "/dev/shm": lambda: _named(Path("/dev/shm")),
    "temp files": lambda: _named(Path(tempfile.gettempdir())),
}


def report(samples: Sequence[tuple[int, Sample]]) -> list[str]:
    """Print all samples; return the growth between the first and the last quarter of the samples after the warm-up."""
    print("\n" + _table(samples), flush=True)
    settled = [sample for number, sample in samples if number >= _WARM_UP] or [samples[-1][1]]
    quarter = max(1, len(settled) // 4)
    return list(_grown(settled[:quarter], settled[-quarter:]))


def report_failing(samples: Sequence[tuple[int, Sample]]) -> list[str]:
    """Print the samples of queries that fail in workers; return the growth outside of workers, from first to last."""
    print("\nqueries that fail within workers\n\n" + _table(samples), flush=True)
    columns = [column for column in COLUMNS if not column.in_workers]
    return list(_grown([samples[1][1]], [samples[-1][1]], columns))


def _grown(first: Sequence[Sample], last: Sequence[Sample], columns: Sequence[Column] = COLUMNS) -> Iterator[str]:
    for column in columns:
        before, after = (statistics.median(sample[column.name] for sample in part) for part in (first, last))
        if column.grown(before, after):
            yield f"{column.name}: from {before:,.1f} to {after:,.1f}, tolerated are {column.tolerance}"


def _table(samples: Sequence[tuple[int, Sample]]) -> str:
    """Format samples as a table, with a column for each sample."""
    header = ["after queries", *(str(number) for number, _ in samples)]
    rows = [[column.name, *(f"{sample[column.name]:,.0f}" for _, sample in samples)] for column in COLUMNS]
    return format_table(header, rows)
