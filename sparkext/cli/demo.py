"""`python -m sparkext demo`: a chain of TPC-H joins by sparkext and by Spark, verified, then timed.

lineitem ⋈ orders ⋈ supplier ⋈ part, all on foreign keys, from Parquet files to a sink that discards the rows. sparkext
runs it through both of its APIs: planned by the session extension, and as a `mapInArrow` that needs no jar.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparkext.cli.local_session import start_local_session
from sparkext.cli.tpch import DEFAULT_ROOT, ensure_tables
from sparkext.errors import EnvironmentProblemError
from sparkext.memory.probes import process_probe
from sparkext.spark.jar import INSTALL_PYSPARK, locate_jar
from sparkext.spark.java import require_java
from sparkext.spark.session import configure
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "lineitem": ("l_orderkey", "l_partkey", "l_suppkey", "l_quantity", "l_shipdate"),
    "orders": ("o_orderkey", "o_custkey", "o_orderdate"),
    "supplier": ("s_suppkey", "s_nationkey", "s_name"),
    "part": ("p_partkey", "p_brand", "p_size"),
}
PROBE_SIDE = "lineitem"
JOINS = (
    ("orders", "l_orderkey", "o_orderkey"),
    ("supplier", "l_suppkey", "s_suppkey"),
    ("part", "l_partkey", "p_partkey"),
)

Tables = Mapping[str, "DataFrame"]


def join_by_default(tables: Tables) -> DataFrame:
    """Return the joins as Spark plans them without hints."""
    frame = tables[PROBE_SIDE]
    for other, probe_key, build_key in JOINS:
        frame = frame.join(tables[other], frame[probe_key] == tables[other][build_key])
    return frame


def join_by_broadcast(tables: Tables) -> DataFrame:
    """Return the joins with a broadcast hint on each build side: Spark's best plan if the build sides fit in memory."""
    return _add_hints(tables, "broadcast")


def join_by_hints(tables: Tables) -> DataFrame:
    """Return the joins with hints for the session extension, which plans one pipeline whose workers read the files."""
    return _add_hints(tables, "pipelined_join")


def _add_hints(tables: Tables, hint: str) -> DataFrame:
    return join_by_default({name: table if name == PROBE_SIDE else table.hint(hint) for name, table in tables.items()})


def join_in_map_in_arrow(tables: Tables) -> DataFrame:
    """Return the joins as one pipeline in a `mapInArrow`, which receives rows from Spark and returns rows to Spark."""
    from sparkext import pipelined_join

    frame = tables[PROBE_SIDE]
    settings = frame.sparkSession.conf
    settings.set("spark.sparkext.mode", "off")  # otherwise the extension would plan these joins, too
    try:
        for other, probe_key, build_key in JOINS:
            frame = frame.transform(pipelined_join(tables[other], on=[(probe_key, build_key)]))
    finally:
        settings.set("spark.sparkext.mode", "hint")
    return frame


DEFAULT, BROADCAST = "Spark, default plan", "Spark, broadcast hints"
PLANNED, MAP_IN_ARROW = "sparkext, with the extension", "sparkext, through mapInArrow"


def list_plans(with_extension: bool) -> dict[str, Callable[[Tables], DataFrame]]:
    """Return the plans to compare. The first is the reference; `report` shows the last."""
    without_it: dict[str, Callable[[Tables], DataFrame]] = {
        DEFAULT: join_by_default,
        BROADCAST: join_by_broadcast,
        MAP_IN_ARROW: join_in_map_in_arrow,
    }
    return {**without_it, PLANNED: join_by_hints} if with_extension else without_it


class Fingerprint(NamedTuple):
    """A value that is equal for DataFrames with the same schema and the same rows in any order."""

    schema: str
    rows: int
    hash_sum: Decimal | None
    hash_xor: int | None


def compute_result_fingerprint(frame: DataFrame) -> Fingerprint:
    """Count the rows, and combine a 64-bit hash of all columns of each row by sum and by xor.

    Both are independent of the order. The sum detects duplicates, which cancel out in the xor; the xor depends on every
    bit. Spark's hash skips nulls, so each column's null flag is hashed, too.
    """
    from pyspark.sql import functions as F

    columns = [F.col(f"`{name}`") for name in frame.columns]
    row_hash = F.xxhash64(*(part for column in columns for part in (column, column.isNull())))
    [(rows, hash_sum, hash_xor)] = (
        frame.select(row_hash.alias("row_hash"))
        .agg(F.count("*"), F.sum(F.col("row_hash").cast("decimal(38,0)")), F.bit_xor("row_hash"))
        .collect()
    )
    return Fingerprint(frame.schema.simpleString(), rows, hash_sum, hash_xor)


@dataclass(frozen=True)
class Measurement:
    """One plan: its rows, and the seconds of its runs."""

    name: str
    rows: int
    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """Median seconds per run."""
        return statistics.median(self.seconds)


