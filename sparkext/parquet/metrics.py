"""Metrics of the files that a task has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class ScanMetrics:
    """Compressed bytes of the columns read, row groups and their rows, and row groups pruned by statistics."""

    bytes: int = 0
    rows: int = 0
    row_groups: int = 0
    row_groups_pruned: int = 0


def sum_scan_metrics(scans: Sequence[ScanMetrics]) -> ScanMetrics:
    """Return the sums over the tasks of one run."""
    return ScanMetrics(**{name: sum(vars(scan)[name] for scan in scans) for name in vars(ScanMetrics())})
