"""What a task has read of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class ScanMetrics:
    """What a task read: compressed bytes of columns, row groups and their rows, and what statistics ruled out."""

    bytes: int = 0
    rows: int = 0
    row_groups: int = 0
    row_groups_pruned: int = 0


def merged_scans(scans: Sequence[ScanMetrics]) -> ScanMetrics:
    """Add up what the tasks of one run have read."""
    return ScanMetrics(**{name: sum(vars(scan)[name] for scan in scans) for name in vars(ScanMetrics())})
