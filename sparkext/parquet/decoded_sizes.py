"""How many bytes row groups take in memory, of which their footer says only a part."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkext.parquet.decoding import as_declared
from sparkext.parquet.opened_file import OpenedFile, Unit

MAX_GROUP_ROWS = 1 << 20
"""Rows of a row group up to which its columns are read whole, each when it is asked for; larger ones stream."""

MAX_GROUP_BYTES = 256 << 20
"""The same for the bytes of the columns that are read, decoded."""

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
"""Bytes of a value in memory, by its type in Parquet. Those of fixed length are decimals."""


@dataclass(frozen=True)
class DecodedSizes:
    """Sizes of the columns of a scan, whose types `schema` has.

    `text_bytes` remembers what a value of a column of text took at most, on average of what was decoded at a time.
    """

    schema: pa.Schema
    text_bytes: dict[int, float]

    def streams(self, unit: Unit) -> bool:
        """Return whether a unit is too large for its columns to be held."""
        rows, size = self.of_unit(unit)
        return unit.last - unit.first == 1 and (rows > MAX_GROUP_ROWS or size > MAX_GROUP_BYTES)

    def of_unit(self, unit: Unit) -> tuple[int, int]:
        """Return the same of all row groups of a unit."""
        sizes = [self.of_group(unit.file, group) for group in range(unit.first, unit.last)]
        return sum(rows for rows, _ in sizes), sum(size for _, size in sizes)

    def of_group(self, file: OpenedFile, number: int) -> tuple[int, int]:
        """Return the rows of a row group, and about as many bytes as the columns that are read have in memory."""
        rows = file.metadata.row_group(number).num_rows
        return rows, sum(self._of_column(file, number, column) for column in range(len(self.schema)))

    def _of_column(self, file: OpenedFile, group: int, column: int) -> int:
        """Return about how many bytes a column of a row group has in memory.

        Of text in a dictionary the footer tells nothing: a few long values may stand for any number of rows, and a
        prefix that is stored once may begin all of them. So the first rows are decoded, once for all files, and
        whatever is read later counts as well.
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
            self.remember(column, as_declared(sample, self.schema.field(column).type, file.path))
        return max(encoded, int(chunk.num_values * self.text_bytes[column]))

    def remember(self, column: int, read: pa.Array | pa.ChunkedArray) -> None:
        """Reckon from now on with what values of a column have taken that were read."""
        self.text_bytes[column] = max(self.text_bytes.get(column, 0.0), read.nbytes / max(len(read), 1))
