"""How cost grows: with the data, with the number of joins, on one core and on two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.chains import Chain
from bench.fit import exponent
from bench.generated import star, written
from bench.hard import spark_contestants
from bench.harness import Bench, Case, Contestant, Timing, measure, report, verify
from bench.text_table import text_table

if TYPE_CHECKING:
    from bench.workloads import Workload

NOTES = """\
Measured: a fact table with random keys of its dimensions, which have a tenth of its rows. data: three joins, once,
twice, four and eight times 1 M facts; joins: one to six joins of 1 M facts. In memory: from Arrow tables to the last
Arrow batch of all columns, as in engines. scan: from Parquet files to one row of a count and sums, in Spark with
the extension, build sides read and indexed anew. Left out: what the other suites leave out."""

FACTORS = (1, 2, 4, 8)
JOINS = (1, 2, 3, 4, 5, 6)
BASE_ROWS = 1_000_000
JOINED_ROWS = 1_000_000
_DATA, _CHAIN = "times the data", "joins"


def cases() -> list[Case]:
    """Two questions, in memory and from files, each on one core and on two."""
    both = (1, 2)
    return [
        Case("scaling.data", "in memory: three joins, data ×1 to ×8", _memory_data, scaled=False, threaded=both),
        Case("scaling.joins", "in memory: one to six joins", _memory_joins, scaled=False, threaded=both),
        Case("scaling.scan-data", "files, Spark: three joins, data ×1 to ×8", _scan_data, scaled=False, threaded=both),
        Case(
            "scaling.scan-joins", "files, Spark: one to six joins", _scan_joins, scaled=False, threaded=both, named=True
        ),
    ]


def _memory_data(bench: Bench) -> None:
    _grow(bench, {factor: partial(_in_memory, bench, factor * BASE_ROWS, 3) for factor in FACTORS}, _DATA)


def _memory_joins(bench: Bench) -> None:
    _grow(bench, {joins: partial(_in_memory, bench, JOINED_ROWS, joins) for joins in JOINS}, _CHAIN)


def _in_memory(bench: Bench, rows: int, joins: int) -> tuple[int, list[Contestant]]:
    from bench import competitors, in_memory
    from bench.answers import answer_of
    from bench.engines import consume

    workload = _workload(bench.sized(rows), joins)
    runs: dict[str, Callable[[], object]] = {
        "sparkext": lambda: in_memory.run(workload, bench.threads),
        "DuckDB": competitors.duckdb(workload, bench.threads, own_tables=True),
        "Polars": competitors.polars(workload, bench.threads, batches=False),
    }
    contestants = [
        Contestant(
            name,
            lambda run=run: consume(run()),
            lambda run=run: answer_of(run(), workload.schema),
            ours=name == "sparkext",
        )
        for name, run in runs.items()
    ]
    return bench.sized(rows), contestants


def _workload(rows: int, joins: int) -> Workload:
    from bench.workloads import Join, Workload, in_batches

    tables = {name: in_batches(pa.table(columns)) for name, columns in star(rows, max(1, rows // 10), joins).items()}
    chain = tuple(Join(f"dim{number}", ((f"f_key{number}", f"d{number}_key"),)) for number in range(1, joins + 1))
    return Workload(tables, "fact", chain)


def _scan_data(bench: Bench) -> None:
    _scan(bench, {factor: (factor * BASE_ROWS, 3) for factor in FACTORS}, _DATA)


def _scan_joins(bench: Bench) -> None:
    _scan(bench, {joins: (JOINED_ROWS, joins) for joins in JOINS}, _CHAIN)


def _scan(bench: Bench, sizes: dict[int, tuple[int, int]], of: str) -> None:
    from bench.spark_session import spark_session
    from sparkext import configure

    with spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark:

        def contestants(rows: int, joins: int) -> tuple[int, list[Contestant]]:
            rows = bench.sized(rows)
            paths = written(bench, f"scaling-{rows}", lambda: star(rows, max(1, rows // 10), max(JOINS)))
            found = spark_contestants(spark, _chain(joins), paths, ("BROADCAST",))
            return rows, [contestant for contestant in found if "cached" not in contestant.name]

        _grow(bench, {size: partial(contestants, *given) for size, given in sizes.items()}, of)


def _chain(joins: int) -> Chain:
    numbers = range(1, joins + 1)
    return Chain(
        "fact",
        [(f"dim{number}", f"f_key{number}", f"d{number}_key") for number in numbers],
        ["f_value", *(f"d{number}_value" for number in numbers)],
    )


def _grow(bench: Bench, sizes: dict[int, Callable[[], tuple[int, list[Contestant]]]], of: str) -> None:
    """Check and time every size; say how the time of everyone grows."""
    found: dict[str, list[Timing]] = {}
    for size, make in sizes.items():
        rows, contestants = make()
        verify(contestants)
        timings = measure(contestants, bench.runs)
        print(f"\n{size} {of}: {rows:,} rows probe")
        report(bench, timings, rows, cpu=False, part=f"{size} {of}", size=size, of=of)
        for timing in timings:
            found.setdefault(timing.contestant.name, []).append(timing)
    table = [
        [name, *(f"{timing.median:.3f}" for timing in timings), f"{exponent(list(sizes), _medians(timings)):.2f}"]
        for name, timings in found.items()
    ]
    print(f"\n{text_table([of, *map(str, sizes), 'exponent'], table)}")


def _medians(timings: list[Timing]) -> list[float]:
    return [timing.median for timing in timings]
