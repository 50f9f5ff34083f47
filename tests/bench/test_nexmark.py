"""The NEXMark events equal those that Apache Beam generates."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from bench.data.nexmark_events import events

COUNT = 50_000
DIGEST = "66c16113dda70d99909894fefc8dbd39"
"""The digest of all of Beam's events, one per line, first people and then auctions, as `lines` writes them.

They are from class `Generator` of `beam-sdks-java-nexmark` 2.60, with the default `NexmarkConfiguration` except for a
single event generator, from `BASE_MS` on.
"""


def lines(kind: str, table: pa.Table) -> list[str]:
    columns = [
        column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return ["\t".join(map(str, (kind, *row))) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def test_events_are_beams() -> None:
    found = events(COUNT)
    people, auctions, bids = lines("P", found.people), lines("A", found.auctions), lines("B", found.bids)
    assert len(people) + len(auctions) + len(bids) == COUNT
    assert people[0] == "P\t1000\tPeter Jones\tPortland\tWY\t1436918400000"
    assert auctions[0] == "A\t1000\t28873\t29448\t1436918400000\t1436918400011\t1000\t13"
    assert bids[0] == "B\t1000\t1001\t32530001\t1436918400000"
    text = "".join(f"{line}\n" for line in [*people, *auctions, *bids])
    assert hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() == DIGEST
