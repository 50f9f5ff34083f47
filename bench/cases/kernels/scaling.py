"""Growth of the cost with the data and with the number of joins, on one core and on two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.cases.queries.hard import spark_contestants
from bench.data.chains import Chain
from bench.data.generated import star, written
from bench.harness import Bench, Case, Contestant, Timing, fastest_forms, report, take_turns, verify, warm_up
from bench.report.fit import power_law
from sparkext.wording import format_table

if TYPE_CHECKING:
    from bench.data.workloads import Workload

NOTES = """\
Measured: joins of a fact table with its dimension tables. The fact table has random keys of the dimension tables, each
of which has a tenth as many rows. data: three joins of once, twice, four and eight times 1 M facts. joins: one to six
joins of 1 M facts. In memory: from Arrow tables to the last Arrow batch of all columns, as in engines. scan: from
Parquet files to one row of a count and sums, in Spark with the extension; build sides are read and indexed again.
All sizes are warmed up before any size is timed, and they take turns, run by run. Of the forms of an engine, and of
Spark's hinted plans, the one that is fastest in the warm-up at the largest size is timed at all sizes. The exponent is
that of a power law fitted to the medians, ± its standard error.
Left out: the same as in the other suites."""

FACTORS = (1, 2, 4, 8)
JOINS = (1, 2, 3, 4, 5, 6)
BASE_ROWS = 1_000_000
JOINED_ROWS = 1_000_000
ENGINES = ("sparkext", "DuckDB", "Polars")
_DATA, _CHAIN = "times the data", "joins"


def cases() -> list[Case]:
    """Return the cases: growth with data and with joins, in memory and from files, each on one core and on two."""
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
    grow(bench, {factor: partial(_in_memory, bench, factor * BASE_ROWS, 3) for factor in FACTORS}, _DATA)


def _memory_joins(bench: Bench) -> None:
    grow(bench, {joins: partial(_in_memory, bench, JOINED_ROWS, joins) for joins in JOINS}, _CHAIN)


def _in_memory(bench: Bench, rows: int, joins: int) -> tuple[int, list[Contestant]]:
    from bench.cases.kernels.pipelines import contestant_of, forms_of

    workload = _workload(bench.sized(rows), joins)
    forms = [form for form in forms_of(workload, bench.threads) if form.engine in ENGINES]
    return bench.sized(rows), [contestant_of(form, workload) for form in forms]


def _workload(rows: int, joins: int) -> Workload:
    from bench.data.workloads import Join, Workload, in_batches

    tables = {name: in_batches(pa.table(columns)) for name, columns in star(rows, max(1, rows // 10), joins).items()}
    chain = tuple(Join(f"dim{number}", ((f"f_key{number}", f"d{number}_key"),)) for number in range(1, joins + 1))
    return Workload(tables, "fact", chain)


def _scan_data(bench: Bench) -> None:
    _scan(bench, {factor: (factor * BASE_ROWS, 3) for factor in FACTORS}, _DATA)


def _scan_joins(bench: Bench) -> None:
    _scan(bench, {joins: (JOINED_ROWS, joins) for joins in JOINS}, _CHAIN)


def _scan(bench: Bench, sizes: dict[int, tuple[int, int]], of: str) -> None:
    from bench.engines.spark_session import spark_session
    from sparkext import configure

    with spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark:

        def contestants(rows: int, joins: int) -> tuple[int, list[Contestant]]:
            rows = bench.sized(rows)
            paths = written(bench, f"scaling-{rows}", lambda: star(rows, max(1, rows // 10), max(JOINS)))
            found = spark_contestants(spark, _chain(joins), paths, group="hinted")
            return rows, [contestant for contestant in found if "cached" not in contestant.name]

        grow(bench, {size: partial(contestants, *given) for size, given in sizes.items()}, of)


def _chain(joins: int) -> Chain:
    numbers = range(1, joins + 1)
    return Chain(
        "fact",
        [(f"dim{number}", f"f_key{number}", f"d{number}_key") for number in numbers],
        ["f_value", *(f"d{number}_value" for number in numbers)],
    )


def grow(bench: Bench, sizes: dict[int, Callable[[], tuple[int, list[Contestant]]]], of: str) -> None:
    """Check every size, then time all sizes alternately; print how the time of each contestant grows."""
    tables = {size: make() for size, make in sizes.items()}
    timings = _warmed_up(bench, {size: contestants for size, (_, contestants) in tables.items()})
    take_turns([timing for each in timings.values() for timing in each], bench.runs)
    grown: dict[str, list[Timing]] = {}
    for size, each in timings.items():
        rows, _ = tables[size]
        print(f"\n{size} {of}: {rows:,} rows probe")
        report(bench, each, rows, cpu=False, part=f"{size} {of}", size=size, of=of)
        for timing in each:
            grown.setdefault(timing.contestant.name, []).append(timing)
    _report_growth(bench, grown, list(sizes), of)


def _warmed_up(bench: Bench, contestants: dict[int, list[Contestant]]) -> dict[int, list[Timing]]:
    """Check and warm up every size; an engine's form that is fastest at the largest size is timed at all sizes."""
    timed = contestants[max(contestants)]
    timings = {}
    for size in sorted(contestants, reverse=True):
        names = {contestant.name for contestant in timed}
        tried = [contestant for contestant in contestants[size] if contestant.name in names]
        verify(tried)
        timed = fastest_forms(tried, warm_up(bench, tried))
        timings[size] = [Timing(contestant) for contestant in timed]
    return {size: timings[size] for size in contestants}


def _report_growth(bench: Bench, grown: dict[str, list[Timing]], sizes: list[int], of: str) -> None:
    """Print and record the exponent of each contestant, and its standard error."""
    table = []
    for name, timings in grown.items():
        medians = [timing.median for timing in timings]
        law = power_law(sizes, medians)
        bench.record(contestant=name, of=of, exponent=law.exponent, standard_error=law.error)
        table.append([name, *(f"{median:.3f}" for median in medians), str(law)])
    print(f"\n{format_table([of, *map(str, sizes), 'exponent'], table)}")
