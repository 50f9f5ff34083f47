"""Apache DataFusion Comet, a native accelerator for Spark, compared with this package, each in its own Spark version.

`python -m bench.cases.queries.comet --install` creates the environment for Comet in .data/comet: a virtual environment
with PySpark 3.5, and Comet's jar from Maven Central, 450 MB. Only this command downloads anything. Without the
environment, the cases are skipped.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.cases.queries import comparison as queries
from bench.cases.queries import hard, tpch
from bench.cases.queries.end_to_end import SUMMED
from bench.data.chains import Chain, Paths
from bench.data.generated import written
from bench.engines import environments
from bench.engines.result_rows import ResultRows
from bench.engines.spark_session import heap_mib, spark_session
from bench.engines.views import named_in
from bench.harness import Bench, Case, Contestant, measure, report, same, step, verify

COMET, SPARK = "0.12.0", "3.5.7"
VERSIONS = {"comet": COMET, "comet_spark": SPARK}
ROOT = Path(__file__).parents[3]
HOME = ROOT / ".data" / "comet"
_JAR = f"comet-spark-spark3.5_2.12-{COMET}.jar"
_URL = f"https://repo1.maven.org/maven2/org/apache/datafusion/comet-spark-spark3.5_2.12/{COMET}/{_JAR}"

NOTES = f"""\
Measured: as in hard. Comet {COMET} has no jar for Spark 4.1 or later. It therefore runs in PySpark {SPARK}, and this
package in the installed PySpark: two sessions in two processes, which take turns, with the same files, cores and heap.
Comet's settings are those of its guides: its plugin and shuffle manager, and as much off-heap memory as heap. Its
default plan, its plan with hash joins in place of sort-merge joins, and a plan with one hint on all build sides are
tried; the form that is fastest in the warm-up is timed. Likewise, only the fastest of Spark's hinted plans is timed.
Queries are measured as in tpch. The largest queries are also measured if auto mode keeps Spark's plan. For queries,
Comet has no hints; the same setting for broadcast joins as in tpch is tried instead.
Each run checks that Comet's operators have run: all joins of a chain, and at least one operator of a query. The same
session with Comet switched off shows the effect of the other Spark version.
`python -m bench.cases.queries.comet --install` downloads everything that is needed. These cases run only if they are
named."""

SETTINGS = {
    "spark.plugins": "org.apache.spark.CometPlugin",
    "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
    "spark.comet.enabled": "true",
    "spark.comet.exec.enabled": "true",
    "spark.comet.exec.shuffle.enabled": "true",
    "spark.memory.offHeap.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

ALWAYS = ("q03", "q05", "q09", "q10", "q17", "q18", "q21")
"""Queries with the largest joins and groups, which are timed even if auto mode keeps Spark's plan."""

Ask = Callable[[dict[str, Any]], Any]
"""Sends a request to the session with Comet and returns its answer."""


@dataclass(frozen=True)
class _Form:
    """A hint and settings with which the session with Comet runs a query; `group` as in `Contestant`."""

    name: str
    hint: str
    conf: Mapping[str, str]
    group: str

    @property
    def uses_comet(self) -> bool:
        return self.conf["spark.comet.enabled"] == "true"


_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
_ON = {"spark.comet.enabled": "true", "spark.comet.exec.replaceSortMergeJoin": "false", _BROADCAST: "10m"}
_REPLACED = {**_ON, "spark.comet.exec.replaceSortMergeJoin": "true"}
_OFF = {**_ON, "spark.comet.enabled": "false"}
_UNHINTED = (
    _Form("Comet, default plan", "", _ON, "Comet"),
    _Form("Comet, hash for sort-merge joins", "", _REPLACED, "Comet"),
    _Form("Spark 3.5, default plan", "", _OFF, ""),
)
CHAIN_FORMS = (*_UNHINTED, *(_Form(f"Comet, {hint.lower()} hints", hint, _ON, "Comet") for hint in hard.HINTS))
QUERY_FORMS = (
    *_UNHINTED,
    _Form("Comet, broadcast by setting", "", {**_REPLACED, _BROADCAST: queries.BROADCAST_UP_TO}, "Comet"),
)


def cases() -> list[Case]:
    """Return the cases: three joins of TPC-H, its queries, and the hard joins."""
    return [
        Case("comet.three-joins", "lineitem, orders, supplier, part; a count and four sums", _run_chain, named=True),
        Case("comet.tpch", "TPC-H's largest queries, and all that auto mode plans anew", _run_queries, named=True),
        *(
            Case(f"comet.{name}", workload.title, partial(_run_hard, name), scaled=False, named=True)
            for name, workload in hard.WORKLOADS.items()
        ),
    ]


def _run_chain(bench: Bench) -> None:
    from sparkext.cli.demo import JOINS

    _compete(bench, Chain("lineitem", JOINS, SUMMED), tpch.tables(bench))


