"""Build sides that the workers of each node read from Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkext.build_sides.cached_rows import CachedRows
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import Split
from sparkext.rows.collected import CollectedRows
from sparkext.storage.fingerprint import fingerprint_of


@dataclass(frozen=True)
class ScannedFiles(CachedRows):
    """Parquet files that are read once per node, by its workers."""

    scan: ParquetScan
    splits: tuple[Split, ...]
    max_bytes: int
    cache_bytes: int
    threads: int

    def digest(self) -> str:
        """Return a fingerprint of the scan and of the files, as they are now."""
        return fingerprint_of(self, self.scan.identities(split.path for split in self.splits))

    def rows_read(self) -> int:
        """Return the number of rows in the files."""
        return self.scan.rows_of(self.splits)

    def collect(self, rows: CollectedRows) -> tuple[pa.Table, Sequence[str]]:
        """Read all rows."""
        return self.scan.begun().collect(self.splits, self.threads, rows), ()
