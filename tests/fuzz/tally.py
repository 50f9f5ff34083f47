"""Counts of executed queries: joins, paths, and differences."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.cases import Case
from tests.fuzz.running import Verdict
from tests.support.harness import tally
from tests.support.harness.tally import list_counts

GROUPS = ("groups of joins", "groups of scans")
"""Names in `Outcome.behind` for groups that workers compute."""
_ANALYSIS = (
    "UNRESOLVED",
    "DATATYPE_MISMATCH",
    "UNSUPPORTED_SUBQUERY",
    "PARSE",
    "AMBIGUOUS",
    "MISSING",
    "INVALID",
    "NUM_",
)
"""Prefixes of error conditions of invalid queries, which no engine can run."""


@dataclass
class Tally(tally.Tally):
    """Counts of queries, their joins and their outcomes."""

    with_joins: int = 0
    with_pipelines: int = 0
    only_pipelines: int = 0
    empty: int = 0
    reordered: int = 0
    pipelined: Counter[tuple[str, str]] = field(default_factory=Counter)
    own_joins: Counter[str] = field(default_factory=Counter)
    declined: Counter[str] = field(default_factory=Counter)
    scans: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    grouped: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def count(self, case: Case, verdict: Verdict) -> None:
        """Count a query."""
        ours = verdict.ours
        self.queries += 1
        pipelined, own = sum(ours.pipelined.values()), sum(ours.own_joins.values())
        self.with_joins += bool(pipelined or own)
        self.with_pipelines += bool(pipelined)
        self.only_pipelines += bool(pipelined and not own)
        self.rows += len(ours.rows)
        self.empty += not ours.rows and not ours.error
        self.pipelined.update(ours.pipelined)
        self.own_joins.update(ours.own_joins)
        self.declined.update(ours.declined)
        self.scans.update(ours.scans)
        self.behind.update(ours.behind)
        self.shapes[case.shape] += 1
        self.agreed[case.shape] += not verdict.kind
        self.grouped[case.shape] += any(name in ours.behind for name in GROUPS)
        if verdict.own.error:
            self.errors[verdict.own.error] += 1
        self.reordered += verdict.reordered
        if verdict.kind:
            self.differences[verdict.kind] += 1

    @property
    def joins(self) -> int:
        """The number of joins in the plans of the extension."""
        return sum(self.pipelined.values()) + sum(self.own_joins.values())

    @property
    def share_pipelined(self) -> float:
        """The share of joins that were pipelined."""
        return sum(self.pipelined.values()) / max(1, self.joins)

    @property
    def meaningless(self) -> int:
        """The number of queries that Spark fails to analyze."""
        return sum(count for error, count in self.errors.items() if error.startswith(_ANALYSIS))

    def __str__(self) -> str:
        different, failing = sum(self.differences.values()), sum(self.errors.values()) - self.meaningless
        lines = [
            f"{self.queries:,} queries, {different} different; {self.rows:,} rows, {self.empty:,} empty results;"
            f" {self.meaningless:,} that Spark does not analyze, {failing:,} that fail when they run,"
            f" {self.reordered:,} with errors that Spark raises in another order",
            f"{self.with_joins:,} queries with joins, {self.with_pipelines:,} with pipelines,"
            f" {self.only_pipelines:,} with nothing else;"
            f" {self.share_pipelined:.1%} of {self.joins:,} joins pipelined:",
        ]
        lines += [f"{count:>9,}  {kind}, {form}" for (kind, form), count in sorted(self.pipelined.items())]
        lines.append("shapes:")
        lines += [
            f"{count:>9,}  {shape}: {self.agreed[shape]:,} agreed, {self.grouped[shape]:,} with groups in workers"
            for shape, count in self.shapes.most_common()
        ]
        for title, counts in (
            ("behind joins and scans", self.behind),
            ("joins by Spark", self.own_joins),
            ("why", self.declined),
            ("probe sides", self.scans),
            ("errors of Spark", self.errors),
            ("DIFFERENCES", self.differences),
        ):
            lines += list_counts(title, counts)
        return "\n".join(lines)
