"""A table of Parquet files that workers read themselves: its description on the driver, without the extension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkext.parquet.file_stores import Bucket
from sparkext.parquet.rules import Calendars
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec, Split
from sparkext.scans.scan_filter import Alternatives, as_expression
from sparkext.spark.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_WHOLE = 2**63 - 1


@dataclass(frozen=True)
class ScannedTable:
    """A table of Parquet files.

    `fields` are all columns that are read, for the output or for the filters. `partitions` has one entry per field: the
    index of its value among the partition values of a file, or None for a column that is stored in the files. Rows are
    in the order of `files`.
    """

    fields: tuple[StructField, ...]
    partitions: tuple[int | None, ...]
    filters: Alternatives
    files: tuple[DataFile, ...]
    buckets: tuple[Bucket, ...]
    case_sensitive: bool
    calendars: Calendars

    def scan(self, columns: Sequence[int], max_rows: int) -> ParquetScan:
        """Return the scan that emits these columns, at least one."""
        from pyspark.sql.types import StructType

        tested = {test.name for tests in self.filters for test in tests}
        filter_columns = [
            number for number, field in enumerate(self.fields) if field.name in tested and number not in columns
        ]
        read = [*columns, *filter_columns]
        spec = ScanSpec(
            tuple(ScanColumn(self.fields[number].name, self.partitions[number]) for number in read),
            len(columns),
            as_expression(self.filters, {self.fields[number].name: position for position, number in enumerate(read)}),
            self.case_sensitive,
        )
        schema = arrow_schema(StructType([self.fields[number] for number in read]))
        return ParquetScan(spec, schema, max_rows, calendars=self.calendars, buckets=self.buckets)

    @property
    def splits(self) -> tuple[Split, ...]:
        """All files, each as one split."""
        return tuple(file.split(0, _WHOLE) for file in self.files)


@dataclass(frozen=True)
class ProbeScan:
    """The scan of a pipeline: positions of columns in `table.fields`, and the splits that each task reads."""

    table: ScannedTable
    columns: tuple[int, ...]
    parts: tuple[tuple[Split, ...], ...]
