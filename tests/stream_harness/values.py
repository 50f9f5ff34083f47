"""Draws streams: columns with their derivations, and rows; some are late or have no time, many have equal values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import accumulate, count
from typing import Any

from tests.fuzz.tables import NULL_RATES, ODD_NAMES, PLAIN_NAMES
from tests.stream_harness.columns import PAYLOADS, WAYS, Column, Derivation
from tests.stream_harness.functions import CHAIN, COUNT
from tests.stream_harness.sources import Batch, File, Row, Source, Stream

_STEPS = (10, 60)
"""Seconds from the beginning of a batch to the beginning of the next. The rows of a batch span 15 seconds."""
_SPAN = 15
_STARTS = (
    datetime(2026, 1, 1, tzinfo=timezone.utc),
    datetime(2024, 3, 10, 6, 59, 30, tzinfo=timezone.utc),  # half a minute before New York's clocks go forward
    datetime(2023, 11, 5, 5, 59, 30, tzinfo=timezone.utc),  # and half a minute before they go back
    datetime(1999, 12, 31, 23, 59, 50, 1, tzinfo=timezone.utc),
)


@dataclass
class Drawing:
    """Shared properties of the streams of a case.

    `beginnings` is the time of the earliest row of each batch, in seconds after `start`.
    """

    r: random.Random
    beginnings: Sequence[int]
    most_rows: int
    start: datetime = _STARTS[0]
    names: list[str] = field(default_factory=lambda: [COUNT, CHAIN, "n", "times"])
    numbers: Any = field(default_factory=count)

    @classmethod
    def of(cls, r: random.Random) -> Drawing:
        """Draw the number of batches and their times."""
        batches = r.randint(3, 10) if r.random() < 0.3 else r.randint(3, 5)
        beginnings = [*accumulate(r.choice(_STEPS) for _ in range(batches))]
        return cls(r, beginnings, r.choice((4, 10, 20, 40)), r.choice(_STARTS))

    @property
    def batches(self) -> int:
        """The number of batches."""
        return len(self.beginnings)

    def name(self, wanted: str | None = None) -> str:
        """Return a name that differs from all other columns, ignoring case."""
        name = wanted or self.r.choice(PLAIN_NAMES if self.r.random() < 0.5 else ODD_NAMES)
        if wanted is None and self.r.random() < 0.2:
            name = name.upper()
        number = 0
        found = name
        while found.lower() in self.names:
            number += 1
            found = f"{name}{number}"
        self.names.append(found.lower())
        return found

    def column(self, kind: str, name: str | None = None) -> Column:
        """Return a column with a unique name."""
        return Column(self.name(name), kind)


def draw_stream(
    d: Drawing,
    columns: Sequence[Column],
    *,
    time: Column,
    unique: Column,
    delay: int | None,
    usual: dict[str, Sequence[Any]],
) -> Stream:
    """Draw a stream with these columns, a time, a unique number, and payload columns that no operator reads.

    `usual` has the values of columns that do not use the values of their type.
    """
    r = d.r
    extra = [d.column(r.choice(PAYLOADS).sql) for _ in range(r.choice((0, 1, 1, 2, 4)))]
    everything = [*columns, time, unique, *extra]
    r.shuffle(everything)
    among = {one.name: _some_values(r, one, usual) for one in everything if one not in (time, unique)}
    nulls = {one.name: r.choice(NULL_RATES) for one in everything}
    files = r.choice((1, 1, 1, 2, 3))
    late = r.choice((0.0, 0.05, 0.2)) if delay is not None else 0.0
    whole_seconds = r.random() < 0.5

    def row(batch: int) -> Row:
        return tuple(value(one, batch) for one in everything)

    def value(column: Column, batch: int) -> Any:
        if column is unique:
            return next(d.numbers)
        if column is time:
            return moment(batch)
        return None if r.random() < nulls[column.name] else r.choice(among[column.name])

    def moment(batch: int) -> datetime | None:
        if r.random() < 0.02:
            return None
        seconds = d.beginnings[batch] + r.randrange(_SPAN) - (r.choice((15, 40, 200)) if r.random() < late else 0)
        return d.start + timedelta(seconds=seconds, microseconds=0 if whole_seconds else r.randrange(1_000_000))

    def batch(number: int) -> Batch:
        if r.random() < 0.12:
            return ()
        return tuple(file(number) for _ in range(r.randint(1, files)))

    def file(number: int) -> File:
        (rows,) = r.choices((0, files, r.randint(0, d.most_rows), d.most_rows), (1, 1, 2, 3))
        rows //= files
        return tuple(row(number) for _ in range(rows))

    def advancing(batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """Add a row with the latest possible time to the last batch but one, so that the watermark passes others."""
        latest = d.start + timedelta(seconds=d.beginnings[-2] + _SPAN)
        added = tuple(latest if one is time else value(one, d.batches - 2) for one in everything)
        *earlier, (*files, file), last = *batches[:-2], batches[-2] or ((),), batches[-1]
        return (*earlier, (*files, (*file, added)), last)

    sources = []
    for number in range(r.choice((1, 1, 1, 2))):
        derivations = tuple(_derivation(r, one, among.get(one.name), one in (time, unique), d) for one in everything)
        batches = tuple(batch(number) for number in range(d.batches))
        sources.append(Source(derivations, advancing(batches) if not number and r.random() < 0.9 else batches))
    return Stream(tuple(everything), tuple(sources), everything.index(time), everything.index(unique), delay)


def _some_values(r: random.Random, column: Column, usual: dict[str, Sequence[Any]]) -> list[Any]:
    values = [*usual.get(column.name, column.of.usual)]
    return r.sample(values, min(len(values), r.choice((1, 2, 3, 5, 8))))


def _derivation(r: random.Random, column: Column, values: list[Any] | None, is_role: bool, d: Drawing) -> Derivation:
    """Return how a source derives a column. The time and the number of a row are never constants."""
    if column.of.family == "span":  # files cannot store this type
        return Derivation("literal", r.choice(values or [*column.of.usual]))
    way = r.choices([*WAYS], [*WAYS.values()])[0]
    if is_role and way == "literal":
        way = "filled"
    if way not in ("filled", "literal"):
        return Derivation(way)
    if values is not None:
        return Derivation(way, r.choice(values))
    if column.type == "bigint":
        return Derivation(way, -1)
    return Derivation(way, d.start)
