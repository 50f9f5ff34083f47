"""Streams as plain data: every row of every file of every batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.stream_harness.columns import Column, Derivation

Row = tuple[Any, ...]
File = tuple[Row, ...]
Batch = tuple[File, ...]


@dataclass(frozen=True)
class Source:
    """A folder of files: the derivation of its columns, and the files of each batch with stored values."""

    derivations: tuple[Derivation, ...]
    batches: tuple[Batch, ...]

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield the number of the batch and the derived row, for every row."""
        required = [place for place, one in enumerate(self.derivations) if one.way == "required"]
        for number, batch in enumerate(self.batches):
            for file in batch:
                for stored in file:
                    row = tuple(one.value(value) for one, value in zip(self.derivations, stored, strict=True))
                    if all(row[place] is not None for place in required):
                        yield number, row


@dataclass(frozen=True)
class Stream:
    """The union of some sources with the same columns.

    `time` and `unique` are positions of columns: the event time, and a unique number. `delay` is the delay of the
    watermark in seconds, or None without a watermark.
    """

    columns: tuple[Column, ...]
    sources: tuple[Source, ...]
    time: int
    unique: int
    delay: int | None

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield the number of the batch and the row, for every row of all sources."""
        for source in self.sources:
            yield from source.rows()
