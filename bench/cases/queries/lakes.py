"""Table formats: Delta Lake and Iceberg, compared with the same rows in plain Parquet files.

`make bench-lakes` runs these cases in a Spark version for which both formats have a release.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlparse

from bench.cases.queries import tpch
from bench.cases.queries.comparison import Compared, SparkQueries, print_comparison, timed
from bench.cases.queries.end_to_end import AGGREGATE_COLUMNS, SUMMED
from bench.data.chains import Chain
from bench.engines.spark_session import spark_session
from bench.engines.views import Views
from bench.harness import Bench, Case, Contestant, measure, report, same, step, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.lakes.formats import Lake

NOTES = """\
Measured: three joins of TPC-H under a count and four sums, over the same rows in plain Parquet files, in Delta tables
and in Iceberg tables (format 3), all written by Spark in the same session. The tables are read as written, and after
one in a hundred rows of lineitem and orders was deleted. Both formats store the deletions as deletion vectors; the
plain files are written again without these rows.
Each run plans and executes the query again. Before the runs marked "cold", all files are made to look changed, so that
no cached index is reused. The runs marked "kept" reuse the indexes. Spark's contestants are its default plan and its
plan with broadcast hints.
lakes.queries: TPC-H's queries over tables with all columns, planned in auto mode and compared with Spark's default
plans. Only queries for which auto mode has another plan are timed.
lakes.orc: Spark reads the ORC files, and their columns cross into the workers. The advantage of plain files is the cost
of this crossing.
"""

_DELETED = "pmod(hash({keys}), 100) = 0"
_KEYS = {"lineitem": "l_orderkey, l_linenumber", "orders": "o_orderkey"}


def cases() -> list[Case]:
    """Return the cases: three joins, without and with deleted rows; TPC-H's queries; ORC files."""
    return [
        Case(
            "lakes.three-joins",
            "lineitem, orders, supplier, part as plain files, Delta and Iceberg; a count and four sums",
            _three_joins,
            named=True,
        ),
        Case("lakes.queries", "TPC-H's 22 queries from Delta and Iceberg tables", _queries, named=True),
        Case("lakes.orc", "the three joins from ORC files, which Spark reads, and from plain files", _orc, named=True),
    ]


def _three_joins(bench: Bench) -> None:
    def compare(spark: SparkSession, lakes: list[Lake], folder: Path) -> None:
        for share in ("none", "hundredth"):
            _compare(bench, spark, {"plain": "parquet", **{lake.name: lake for lake in lakes}}, folder, share)

    _with_lakes(bench, compare)


def _orc(bench: Bench) -> None:
    from sparkext import configure

    with spark_session(bench.threads, configure) as spark:
        folder = bench.data / "lakes" / f"sf{bench.scale_factor:g}-orc"
        _compare(bench, spark, {"plain": "parquet", "orc": "orc"}, folder, "none")


def _queries(bench: Bench) -> None:
    def compare(spark: SparkSession, lakes: list[Lake], folder: Path) -> None:
        for lake in lakes:
            tables = {table: _whole(bench, spark, lake, folder, table) for table in tpch.tables(bench)}
            print_comparison(_compared(bench, lake, _views(SparkQueries, spark, lake, tables)))

    _with_lakes(bench, compare)


def _compared(bench: Bench, lake: Lake, asked: SparkQueries) -> list[Compared]:
    print(f"\n{lake.name}")
    compared = []
    for name, text in tpch.texts(bench).items():
        joins = asked.planned_joins(text)
        contestants = asked.contestants(text, settings=False)
        seconds = timed(bench, name, contestants, lake=lake.name) if joins or bench.tiny else {}
        compared.append(Compared(name, joins, seconds))
    return compared


def _with_lakes(bench: Bench, compare: Callable[[SparkSession, list[Lake], Path], None]) -> None:
    """Call `compare` with a session, the table formats that this Spark supports, and the folder of their tables."""
    import pyspark

    from sparkext import configure
    from tests.lakes.formats import formats_of, session_settings

    minor = ".".join(pyspark.__version__.split(".")[:2])
    lakes = list(formats_of(minor).values())
    if not lakes:
        print(f"  skipped: neither Delta nor Iceberg has a release for Spark {minor}; make bench-lakes")
        return
    folder = bench.data / "lakes" / f"sf{bench.scale_factor:g}-{minor}"
    with spark_session(bench.threads, configure, **session_settings(minor, folder)) as spark:
        compare(spark, lakes, folder)


