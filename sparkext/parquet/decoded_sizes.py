"""Estimates the decoded size of row groups, which the footer states only for some columns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkext.parquet.decoding import convert_to_declared
from sparkext.parquet.opened_file import OpenedFile, Unit

MAX_GROUP_ROWS = 1 << 20
"""Maximum rows of a row group whose columns are read completely, on first access; larger row groups are streamed."""

MAX_GROUP_BYTES = 256 << 20
"""Likewise, the maximum decoded bytes of the scan's columns in a row group."""

_SAMPLED_ROWS = 1024

_DECODED_WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "FLOAT": 4,
    "INT64": 8,
    "INT96": 8,
    "DOUBLE": 8,
    "FIXED_LEN_BYTE_ARRAY": 16,
}
"""Bytes of a decoded value, by Parquet type. Values of fixed length are decimals."""


@dataclass(frozen=True)
class DecodedSizes:
    """Estimates for the columns of a scan with types `schema`.

    `text_bytes`: for each column of strings, the largest mean size of a value in any batch decoded so far.
    """

    schema: pa.Schema
    text_bytes: dict[int, float]

    def streams(self, unit: Unit) -> bool:
        """Return whether a unit is too large for its columns to be held in memory."""
        rows, size = self.of_unit(unit)
        return unit.last - unit.first == 1 and (rows > MAX_GROUP_ROWS or size > MAX_GROUP_BYTES)

    def of_unit(self, unit: Unit) -> tuple[int, int]:
        """Return the rows, and the estimated decoded bytes, of all row groups of a unit."""
        sizes = [self.of_group(unit.file, group) for group in range(unit.first, unit.last)]
        return sum(rows for rows, _ in sizes), sum(size for _, size in sizes)

    def of_group(self, file: OpenedFile, number: int) -> tuple[int, int]:
        """Return the rows of a row group, and the estimated decoded bytes of the scan's columns."""
        rows = file.metadata.row_group(number).num_rows
        return rows, sum(self._of_column(file, number, column) for column in range(len(self.schema)))

    def _of_column(self, file: OpenedFile, group: int, column: int) -> int:
        """Return the estimated decoded bytes of a column in a row group.

        For dictionary-encoded strings the footer gives no estimate: a few long values may represent any number of rows,
        and a prefix that is stored once may occur in all of them. Therefore the first rows are decoded, once for all
        files, and later reads update the estimate.
        """
        leaf = file.leaf(column)
        if leaf is None:
            return 0
        chunk = file.metadata.row_group(group).column(leaf)
        encoded = int(chunk.total_uncompressed_size)
        if chunk.physical_type != "BYTE_ARRAY":
            return max(encoded, int(chunk.num_values) * _DECODED_WIDTHS[chunk.physical_type])
        if not any("DICTIONARY" in encoding or encoding == "DELTA_BYTE_ARRAY" for encoding in chunk.encodings):
            return encoded
        if column not in self.text_bytes:
            sample = next(file.stream([group], [leaf], _SAMPLED_ROWS)).column(0)
            self.remember(column, convert_to_declared(sample, self.schema.field(column).type, file.path))
        return max(encoded, int(chunk.num_values * self.text_bytes[column]))

    def remember(self, column: int, read: pa.Array | pa.ChunkedArray) -> None:
        """Update the estimate of a column with the size of values that have been read."""
        self.text_bytes[column] = max(self.text_bytes.get(column, 0.0), read.nbytes / max(len(read), 1))
