"""Runs queries in two sessions, one of which plans every eligible join as a pipeline, and compares the results."""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkext.spark.extension import find_planned_runs, list_declined_joins
from tests.fuzz.cases import Case
from tests.fuzz.queries import FOLDER, result_items
from tests.fuzz.sql import Ordered
from tests.fuzz.storage import register, store
from tests.fuzz.tables import Universe
from tests.fuzz.types import ABOUT
from tests.support.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = {"spark.sparkext.mode": "auto", "spark.sparkext.debug.force": "true"}
OWN = {"spark.sparkext.mode": "off"}
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\]")
_SAY_NOTHING = (None, "_LEGACY_ERROR_TEMP_0000", "STAGE_MATERIALIZATION_MULTIPLE_FAILURES")
"""Conditions of errors that only wrap other errors."""
_SPARK_JOIN = re.compile(
    r"^[ :+\-*()\d]*(BroadcastHashJoin|SortMergeJoin|ShuffledHashJoin|BroadcastNestedLoopJoin|CartesianProduct)"
    r"(?:.*?\b(Inner|Cross|LeftOuter|RightOuter|FullOuter|LeftSemi|LeftAnti|ExistenceJoin|LeftSingle)\b)?"
)
_PIPELINE = re.compile(r"^[ :+\-*()\d]*Pipelined(Join|Aggregate) (\[.*)")
_SCAN = re.compile(r"\] scan=(fused|(?:columns|rows) from Spark \([^()]*)")
_ALWAYS = {
    "spark.sql.timeType.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    # Spark formats every plan for its UI, several times with adaptive execution: a tenth of the time of a small query.
    "spark.sql.ui.explainMode": "simple",
}
_PLAIN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_OTHER_ORDERS = (
    {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "10485760"},
    {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"},
    {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"},
)
# Python has no value for these types, or a value whose text depends on its construction.
_AS_TEXT = ("months", "variant")


@dataclass
class Outcome:
    """The outcome of a query: rows as texts, or the condition of an error; and the counts of its joins.

    `values` are the rows themselves. `behind` counts the operators that workers run after joins and scans: filters,
    groups, or the reason why Spark groups. `nulls` are columns with nulls that are NOT NULL in the executed plan.
    """

    rows: list[str] = field(default_factory=list)
    values: list[tuple[Any, ...]] = field(default_factory=list)
    error: str = ""
    message: str = ""
    schema: list[tuple[str, str, bool]] = field(default_factory=list)
    nulls: list[int] = field(default_factory=list)
    pipelined: Counter[tuple[str, str]] = field(default_factory=Counter)
    own_joins: Counter[str] = field(default_factory=Counter)
    declined: Counter[str] = field(default_factory=Counter)
    scans: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    plan: str = ""


@dataclass
class Verdict:
    """Both outcomes, and their difference: its kind and a description.

    `reordered`: one outcome is an error, and Spark gives the extension's outcome as well with another evaluation order.
    """

    ours: Outcome
    own: Outcome
    kind: str = ""
    told: str = ""
    reordered: bool = False

    @property
    def origin(self) -> str:
        """The condition of the extension's error."""
        return self.ours.error


class Runner:
    """Two sessions of one application, and the universe whose tables are registered in both."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # else, each failing query logs pages of text
        self._sessions = [spark.newSession(), spark.newSession()]
        for session, settings in zip(self._sessions, (OURS, OWN), strict=True):
            for key, value in {**settings, **_ALWAYS}.items():
                session.conf.set(key, value)
        self._settings: dict[str, str] = {}
        self._folder = folder
        self._universe: Universe | None = None
        self._threads = ThreadPoolExecutor(2)

    def run(self, case: Case) -> Verdict:
        """Run a query in both sessions concurrently, over the tables of its universe."""
        if case.universe is not self._universe:
            self._clear()
            self._make(case.universe)
        self._configure(case.settings)
        sql = case_sql(case).replace(FOLDER, str(self._place))
        ours, own = self._threads.map(lambda session: _outcome(session, sql), self._sessions)
        verdict = Verdict(ours, own)
        about = [place for place, item in enumerate(result_items(case.query)) if item.value.family == ABOUT]
        verdict.kind, verdict.told = difference(ours, own, isinstance(case.query, Ordered), about)
        if verdict.kind and (ours.error or own.error) and self._is_another_order(case, sql, ours, about):
            verdict.kind, verdict.reordered = "", True
        return verdict

    def _is_another_order(self, case: Case, sql: str, ours: Outcome, about: Sequence[int]) -> bool:
        """Return whether Spark has the same outcome if it evaluates in another order.

        It then does not skip subplans whose other side is empty, uses other joins, or compiles filters. A compiled
        filter does not evaluate any conjunct after a null one.
        """
        for other in _OTHER_ORDERS:
            self._configure({**case.settings, **other})
            if not difference(ours, _outcome(self._sessions[1], sql), isinstance(case.query, Ordered), about)[0]:
                return True
        return False

    def close(self) -> None:
        """Drop the tables and stop the threads; the session remains."""
        self._clear()
        self._threads.shutdown()

    def _clear(self) -> None:
        for session in self._sessions:
            for table in self._universe.tables if self._universe else ():
                session.catalog.dropTempView(table.name)
        self._sessions[0].catalog.clearCache()
        shutil.rmtree(self._place, ignore_errors=True)
        self._universe = None

    def _make(self, universe: Universe) -> None:
        # All universes use the same paths: caches must not confuse the files of different universes.
        self._place.mkdir(parents=True)
        self._configure(_PLAIN)
        for session in self._sessions:
            for key, value in universe.settings.items():
                session.conf.set(key, value)
        for table in universe.tables:
            store(self._sessions[1], table, self._place)
            for session in self._sessions:
                register(session, table, self._place)
        self._universe = universe

    def _configure(self, settings: dict[str, str]) -> None:
        """Set these keys in both sessions, and unset the keys that were set before."""
        for session in self._sessions:
            for key in self._settings.keys() - settings.keys():
                session.conf.unset(key)
            for key, value in settings.items():
                if self._settings.get(key) != value:
                    session.conf.set(key, value)
        self._settings = settings

    @property
    def _place(self) -> Path:
        return self._folder / "tables"


def case_sql(case: Case) -> str:
    """Return the query of a case, with a cast for columns whose Python value cannot be compared."""
    items = result_items(case.query)
    sql = case.query.sql()
    if not any(item.value.family in _AS_TEXT for item in items) or any(item.name == "*" for item in items):
        return sql
    names = [quoted(f"o{number}") for number in range(len(items))]
    texts = (
        f"CAST({name} AS string)" if item.value.family in _AS_TEXT else name
        for name, item in zip(names, items, strict=True)
    )
    return f"SELECT {', '.join(texts)}\nFROM (\n{sql}\n) AS o({', '.join(names)})"


def _outcome(session: SparkSession, sql: str) -> Outcome:
    outcome = Outcome()
    frame = None
    try:
        frame = session.sql(sql)
        outcome.schema = [(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema]
        rows = frame.collect()
        outcome.values = [tuple(row) for row in rows]
        outcome.rows = [repr(row) for row in outcome.values]
        ran: Any = frame._jdf.queryExecution().executedPlan().schema()
        never_null = [place for place, field in enumerate(ran.fields()) if not field.nullable()]
        outcome.nulls = [place for place in never_null if any(row[place] is None for row in rows)]
    except Exception as error:  # any error is an outcome to compare
        outcome.error, outcome.message = error_condition(error), str(error)[:2000]
    if frame is not None and session.conf.get("spark.sparkext.mode") != "off":
        _look_at_plan(frame, outcome)
    return outcome


def error_condition(error: Exception) -> str:
    """Return the condition of a Spark error, or of its cause if it only wraps one; otherwise, the error's class."""
    condition = getattr(error, "getCondition", lambda: None)()
    if condition in _SAY_NOTHING:
        found = [text for text in _CONDITION.findall(str(error)) if text not in _SAY_NOTHING]
        condition = found[0] if found else type(error).__name__
    return str(condition)


def _look_at_plan(frame: DataFrame, outcome: Outcome) -> None:
    """Count the joins of an executed plan: pipelined ones by type and form, Spark's own, and the reasons for those."""
    try:
        for run in find_planned_runs(frame):
            outcome.pipelined.update(map(kind_and_form, run.joins))
        outcome.declined.update(map(general, list_declined_joins(frame)))
        plan: Any = frame._jdf.queryExecution().executedPlan()
        outcome.plan = str((plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan).toString())
    except Exception as error:  # a failed planning: the query's error contains it
        outcome.plan = f"no plan: {str(error)[:500]}"
    outcome.scans.update(general(scan) for scan in _SCAN.findall(outcome.plan))
    for line in outcome.plan.splitlines():
        if found := _PIPELINE.match(line):
            outcome.behind.update(_behind(found[1], found[2]))
        if found := _SPARK_JOIN.match(line):
            outcome.own_joins[found[2] or found[1]] += 1


def _behind(node: str, told: str) -> list[str]:
    """Return the operators that workers run after a pipeline's joins, or after its scan."""
    of = "joins" if node == "Join" else "scans"
    found = [f"filters of {of}"] if " filter=" in told else []
    if by_spark := re.search(r" groups=by Spark \((.*)\)", told):
        return [*found, f"groups of {of} by Spark: {general(by_spark[1])}"]
    return [*found, f"groups of {of}"] if " groups=" in told else found


def general(reason: str) -> str:
    """Return a reason without the details of this query."""
    reason = re.sub(r"(: ).*", r"\1…", reason, flags=re.DOTALL)
    reason = re.sub(r"column .* of type .* cannot be passed", "column … of type … cannot be passed", reason)
    return re.sub(r"a key of type [^:]*", "a key of type …", reason)


def kind_and_form(label: str) -> tuple[str, str]:
    """Return the type of a join, and the form of its lookup, from its label."""
    kind, _, condition = label.partition(" ")
    first = condition.split(" AND ")[0]
    if " as of " in first:
        form = "as of"
    elif re.search(r" <=> | = ", first) and " OR " not in first:
        form = "equal keys" + (" and more" if " AND " in condition else "")
    elif re.search(r" [<>]=? ", first) and " OR " not in first:
        form = "ranges"
    else:
        form = "every pair"
    return kind, form


def difference(ours: Outcome, own: Outcome, ordered: bool, about: Sequence[int] = ()) -> tuple[str, str]:
    """Return the kind of difference between two outcomes and a description, or empty texts.

    Columns `about` are floats whose last digits do not matter.
    """
    if ours.error and own.error:
        same = ours.error == own.error
        return (
            ("", "") if same else ("other error", f"ours {ours.error}: {ours.message}\nown {own.error}: {own.message}")
        )
    if ours.error:
        return "error", f"{ours.error}: {ours.message}"
    if own.error:
        return "missing error", f"Spark raises {own.error}: {own.message}"
    if ours.schema != own.schema or ours.nulls:
        return "schema", f"{ours.schema}, nulls in columns {ours.nulls} that have none\nexpected {own.schema}"
    if ours.rows == own.rows or (not ordered and sorted(ours.rows) == sorted(own.rows)):
        return "", ""
    if about and are_near(ours.values, own.values, about):
        return "", ""
    missing, surplus = Counter(own.rows) - Counter(ours.rows), Counter(ours.rows) - Counter(own.rows)
    if not missing and not surplus:
        return "order", f"{ours.rows[:10]}\nexpected {own.rows[:10]}"
    return (
        "rows",
        f"{len(ours.rows)} rows, expected {len(own.rows)}: missing {_some(missing)}, surplus {_some(surplus)}",
    )


def are_near(ours: Sequence[tuple[Any, ...]], own: Sequence[tuple[Any, ...]], about: Sequence[int]) -> bool:
    """Return whether rows are equal in any order, apart from the last digits of these columns."""

    def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
        rest = [value for place, value in enumerate(row) if place not in about]
        return repr(rest), *(f"{row[place]:+.6e}" if row[place] is not None else "" for place in about)

    def is_near(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        return all(
            _float_is_near(value, expected) if place in about else repr(value) == repr(expected)
            for place, (value, expected) in enumerate(zip(one, other, strict=True))
        )

    return 0 < len(ours) == len(own) and all(map(is_near, sorted(ours, key=order), sorted(own, key=order)))


def _float_is_near(one: float | None, other: float | None) -> bool:
    if one is None or other is None or math.isnan(one) or math.isnan(other):
        return repr(one) == repr(other)
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def _some(rows: Counter[str]) -> str:
    return "; ".join(f"{count} x {row}" for row, count in rows.most_common(5)) or "none"