V = TypeVar("V", bound=Views)


def _views(of: type[V], spark: SparkSession, kind: Lake | str, sources: Mapping[str, str]) -> V:
    """Return views of tables in a format; `sources` has the SQL name of each table."""
    files = {table: _data_files(spark, kind, source) for table, source in sources.items()}
    return of(spark, lambda table: spark.sql(f"SELECT * FROM {sources[table]}"), files)


def _compare(bench: Bench, spark: SparkSession, formats: Mapping[str, Lake | str], folder: Path, share: str) -> None:
    """Compare the joins over tables of each format: a table format, or the name of one of Spark's file formats."""
    from sparkext.cli.demo import JOINS

    chain = Chain("lineitem", JOINS, SUMMED)
    contestants: list[Contestant] = []
    for name, kind in formats.items():
        tables = {table: _written(bench, spark, kind, folder, table, share) for table in chain.tables}
        views, ours = _views(Views, spark, kind, tables), chain.sql("PIPELINED_JOIN")
        views.assert_pipelined(ours, mode="hint")
        contestants += [
            same(f"{name}, pipelined, cold", partial(views.row, ours, cold=True, mode="hint"), ours=True),
            same(f"{name}, pipelined, kept", partial(views.row, ours, mode="hint"), ours=True),
            same(f"{name}, Spark's broadcast plan", partial(views.row, chain.sql("BROADCAST"), mode="hint")),
            same(f"{name}, Spark's default plan", partial(views.row, chain.sql(), mode="hint")),
        ]
    verify(contestants)
    rows = spark.table("lineitem").count()
    report(bench, measure(bench, contestants), rows, cpu=False, part=f"{share} deleted")


def _data_files(spark: SparkSession, kind: Lake | str, source: str) -> list[Path]:
    """Return the data files of a table, given by its name in SQL."""
    if not isinstance(kind, str):
        return kind.data_files(spark, source)
    return [Path(urlparse(file).path) for file in spark.sql(f"SELECT * FROM {source}").inputFiles()]


def _written(bench: Bench, spark: SparkSession, kind: Lake | str, folder: Path, table: str, share: str) -> str:
    """Return the SQL name of a table in a format, after writing the table if it does not exist."""
    deletes = share != "none" and table in _KEYS
    condition = _DELETED.format(keys=_KEYS[table]) if deletes else "false"
    name = f"{table}_{share}" if deletes else table
    df = _source(bench, spark, table).select(*AGGREGATE_COLUMNS[table], *_keys(table))
    if isinstance(kind, str):
        path = folder / kind / name
        _once(path, lambda: df.where(f"NOT {condition}").write.format(kind).save(str(path)))
        return f"{kind}.`{path}`"
    return _table(spark, kind, folder, name, df, condition)


def _whole(bench: Bench, spark: SparkSession, lake: Lake, folder: Path, table: str) -> str:
    """Return the SQL name of a table with all columns in a format, after writing the table if it does not exist."""
    return _table(spark, lake, folder, f"whole_{table}", _source(bench, spark, table), "false")


def _source(bench: Bench, spark: SparkSession, table: str) -> DataFrame:
    return spark.read.parquet(str(tpch.tables(bench)[table]))


def _table(spark: SparkSession, lake: Lake, folder: Path, name: str, df: DataFrame, deleted: str) -> str:
    if lake.name == "delta":
        path = folder / "delta" / name
        sql = f"delta.`{path}`"
        written = df.write.format("delta").option("delta.enableDeletionVectors", "true")
        _once(path, lambda: (written.save(str(path)), spark.sql(f"DELETE FROM {sql} WHERE {deleted}")))
        return sql
    sql = lake.table(name)
    writer = df.writeTo(sql).using("iceberg")
    for key, value in lake.properties.items():
        writer = writer.tableProperty(key, value)
    path = folder / "iceberg" / "default" / name
    _once(path, lambda: (writer.create(), spark.sql(f"DELETE FROM {sql} WHERE {deleted}")))
    return sql


def _keys(table: str) -> list[str]:
    return [key for key in _KEYS.get(table, "").split(", ") if key and key not in AGGREGATE_COLUMNS[table]]


def _once(folder: Path, write: Callable[[], object]) -> None:
    """Write a table, unless an earlier run has completed it."""
    done = folder.with_name(f"{folder.name}.written")
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    with step(f"writing {folder}"):
        write()
    done.touch()