def run_demo(scale_factor: float = 1, root: Path = DEFAULT_ROOT, cores: int | None = None, runs: int = 3) -> int:
    """Run the demo and print its table. Return the exit status, 1 if the rows of the plans differ.

    `root` has one folder of tables per scale factor; `cores` defaults to all cores.
    """
    require_java()
    try:
        import pyspark
    except ImportError as error:
        raise EnvironmentProblemError(f"PySpark cannot be imported ({error}). Install it: {INSTALL_PYSPARK}") from error
    folder = ensure_tables(scale_factor, root)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers need the packages that this process has
    heap = f"{_choose_heap_mib()}m"
    settings = {"spark.master": f"local[{cores or '*'}]", "spark.driver.memory": heap, "spark.sparkext.mode": "hint"}
    with_extension = _has_jar()
    with ExitStack() as stack:
        with _report_step(f"starting Spark {pyspark.__version__}, driver memory {heap}"):
            session = start_local_session("sparkext demo", settings, configure if with_extension else None)
            spark = stack.enter_context(session)
        links = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkext-demo-")))
        return _compare(list_plans(with_extension), lambda: _open_tables(spark, folder, links), scale_factor, runs)


def _has_jar() -> bool:
    try:
        locate_jar()
    except EnvironmentProblemError as error:
        print(f"Without the session extension: {error}", file=sys.stderr)
        return False
    return True


def _open_tables(spark: SparkSession, folder: Path, links: Path) -> Tables:
    """Open the tables under new names, so that no cached index exists for their files."""
    renamed = Path(tempfile.mkdtemp(dir=links))
    tables = {}
    for name, columns in COLUMNS.items():
        link = renamed / f"{name}.parquet"
        link.symlink_to((folder / link.name).absolute())
        tables[name] = spark.read.parquet(str(link)).select(*columns)
    return tables


def _compare(
    contestants: Mapping[str, Callable[[Tables], DataFrame]],
    open_tables: Callable[[], Tables],
    scale_factor: float,
    runs: int,
) -> int:
    prints = {}
    for name, build in contestants.items():
        with _report_step(f"verifying: rows and checksum of {name}"):
            prints[name] = compute_result_fingerprint(build(open_tables()))
    different = [name for name in prints if prints[name] != prints[DEFAULT]]
    if different:
        print(_describe_mismatch(prints, different))
        return 1

    seconds: dict[str, list[float]] = {name: [] for name in prints}
    for name, build in contestants.items():
        with _report_step(f"warming up: {name}"):
            _time(build, open_tables())
    for number in range(1, runs + 1):
        for name, build in contestants.items():
            tables = open_tables()
            with _report_step(f"timing, run {number} of {runs}: {name}"):
                elapsed, last = _time(build, tables)
            seconds[name].append(elapsed)

    from sparkext import report

    rows = prints[DEFAULT].rows
    joins = " ⋈ ".join([PROBE_SIDE, *(other for other, _, _ in JOINS)])
    print(f"\nTPC-H, scale factor {scale_factor:g}: {joins}\n")
    print(format_timing_table([Measurement(name, rows, times) for name, times in seconds.items()]))
    print(f"\n{name}, join by join, in its last run:\n\n{report(last)}\n")
    print(_describe_measurement(tables, rows, runs, tables[PROBE_SIDE].sparkSession.sparkContext.defaultParallelism))
    return 0


def _time(build: Callable[[Tables], DataFrame], tables: Tables) -> tuple[float, DataFrame]:
    started = time.perf_counter()
    frame = build(tables)
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started, frame


def format_timing_table(measurements: Sequence[Measurement]) -> str:
    """Return the measurements as a plain text table; the first is the reference of the column `speed-up`."""
    rows = [
        (
            measurement.name,
            f"{measurement.median:.2f}",
            f"{min(measurement.seconds):.2f} - {max(measurement.seconds):.2f}",
            f"{measurement.rows:,}",
            f"{measurement.rows / measurement.median / 1e6:.2f}",
            f"{measurements[0].median / measurement.median:.2f}x",
        )
        for measurement in measurements
    ]
    return format_table(("plan", "median s", "min - max s", "rows", "Mrow/s", "speed-up"), rows)


def _describe_mismatch(prints: Mapping[str, Fingerprint], different: Sequence[str]) -> str:
    lines = [f"WRONG: {' and '.join(different)} did not return the rows of {DEFAULT}. Nothing was timed.", ""]
    for name in [DEFAULT, *different]:
        lines.append(name)
        lines += [f"  {field:<9} {value}" for field, value in prints[name]._asdict().items()]
    return "\n".join([*lines, "", "This is a bug in sparkext: please report it with the lines above."])


def _describe_measurement(tables: Tables, rows: int, runs: int, cores: int) -> str:
    columns = sum(len(table.columns) for table in tables.values())
    return (
        f"Verified: the plans return the same schema, {rows:,} rows, and the same checksums (sum and xor of a\n"
        f"64-bit hash of each row over all {columns} columns and their null flags).\n"
        f"Timed: median of {runs} alternating runs on {cores} cores after one warm-up each, from the request\n"
        f"of the plan until Spark's noop sink has received every row (it reads no values). For sparkext this\n"
        f"includes collecting or reading the build sides and rebuilding their indexes. Not timed: data\n"
        f"generation, Spark's start, compilation."
    )


@contextmanager
def _report_step(text: str) -> Iterator[None]:
    """Print `text` to stderr, and the seconds of the step at its end."""
    print(f"{text} ...", end="", file=sys.stderr, flush=True)
    started = time.perf_counter()
    try:
        yield
    except BaseException:
        print(file=sys.stderr)
        raise
    print(f" {time.perf_counter() - started:.2f} s", file=sys.stderr, flush=True)


def _choose_heap_mib() -> int:
    """Return the JVM's heap in MiB: a third of the free memory, from 1 to 8 GiB, because workers need memory, too."""
    free = process_probe().headroom()
    return 2048 if free is None else max(1024, min(8192, (free.bytes >> 20) // 3))
