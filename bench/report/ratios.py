"""Ratios of the times of other engines to ours, for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.report.result_files import Key, Timed

SPARK, HINTED, REWRITTEN = "Spark, default plan", "Spark, hinted", "Spark, rewritten"
COMET = "Comet"
"""Beginning of the accelerator's name; its version and the version of its Spark follow."""

_IN_SPARK = frozenset((SPARK, HINTED, REWRITTEN, "Spark 3.5"))

_OTHERS = frozenset(("scaling", "controller", "cql", "flink", "ordered_streams"))
"""Suites that do not compare joins with other engines: growth, sizes of this package's output, loops and order."""


@dataclass(frozen=True)
class Ratio:
    """Time of one competitor divided by the time of one of our contestants: above 1, we are faster.

    `value` is the ratio of the medians; `low` and `high` are the lowest and the highest ratio of single runs.
    """

    engine: str
    contestant: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One of our contestants in one table, and the fastest form of every competitor."""

    key: Key
    ours: Timed
    ratios: tuple[Ratio, ...]

    @property
    def form(self) -> str:
        """The form in which this package was used."""
        return self.ours.contestant.partition(", ")[2]

    @property
    def nearest(self) -> Ratio:
        """The ratio to the fastest competitor."""
        return min(self.ratios, key=lambda ratio: ratio.value)

    @property
    def won(self) -> bool:
        """Whether our slowest run is faster than the fastest run of every competitor."""
        return all(ratio.low > 1 for ratio in self.ratios)

    @property
    def lost(self) -> bool:
        """Whether the slowest run of a competitor is faster than our fastest run."""
        return any(ratio.high < 1 for ratio in self.ratios)

    @property
    def keeps_indexes(self) -> bool:
        """Whether the indexes were cached by an earlier run."""
        return "cached" in self.ours.contestant

    def against(self, engine: str) -> Ratio | None:
        """Return the ratio to one competitor, None if it did not run."""
        return next((ratio for ratio in self.ratios if ratio.engine == engine), None)


def engine(timed: Timed) -> str:
    """Return the name of the competitor. Spark with hints, settings or a rewritten query counts separately."""
    if timed.engine == COMET:
        comet, spark = (timed.values[name].rpartition(".")[0] for name in ("comet", "comet_spark"))
        return f"{COMET} {comet} in Spark {spark}"
    if timed.engine != "Spark":
        return timed.engine
    if "bins" in timed.contestant:
        return REWRITTEN
    return HINTED if "hint" in timed.contestant or "by setting" in timed.contestant else SPARK


def compared(tables: Mapping[Key, Sequence[Timed]]) -> list[Row]:
    """Return the rows that compare joins with other engines."""
    return [row for row in rows(tables) if row.key.suite not in _OTHERS]


def rows(tables: Mapping[Key, Sequence[Timed]]) -> list[Row]:
    """Return a row for each of our contestants that has a competitor."""
    found = []
    for key, table in tables.items():
        fastest: dict[str, Timed] = {}
        for timed in table:
            if not timed.ours and not timed.floor:
                known = fastest.get(engine(timed))
                if known is None or median(timed.seconds) < median(known.seconds):
                    fastest[engine(timed)] = timed
        for ours in (timed for timed in table if timed.ours):
            ratios = tuple(_ratio(name, timed, ours) for name, timed in fastest.items())
            if ratios:
                found.append(Row(key, ours, ratios))
    return found


def _ratio(name: str, other: Timed, ours: Timed) -> Ratio:
    return Ratio(
        name,
        other.contestant,
        median(other.seconds) / median(ours.seconds),
        min(other.seconds) / max(ours.seconds),
        max(other.seconds) / min(ours.seconds),
    )


def within_spark(found: Sequence[Row]) -> list[Row]:
    """Return the rows, with only their competitors that run in Spark; rows without any are left out."""
    return _only(found, _runs_in_spark)


def without_spark(found: Sequence[Row]) -> list[Row]:
    """Return the rows, with only their competitors that run without Spark; rows without any are left out."""
    return _only(found, lambda engine: not _runs_in_spark(engine))


def _runs_in_spark(engine: str) -> bool:
    """Return whether an engine is one of Spark's own plans, or an accelerator for Spark."""
    return engine in _IN_SPARK or engine.startswith(COMET)


def _only(found: Sequence[Row], wanted: Callable[[str], bool]) -> list[Row]:
    kept = [Row(row.key, row.ours, tuple(ratio for ratio in row.ratios if wanted(ratio.engine))) for row in found]
    return [row for row in kept if row.ratios]