def _run_hard(name: str, bench: Bench) -> None:
    workload = hard.WORKLOADS[name]
    _compete(bench, workload.chain, written(bench, f"hard.{name}", lambda: workload.tables(bench)))


def _run_queries(bench: Bench) -> None:
    from sparkext import configure

    if not _is_here():
        return
    tables = tpch.tables(bench)
    compared = []
    with (
        spark_session(bench.threads, configure) as spark,
        _comet_session(bench) as ask,
    ):
        asked = queries.SparkQueries.of_files(spark, tables)
        for name, text in tpch.texts(bench).items():
            joins = asked.planned_joins(text)
            if joins or name in ALWAYS:
                rows = partial(_rows, ask, text, named_in(text, tables))
                others = [same(form.name, partial(rows, form), group=form.group) for form in QUERY_FORMS]
                contestants = [*asked.contestants(text, settings=False), *others]
                compared.append(queries.Compared(name, joins, queries.timed(bench, name, contestants, **VERSIONS)))
    queries.print_comparison(compared)


def _rows(ask: Ask, text: str, tables: Paths, form: _Form) -> ResultRows:
    answer = ask(_question(text, tables, form))
    if (answer["native"] > 0) != form.uses_comet:
        raise AssertionError(f"{form.name} has another plan:\n{answer['plan']}")
    return ResultRows(answer["rows"])


def _compete(bench: Bench, chain: Chain, paths: Paths) -> None:
    from sparkext import configure

    if not _is_here():
        return
    with (
        spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark,
        _comet_session(bench) as ask,
    ):
        tables = {name: paths[name] for name in chain.tables}
        others = [_contestant(form, chain, tables, ask) for form in CHAIN_FORMS]
        contestants = [*hard.spark_contestants(spark, chain, paths, group="hinted"), *others]
        print(f"all agree on {verify(contestants)}")
        rows = spark.read.parquet(str(paths[chain.probe])).count()
        report(bench, measure(bench, contestants), rows, cpu=False, **VERSIONS)


def _is_here() -> bool:
    found = installed(HOME)
    if not found:
        print("skipped: `python -m bench.cases.queries.comet --install` fetches Comet and the Spark that it runs in")
    return found


def _contestant(form: _Form, chain: Chain, tables: Paths, ask: Ask) -> Contestant:
    def run() -> object:
        answer = ask(_question(chain.sql(form.hint), tables, form))
        if answer["native_joins"] != (answer["joins"] if form.uses_comet else 0):
            raise AssertionError(f"{form.name} has another plan:\n{answer['plan']}")
        [row] = answer["rows"]
        return tuple(row)

    return same(form.name, run, group=form.group)


def _question(text: str, tables: Paths, form: _Form) -> dict[str, Any]:
    """Return the request for a query. The session lists the files anew each time, as does our session."""
    return {"sql": text, "conf": form.conf, "tables": {name: str(path) for name, path in tables.items()}}


@contextmanager
def _comet_session(bench: Bench) -> Iterator[Ask]:
    """Start Spark with Comet in another process; yield a function that sends it a request and returns the answer."""
    heap = f"{heap_mib()}m"
    settings = {
        **SETTINGS,
        "spark.master": f"local[{bench.threads}]",
        "spark.driver.memory": heap,
        "spark.memory.offHeap.size": heap,
        "spark.jars": str(HOME / _JAR),
        "spark.driver.extraClassPath": str(HOME / _JAR),
    }
    with (HOME / "session.log").open("w") as log:
        process = subprocess.Popen(
            [str(environments.python_of(HOME / "venv")), "-m", "bench.engines.comet_session"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
        )
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask(question: dict[str, Any]) -> Any:
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the session of Comet ended; see {HOME / 'session.log'}")
        return json.loads(line)

    try:
        with step(f"starting Spark {SPARK} with Comet {COMET}"):
            ask({"settings": settings})
        yield ask
    finally:
        stdin.close()
        process.wait(60)


def installed(home: Path) -> bool:
    """Return whether the jar and the virtual environment exist."""
    return (home / _JAR).exists() and environments.python_of(home / "venv").exists()


def install(home: Path) -> None:
    """Create the environment, and download the jar, whose SHA-1 has to match Maven Central's."""
    # PySpark 3.5 needs distutils, which setuptools provides for Python versions without it.
    environments.create(home / "venv", f"pyspark=={SPARK}", "setuptools<81")
    if not (home / _JAR).exists():
        with urllib.request.urlopen(_URL, timeout=300) as found, urllib.request.urlopen(f"{_URL}.sha1") as stated:
            content, checksum = found.read(), stated.read().decode().split()[0]
        if hashlib.sha1(content).hexdigest() != checksum:
            raise RuntimeError(f"{_URL} arrived damaged")
        (home / _JAR).write_bytes(content)


if __name__ == "__main__":
    sys.exit(environments.main(__doc__, partial(install, HOME), f"{HOME} is ready: python -m bench comet"))
