"""Apache DataFusion Comet, compared with this package in the same Spark version: joins, TPC-H, TPC-DS.

`make bench-comet` fetches Comet and a Spark that it runs in (`bench.engines.comet`), and runs these cases there.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from bench.cases.queries import hard, tpcds, tpch
from bench.cases.queries.comparison import BROADCAST_UP_TO, CACHED, COLD, DEFAULT
from bench.cases.queries.end_to_end import SUMMED
from bench.data.chains import Chain, Paths
from bench.data.generated import written
from bench.engines import comet
from bench.engines.query_process import QueryFailedError, QueryProcess, Session, query_process
from bench.engines.result_rows import ResultRows
from bench.engines.spark_session import heap_mib, spark_session
from bench.harness import Bench, Case, Contestant, Timing, measure, record, report, same, step, verify
from bench.report.result_files import read
from sparkext.wording import format_table

COMET, BOTH, CONTROL = "Comet", "Comet with sparkext", "Spark, control"

NOTES = f"""\
Measured: Comet {comet.COMET} and this package in Spark {comet.SPARK}, in sessions in processes of their own, with the
same cores and heap. Comet's settings are those of its guides: its plugin, its shuffle manager, and as much off-heap
memory as heap.
Whole queries: every process runs every query equally often, in rotating order, with default settings; sparkext in auto
mode. Its two processes have copies of the files: one reads and indexes them anew for each run, the other keeps the
indexes. A second process with Spark's default plans is a control: it should take as long as the first.
Joins: this package and Spark share a session. Comet's default plan, its plans by settings (hash joins in place of
sort-merge joins, and these with larger broadcasts), and plans with one hint on all build sides are tried; the form that
is fastest in the warm-up is timed. Likewise, only the fastest of Spark's hinted plans is timed. Each run checks that
all joins of the chain are Comet's.
Results of whole queries are kept: with the same `--json` file, a run continues with the first query that it lacks."""

CONTROL_TOLERANCE = 0.03
"""The accepted deviation of the mean ratio of the control from 1. Otherwise the run does not count."""


@dataclass(frozen=True)
class _Form:
    """A hint and settings with which the session with Comet runs a chain of joins."""

    name: str
    hint: str
    conf: Mapping[str, str]


_ON = {"spark.comet.exec.replaceSortMergeJoin": "false", "spark.sql.autoBroadcastJoinThreshold": "10m"}
_HASH = {**_ON, "spark.comet.exec.replaceSortMergeJoin": "true"}
_BROADCAST = {**_HASH, "spark.sql.autoBroadcastJoinThreshold": BROADCAST_UP_TO}
FORMS = (
    _Form("Comet, default plan", "", _ON),
    _Form("Comet, hash for sort-merge joins", "", _HASH),
    _Form("Comet, broadcast by setting", "", _BROADCAST),
    *(_Form(f"Comet, {hint.lower()} hints", hint, _ON) for hint in hard.HINTS),
)


def cases() -> list[Case]:
    """Return the cases: three joins of TPC-H, the hard joins, and the queries of TPC-H and TPC-DS."""
    return [
        Case("comet.three-joins", "lineitem, orders, supplier, part; a count and four sums", _run_chain, named=True),
        Case("comet.tpch", "TPC-H's 22 queries", _run_tpch, named=True),
        Case("comet.tpcds", "TPC-DS's 103 queries", _run_tpcds, named=True),
        *(
            Case(f"comet.{name}", workload.title, partial(_run_hard, name), scaled=False, named=True)
            for name, workload in hard.WORKLOADS.items()
        ),
    ]


def _run_chain(bench: Bench) -> None:
    from sparkext.cli.demo import JOINS

    _compete(bench, Chain("lineitem", JOINS, SUMMED), lambda: tpch.tables(bench))


def _run_hard(name: str, bench: Bench) -> None:
    workload = hard.WORKLOADS[name]
    _compete(bench, workload.chain, lambda: written(bench, f"hard.{name}", lambda: workload.tables(bench)))


def _compete(bench: Bench, chain: Chain, tables: Callable[[], Paths]) -> None:
    from sparkext import configure

    if not comet.is_installed():
        return
    paths = tables()
    with (
        spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark,
        query_process(COMET, Session(_comet_settings(bench, heap_mib())), paths, _log(COMET)) as process,
    ):
        others = [
            same(form.name, partial(_one_native_row, process, chain.sql(form.hint), form), group=COMET)
            for form in FORMS
        ]
        contestants = [*hard.spark_contestants(spark, chain, paths, group="hinted"), *others]
        print(f"all agree on {verify(contestants)}")
        rows = spark.read.parquet(str(paths[chain.probe])).count()
        report(bench, measure(bench, contestants), rows, cpu=False, **comet.versions())


def _one_native_row(process: QueryProcess, text: str, form: _Form) -> object:
    answer = process.run(text, form.conf)
    if answer["native_joins"] != answer["joins"]:
        raise AssertionError(f"{form.name} has another plan:\n{answer['plan']}")
    [row] = answer["rows"]
    return tuple(row)


def _run_tpch(bench: Bench) -> None:
    _run_queries(bench, lambda: tpch.tables(bench), tpch.texts(bench))


def _run_tpcds(bench: Bench) -> None:
    _run_queries(bench, lambda: tpcds.tables(bench), {name: tpcds.query(name) for name in tpcds.ALL_QUERIES})


def _run_queries(bench: Bench, tables: Callable[[], Paths], texts: Mapping[str, str]) -> None:
    """Run the queries that the results file lacks, record each, and print a summary of all."""
    if not comet.is_installed():
        return
    known = _recorded_seconds(bench)
    missing = {name: text for name, text in texts.items() if name not in known}
    if missing:
        with _processes(bench, tables()) as processes:
            for number, (name, text) in enumerate(missing.items()):
                try:
                    known[name] = _measure_query(bench, processes, number, name, text)
                except QueryFailedError as failure:
                    print(f"{name} FAILED: {failure}", flush=True)
    _print_summary(known)


def _recorded_seconds(bench: Bench) -> dict[str, dict[str, float]]:
    """Return the median seconds of each contestant in the results file, by query."""
    if bench.results is None or not bench.results.exists():
        return {}
    return {
        key.part: {timed.contestant: median(timed.seconds) for timed in table}
        for key, table in read(bench.results).tables().items()
        if (key.case, key.scale_factor) == (bench.case, bench.scale_factor)
    }


@contextmanager
def _processes(bench: Bench, tables: Paths) -> Iterator[dict[str, QueryProcess]]:
    """Start the processes of all contestants. Those of this package read copies of the files: indexes are cached by
    path.
    """
    sessions = _sessions(bench)
    with ExitStack() as running:
        processes = {}
        for name, session in sessions.items():
            files = tables
            if session.extended:
                copies = Path(running.enter_context(tempfile.TemporaryDirectory(dir=bench.data.parent)))
                files = {table: Path(shutil.copy2(path, copies)) for table, path in tables.items()}
            processes[name] = running.enter_context(query_process(name, session, files, _log(name)))
        yield processes


def _sessions(bench: Bench) -> dict[str, Session]:
    """Return the session of each contestant. Together, the heaps take up to half of the free memory."""
    heap = max(1536, min(4096, heap_mib() // 4))
    plain, native = _settings(bench, heap), _comet_settings(bench, heap)
    return {
        COLD: Session(plain, extended=True),
        CACHED: Session(plain, extended=True),
        COMET: Session(native),
        BOTH: Session(native, extended=True),
        DEFAULT: Session(plain),
        CONTROL: Session(plain),
    }


def _comet_settings(bench: Bench, heap: int) -> dict[str, str]:
    return {**_settings(bench, heap), **comet.settings(heap)}


def _settings(bench: Bench, heap: int) -> dict[str, str]:
    return {"spark.master": f"local[{bench.threads}]", "spark.driver.memory": f"{heap}m"}


def _log(name: str) -> Path:
    return comet.HOME / f"{name.replace(', ', '-').replace(' ', '-')}.log"


def _measure_query(
    bench: Bench, processes: Mapping[str, QueryProcess], number: int, name: str, text: str
) -> dict[str, float]:
    """Compare the answers of all processes, then time them in rotating order; return the median seconds of each.

    The control, and both engines together, are recorded as not ranked.
    """
    runs = {each: partial(process.run, text, cold=each == COLD) for each, process in processes.items()}
    verify([same(each, partial(_rows, run)) for each, run in runs.items()])
    answers: dict[str, list[dict[str, Any]]] = {each: [] for each in runs}
    order = list(runs)
    for turn in range(bench.runs):
        shift = (number + turn) % len(order)
        with step(f"{name}, run {turn + 1} of {bench.runs}"):
            for each in order[shift:] + order[:shift]:
                answers[each].append(runs[each]())
    seconds = {}
    for each, given in answers.items():
        last = given[-1]
        facts = {key: last[key] for key in ("planning", "peak_bytes", "pipelines", "native")}
        timing = Timing(
            Contestant(each, runs[each], runs[each], ours=each in (COLD, CACHED), floor=each in (BOTH, CONTROL)),
            [answer["seconds"] for answer in given],
        )
        record(bench, [timing], 0, part=name, **facts, **comet.versions())
        seconds[each] = timing.median
    print(
        f"{name}: "
        + ", ".join(f"{each} {value:.2f}" for each, value in seconds.items())
        + f"; {answers[COLD][-1]['pipelines']} pipelines",
        flush=True,
    )
    return seconds


def _rows(run: Callable[[], dict[str, Any]]) -> ResultRows:
    return ResultRows(run()["rows"])


def _print_summary(queries: Mapping[str, Mapping[str, float]]) -> None:
    """Print the mean ratios of all contestants to Spark and to Comet, and the queries in which this package loses."""
    if not queries:
        return
    names = [COLD, CACHED, COMET, BOTH, DEFAULT, CONTROL]
    rows = []
    for name in names:
        over_spark, over_comet = (
            geometric_mean([seconds[name] / seconds[other] for seconds in queries.values()])
            for other in (DEFAULT, COMET)
        )
        ahead = sum(seconds[name] < 0.95 * seconds[COMET] for seconds in queries.values())
        behind = sum(seconds[name] > 1.05 * seconds[COMET] for seconds in queries.values())
        rows.append([name, f"{over_spark:.2f}", f"{over_comet:.2f}", f"{ahead}", f"{behind}"])
    header = ["contestant", "over Spark", "over Comet", "ahead of Comet", "behind Comet"]
    print(f"\n{format_table(header, rows)}\ngeometric means of {len(queries)} queries; 5% count as level")
    slower = {
        name: seconds[COLD] / seconds[DEFAULT]
        for name, seconds in queries.items()
        if seconds[COLD] > max(1.05 * seconds[DEFAULT], seconds[DEFAULT] + 0.05)
    }
    print("slower than Spark, cold: " + (", ".join(f"{name} {ratio:.2f}" for name, ratio in slower.items()) or "none"))
    deviation = math.log(geometric_mean([seconds[CONTROL] / seconds[DEFAULT] for seconds in queries.values()]))
    if abs(deviation) > CONTROL_TOLERANCE:
        print(f"THE RUN DOES NOT COUNT: the control takes {math.exp(deviation):.3f} of the time of the same session")
