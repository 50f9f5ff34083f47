"""Joins by Spark's rules, over lists of key tuples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

Key = Sequence[Any]
Pair = tuple[int | None, int | None]


def comparable(value: Any) -> Hashable:
    """Return a stand-in for a key value that is equal exactly if Spark's values are equal: NaN = NaN, -0.0 = 0.0."""
    if isinstance(value, float):
        if value != value:
            return "NaN"
        return 0.0 if value == 0.0 else value
    return value  # type: ignore[no-any-return]


def join_key(key: Key, null_safe: Sequence[bool]) -> tuple[Hashable, ...] | None:
    """Return the complete key in comparable form, or None if it contains a null that matches nothing."""
    for value, safe in zip(key, null_safe, strict=True):
        if value is None and not safe:
            return None
    return tuple(comparable(value) for value in key)


def matches(left: Sequence[Key], right: Sequence[Key], null_safe: Sequence[bool]) -> list[list[int]]:
    """Return the ascending positions of the equal right keys for each left key. Keys without columns all match."""
    positions: dict[tuple[Hashable, ...], list[int]] = {}
    for position, key in enumerate(right):
        known = join_key(key, null_safe)
        if known is not None:
            positions.setdefault(known, []).append(position)
    found = []
    for key in left:
        wanted = join_key(key, null_safe)
        found.append([] if wanted is None else list(positions.get(wanted, [])))
    return found


def probe_pairs(found: Sequence[Sequence[int]], how: str) -> list[Pair]:
    """Return the rows of an `inner`, `left`, `semi` or `anti` join in probe order, from each probe row's matches."""
    pairs: list[Pair] = []
    for row, build_rows in enumerate(found):
        if how in ("inner", "left"):
            pairs.extend((row, build_row) for build_row in build_rows)
            if how == "left" and not build_rows:
                pairs.append((row, None))
        elif (how == "semi") == bool(build_rows):
            pairs.append((row, None))
    return pairs


def join(
    left: Sequence[Key],
    right: Sequence[Key],
    how: str,
    null_safe: Sequence[bool],
    among: Callable[[int, list[int]], list[int]] = lambda _, found: found,
) -> list[Pair]:
    """Return result rows as (left position, right position); None for a side without a row in the result.

    `among` selects the matches of a left position among the right positions with equal keys.

    Rows are in probe order; right and full joins then have the unmatched right rows in their order.
    """
    found = [among(position, equal) for position, equal in enumerate(matches(left, right, null_safe))]
    pairs = probe_pairs(found, {"right": "inner", "full": "left", "cross": "inner"}.get(how, how))
    if how in ("right", "full"):
        seen = {position for row in found for position in row}
        pairs.extend((None, position) for position in range(len(right)) if position not in seen)
    return pairs
