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
    """A folder of files: how its columns are derived, and the files of each batch, with stored values."""

    derivations: tuple[Derivation, ...]
    batches: tuple[Batch, ...]

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield every row as the query derives it, with its batch."""
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

    `time` and `unique` are places of columns: when a row happened, and a number that no other row has. `delay` is that
    of the watermark, in seconds; None: there is none.
    """

    columns: tuple[Column, ...]
    sources: tuple[Source, ...]
    time: int
    unique: int
    delay: int | None

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield every row with its batch."""
        for source in self.sources:
            yield from source.rows()
