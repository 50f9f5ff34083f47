"""Counts of executed queries: by kind, by property of their input, and by difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.stream_harness.cases import Case
from tests.stream_harness.running import Verdict
from tests.support.harness import tally
from tests.support.harness.tally import list_counts


@dataclass
class Tally(tally.Tally):
    """Counts of queries, of their batches and rows."""

    batches: int = 0
    late_rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    without_rows: Counter[str] = field(default_factory=Counter)
    properties: Counter[str] = field(default_factory=Counter)

    def count(self, case: Case, verdict: Verdict) -> None:
        """Count a query."""
        self.queries += 1
        self.batches += verdict.batches
        self.rows += verdict.rows
        self.late_rows += verdict.late_rows
        self.kinds[case.kind] += 1
        self.without_rows[case.kind] += not verdict.rows
        self.properties.update(properties(case))
        if verdict.kind:
            self.differences[verdict.kind] += 1

    def __str__(self) -> str:
        lines = [
            f"{self.queries:,} queries, {self.differences.total()} different; {self.batches:,} batches,"
            f" {self.rows:,} rows emitted, {self.late_rows:,} late rows"
        ]
        lines += [
            f"{count:>9,}  {kind}, {self.without_rows[kind]:,} of them without a row"
            for kind, count in self.kinds.most_common()
        ]
        for title, counts in (("with", self.properties), ("DIFFERENCES", self.differences)):
            lines += list_counts(title, counts)
        return "\n".join(lines)


def properties(case: Case) -> set[str]:
    """Return the properties of a case that may expose faults of operators."""
    derivations = {one.way for stream in case.streams for source in stream.sources for one in source.derivations}
    found = {f"{way} columns" for way in derivations - {"stored"}}
    partitions = [run.partitions for run in case.runs]
    for name, holds in {
        "restarts": len(case.runs) > 1,
        "restarts from one partition to several, or back": len({count == 1 for count in partitions}) > 1,
        "sinks that fail": any(run.fails for run in case.runs),
        "predecessors at the same checkpoint": case.predecessor is not None,
        "odd checkpoints": case.checkpoint != "checkpoint",
        "several sources of a stream": any(len(stream.sources) > 1 for stream in case.streams),
        "several files in a batch": any(len(b) > 1 for s in case.streams for one in s.sources for b in one.batches),
    }.items():
        if holds:
            found.add(name)
    return found
