"""Build sides that the workers of each node read from Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sparkext.build_sides.cached_rows import CachedRows
from sparkext.build_sides.sources import SemiJoinReduction, SourceFiles
from sparkext.config import Settings
from sparkext.engine.derived_rows import DerivedRows, count_split_bytes
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.adaptive.early_drops import has_value_tests
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.pipeline.projection import Projection
from sparkext.plans.pipeline.scan import Split
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, PipelineSpec
from sparkext.rows.collected import CollectedRows
from sparkext.storage.fingerprint import fingerprint_of

_PARTS_OF_A_THREAD = 4
_LEAST_PART_BYTES = 4 << 20


@dataclass(frozen=True)
class ScannedFiles(CachedRows):
    """Parquet files that are read once per node, by its workers."""

    scan: ParquetScan
    splits: tuple[Split, ...]
    max_bytes: int
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

    def files(self) -> SourceFiles:
        """Return the files."""
        size = sum(count_split_bytes(self.scan, split) for split in self.splits)
        return SourceFiles(size, has_value_tests(self.scan.spec.filter), may_fail=False)

    def reduced(self, reductions: Sequence[SemiJoinReduction], settings: Settings) -> CachedRows:
        """Return the rows of a pipeline without joins, with these reductions, if there are any."""
        return self._as_derived_rows(settings).reduced_from(self, reductions, settings) if reductions else self

    def _as_derived_rows(self, settings: Settings) -> DerivedRows:
        scan, count = self.scan, self.scan.spec.outputs
        schema = pa.schema([scan.schema.field(number) for number in range(count)])
        spec = PipelineSpec(count, (), tuple(ColumnRef(PROBE, number) for number in range(count)))
        outputs = tuple(Expression("column", None, column=number) for number in range(count))
        limit = max(_LEAST_PART_BYTES, self.files().bytes // (_PARTS_OF_A_THREAD * self.threads))
        parts = tuple(
            (part,) for split in self.splits for part in _split_by_bytes(split, count_split_bytes(scan, split), limit)
        )
        limits = (settings, self.max_bytes, self.threads)
        return DerivedRows(spec, scan, parts, (), schema, Projection(None, outputs), schema, *limits)


def _split_by_bytes(split: Split, length: int, limit: int) -> list[Split]:
    """Split a split into parts of `limit` bytes; the last part keeps the remaining length of the original split."""
    offsets = [*range(0, max(length, 1), limit)]
    return [
        replace(split, start=split.start + offset, length=split.length - offset if offset == offsets[-1] else limit)
        for offset in offsets
    ]
