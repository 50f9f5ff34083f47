"""A mapping that evicts the least recently used entry."""

from __future__ import annotations

import random

import pytest

from sparkext.storage.last_used import LruCache


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_entries_are_those_that_were_used_last(limit: int) -> None:
    """Compared with a list of all uses."""
    r = random.Random(limit)
    kept: LruCache[int, int] = LruCache(limit)
    uses: list[int] = []
    values: dict[int, int] = {}
    for step in range(500):
        key = r.randrange(2 * limit)
        assert (key in kept) is (key in uses)
        if key in kept and r.random() < 0.5:
            assert kept[key] == values[key]
        elif key in kept and r.random() < 0.2:
            del kept[key]
            uses.remove(key)
            continue
        else:
            kept[key] = values[key] = step
        uses = [*(used for used in uses if used != key), key][-limit:]
        assert list(kept) == uses and len(kept) == len(uses)


def test_what_is_not_there_is_a_key_error() -> None:
    kept: LruCache[str, int] = LruCache(1)
    with pytest.raises(KeyError, match="missing"):
        kept["missing"]
