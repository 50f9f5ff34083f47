"""How many times as long the others take: what the report draws and lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.result_files import Key, Timed

SPARK, HINTED, REWRITTEN = "Spark, default plan", "Spark, hinted", "Spark, rewritten"
COMET = "Comet"
"""Begins the name of the accelerator; its version and that of its Spark follow."""

_IN_SPARK = frozenset((SPARK, HINTED, REWRITTEN, "Spark 3.5"))

_OTHERS = frozenset(("scaling", "controller", "cql", "flink", "ordered_streams"))
"""Suites that are no joins beside other engines: series, sizes of this package against each other, loops and order."""


@dataclass(frozen=True)
class Ratio:
    """One competitor beside one of our contestants: over 1 is our win.

    `value` is that of the medians; `low` and `high` are those of single runs, the fastest of one against the slowest of
    the other.
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
        """In which way this package was used."""
        return self.ours.contestant.partition(", ")[2]

    @property
    def nearest(self) -> Ratio:
        """The competitor that is fastest."""
        return min(self.ratios, key=lambda ratio: ratio.value)

    @property
    def won(self) -> bool:
        """Whether our slowest run is faster than the fastest one of every competitor."""
        return all(ratio.low > 1 for ratio in self.ratios)

    @property
    def lost(self) -> bool:
        """Whether the slowest run of some competitor is faster than our fastest one."""
        return any(ratio.high < 1 for ratio in self.ratios)

    @property
    def keeps_indexes(self) -> bool:
        """Whether the indexes are those of an earlier run."""
        return "cached" in self.ours.contestant

    def against(self, engine: str) -> Ratio | None:
        """The ratio to one competitor, if it took part."""
        return next((ratio for ratio in self.ratios if ratio.engine == engine), None)


def engine(timed: Timed) -> str:
    """Name the competitor: Spark with hints, settings or another query is one of its own: a user has to write these."""
    if timed.engine == COMET:
        comet, spark = (timed.values[name].rpartition(".")[0] for name in ("comet", "comet_spark"))
        return f"{COMET} {comet} in Spark {spark}"
    if timed.engine != "Spark":
        return timed.engine
    if "bins" in timed.contestant:
        return REWRITTEN
    return HINTED if "hint" in timed.contestant or "by setting" in timed.contestant else SPARK


def compared(tables: Mapping[Key, Sequence[Timed]]) -> list[Row]:
    """The rows of joins beside other engines."""
    return [row for row in rows(tables) if row.key.suite not in _OTHERS]


def rows(tables: Mapping[Key, Sequence[Timed]]) -> list[Row]:
    """A row for each of our contestants that has a competitor."""
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
    """The rows with those competitors that run in Spark, as far as they have any."""
    return _only(found, _runs_in_spark)


def without_spark(found: Sequence[Row]) -> list[Row]:
    """The rows with those competitors that run without Spark, as far as they have any."""
    return _only(found, lambda engine: not _runs_in_spark(engine))


def _runs_in_spark(engine: str) -> bool:
    """Return whether an engine is a plan of Spark's own, or of an accelerator for it."""
    return engine in _IN_SPARK or engine.startswith(COMET)


def _only(found: Sequence[Row], wanted: Callable[[str], bool]) -> list[Row]:
    kept = [Row(row.key, row.ours, tuple(ratio for ratio in row.ratios if wanted(ratio.engine))) for row in found]
    return [row for row in kept if row.ratios]
