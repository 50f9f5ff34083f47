"""As-of lookups against a search through all rows: directions, ties, exactness, tolerances, types with distances."""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.indexes.bounds import HIGHEST, LOWEST
from sparkext.kernels.indexes.hash_index import build_hash_index
from sparkext.kernels.indexes.nearest import NearestKeys, find_nearest
from sparkext.kernels.indexes.range_index import build_range_index
from sparkext.kernels.keys.normalised import NormalisedKeys, normalise_keys
from tests.support.kernel_inputs import examples

NAN, INF = float("nan"), float("inf")
DATES = [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(1970, 1, 4), dt.date(9999, 12, 31)]
VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    # type, values, tolerances
    "int64": (pa.int64(), [LOWEST, LOWEST + 3, -2, 0, 1, 5, HIGHEST - 3, HIGHEST], [None, 0, 3, HIGHEST, 2**64]),
    "int16": (pa.int16(), [-(2**15), -4, 0, 3, 2**15 - 1], [None, 0, 4, 2**15]),
    "date": (pa.date32(), DATES, [None, 0, 3]),
    "float64": (pa.float64(), [-INF, -1.5, -0.0, 0.0, 5e-324, 0.25, 1.5, INF, NAN], [None, 0.0, 0.25, INF]),
}


def distance(one: Any, other: Any) -> Any:
    if isinstance(one, dt.date):
        return abs((one - other).days)
    return abs(one - other)


def order(value: Any) -> Any:
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def found_by_search(build: list[Any], keys: list[Any], value: Any, key: Any, asked: dict[str, Any]) -> int:
    """Return the matching build row of one probe row, or -1; this is the oracle."""
    if value is None:
        return -1
    rows = [row for row, other in enumerate(build) if other is not None and keys[row] == key]
    if not asked["exact"]:
        rows = [row for row in rows if order(build[row]) != order(value)]
    before = [row for row in rows if order(build[row]) <= order(value)]
    after = [row for row in rows if order(build[row]) >= order(value)]
    back = max(before, key=lambda row: (order(build[row]), row), default=-1)
    ahead = min(after, key=lambda row: (order(build[row]), row), default=-1)
    found = {"backward": back, "forward": ahead}.get(asked["direction"])
    if found is None:
        if back < 0 or ahead < 0:
            found = max(back, ahead)
        else:
            nearer = _gap(build[ahead], value) < _gap(value, build[back])
            found = ahead if nearer else back
    tolerance = asked["tolerance"]
    if found >= 0 and tolerance is not None:
        one = build[found]
        if order(one) != order(value) and not distance(one, value) <= tolerance:
            return -1
    return found


def _gap(one: Any, other: Any) -> Any:
    return (one - other).days if isinstance(one, dt.date) else one - other


@given(
    name=st.sampled_from(sorted(VALUES)),
    direction=st.sampled_from(["backward", "forward", "nearest"]),
    exact=st.booleans(),
    seed=st.integers(0, 1 << 32),
    rows=st.integers(0, 30),
    null_rate=st.sampled_from([0.0, 0.2, 1.0]),
)
@examples(300)
def test_any_lookup(name: str, direction: str, exact: bool, seed: int, rows: int, null_rate: float) -> None:
    arrow_type, values, tolerances = VALUES[name]
    generator = random.Random(seed)

    def column(count: int) -> list[Any]:
        return [None if generator.random() < null_rate else generator.choice(values) for _ in range(count)]

    build, probe = column(rows), column(15)
    keys, probe_keys = ([generator.randrange(2) for _ in range(count)] for count in (rows, 15))
    index = build_range_index([pa.array(build, arrow_type)], normalised(keys), build_hash_index)
    for tolerance in tolerances:
        asked = {"direction": direction, "exact": exact, "tolerance": tolerance}
        matches = find_nearest(index, NearestKeys(normalised(probe_keys), pa.array(probe, arrow_type), **asked))
        entries = matches.first.tolist()
        got = [-1 if entry < 0 else entry if matches.rows is None else int(matches.rows[entry]) for entry in entries]
        expected = [
            found_by_search(build, keys, value, key, asked) for value, key in zip(probe, probe_keys, strict=True)
        ]
        assert got == expected, asked
        assert matches.counts is None and matches.matched == matches.pairs == sum(row >= 0 for row in expected)


def normalised(values: list[int]) -> NormalisedKeys:
    return normalise_keys([pa.array(values, pa.int64())], [False])


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_without_keys_and_rows(direction: str) -> None:
    nothing = NormalisedKeys(0, None, None, None)
    index = build_range_index([pa.array([], pa.int64())], nothing, build_hash_index)
    keys = NearestKeys(NormalisedKeys(2, None, None, None), pa.array([1, None]), direction, True, 5)
    assert find_nearest(index, keys).first.tolist() == [-1, -1]
