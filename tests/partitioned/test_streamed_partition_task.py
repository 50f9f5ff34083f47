"""The indexes that a partition caches for the buckets that are moved to it."""

from __future__ import annotations

import pyarrow as pa

from sparkext.partitioned.streamed_partition_task import _MOST_GROUPS, _Groups
from sparkext.shuffle.streamed import HOME


def test_buckets_that_wander_are_let_go_and_built_again() -> None:
    built: list[bytes] = []

    def build(places: pa.Buffer) -> list[object]:
        built.append(places.to_pybytes())
        return [places]

    groups = _Groups(build)  # type: ignore[arg-type]
    for group in (HOME, *range(_MOST_GROUPS)):
        groups.add(group, pa.py_buffer(f"{group}".encode()))
        groups.of(group)
    first = [f"{group}".encode() for group in (HOME, *range(_MOST_GROUPS))]
    assert built == first
    groups.of(HOME)
    groups.of(_MOST_GROUPS - 1)
    assert built == first, "what is at home stays, and what came last"
    groups.of(0)
    assert built == [*first, b"0"]
    groups.of(1)
    assert built == [*first, b"0", b"1"], "the one that came longest ago had to go"
