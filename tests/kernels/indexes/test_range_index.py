"""Range indexes against the oracle: every type, one or two compared columns, with and without equal keys."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.columns import row_ids
from sparkext.kernels.indexes.block_maxima import BlockMaxima, find_last_at_least
from sparkext.kernels.indexes.bounds import HIGHEST, LOWEST, Bound
from sparkext.kernels.indexes.dense_index import build_dense_index
from sparkext.kernels.indexes.hash_index import build_hash_index
from sparkext.kernels.indexes.matches import START, Matches, probe
from sparkext.kernels.indexes.ordered_index import build_ordered_index
from sparkext.kernels.indexes.protocols import JoinIndex
from sparkext.kernels.indexes.range_index import Candidates, RangeIndex, RangeKeys, build_range_index
from sparkext.kernels.keys.normalised import NormalisedKeys, normalise_keys
from sparkext.kernels.runtime.jit import freeze, kernel
from tests.oracle.ranges import in_range
from tests.support.kernel_inputs import examples

NAN, INF = float("nan"), float("inf")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [LOWEST, LOWEST + 1, -2, -1, 0, 1, 2, 3, HIGHEST - 1, HIGHEST]),
    "int8": (pa.int8(), [-128, -127, -1, 0, 1, 126, 127]),
    "float64": (pa.float64(), [-INF, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, INF, NAN]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-1.01"), Decimal("-1.00"), Decimal("0.00"), Decimal("9999999.99")]),
    "wide decimal": (pa.decimal128(30, 2), [Decimal(-(10**27)), Decimal("-0.01"), Decimal(0), Decimal(10**27)]),
    "string": (pa.string(), ["", "\0", "a", "a\0", "ab", "b", "z", "ä", "\U0001f600", "￿"]),
    "binary": (pa.binary(), [b"", b"\0", b"a", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]),
}
OPS = ("<", "<=", ">", ">=")


def groups_builder(kind: str) -> Any:
    def dense(keys: NormalisedKeys) -> JoinIndex:
        return build_dense_index(keys, -1, 3)

    return {"hash": build_hash_index, "ordered": build_ordered_index, "dense": dense}[kind]


def equal_keys(values: Sequence[Any] | None, length: int) -> NormalisedKeys:
    if values is None:
        return NormalisedKeys(length, None, None, None)
    return normalise_keys([pa.array(values, pa.int64())], [False])


def found_pairs(index: RangeIndex, keys: RangeKeys, how: str, budget: int) -> list[tuple[int, int]]:
    matches = index.lookup(keys)
    pairs: list[tuple[int, int]] = []
    cursor = START
    if isinstance(matches, Candidates):
        ended = False
        while not ended:
            piece, cursor, ended = matches.probe(how, cursor, budget)
            assert piece.length <= budget
            assert ended or piece.length == budget
            assert piece.probe_rows is not None and piece.build_rows is not None
            pairs += zip(piece.probe_rows.tolist(), piece.build_rows.tolist(), strict=True)
        return pairs
    remaining = matches.output_rows(how)
    while remaining:
        piece, cursor = probe(matches, how, cursor, budget, remaining)
        remaining -= piece.length
        rows = range(keys.equal.length) if piece.probe_rows is None else piece.probe_rows.tolist()
        assert piece.build_rows is not None
        pairs += zip(rows, piece.build_rows.tolist(), strict=True)
    return pairs


def oracle_pairs(
    build: Sequence[Sequence[Any]],
    build_keys: Sequence[Any] | None,
    asked: Sequence[Sequence[Sequence[tuple[str, Any]]]],
    probe_keys: Sequence[Any] | None,
    how: str,
) -> list[tuple[int, int]]:
    pairs = []
    for number, bounds in enumerate(asked):
        found = [
            row
            for row in range(len(build[0]))
            if (
                build_keys is None
                or probe_keys is None
                or (probe_keys[number] is not None and probe_keys[number] == build_keys[row])
            )
            and in_range(build, bounds, row)
        ]
        pairs += [(number, row) for row in found or ([-1] if how == "left" else [])]
    return pairs


def mapped(index: RangeIndex) -> RangeIndex:
    """Return the same index reconstructed from its arrays, as in another process."""
    arrays = {name: freeze(array.copy()) for name, array in index.arrays.items()}
    return RangeIndex.from_arrays(arrays, dict(index.attributes))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    generator = random.Random(draw(st.integers(0, 1 << 32), label="seed"))
    null_rate = draw(st.sampled_from([0.0, 0.1, 1.0]), label="null rate")
    build_rows, probe_rows = (draw(st.integers(0, most), label="rows") for most in (40, 12))
    names = [draw(st.sampled_from(sorted(VALUES)), label="type") for _ in range(draw(st.integers(1, 2)))]
    ops = [draw(st.lists(st.sampled_from(OPS), min_size=1, max_size=3), label="ops") for _ in names]

    def column(values: Sequence[Any], rows: int) -> list[Any]:
        return [None if generator.random() < null_rate else generator.choice(values) for _ in range(rows)]

    keyed = draw(st.booleans(), label="keyed")
    return {
        "names": names,
        "ops": ops,
        "build": [column(VALUES[name][1], build_rows) for name in names],
        "asked": [[column(VALUES[name][1], probe_rows) for _ in each] for name, each in zip(names, ops, strict=True)],
        "build_keys": column([0, 1, 2], build_rows) if keyed else None,
        "probe_keys": column([0, 1, 3], probe_rows) if keyed else None,
        "groups": draw(st.sampled_from(["hash", "dense", "ordered"])),
        "rows": (build_rows, probe_rows),
        "narrow": draw(st.sampled_from([0, 1 << 31]), label="narrow below"),
    }


@given(case=cases(), budget=st.sampled_from([1, 2, 7, 1000]), how=st.sampled_from(["inner", "left"]))
@examples(300)
def test_any_range_join(case: dict[str, Any], budget: int, how: str) -> None:
    build_rows, probe_rows = case["rows"]
    columns = [pa.array(values, VALUES[name][0]) for name, values in zip(case["names"], case["build"], strict=True)]
    bounds = [
        [Bound(op, pa.array(values, VALUES[name][0])) for op, values in zip(ops, asked, strict=True)]
        for name, ops, asked in zip(case["names"], case["ops"], case["asked"], strict=True)
    ]
    inverted = len(columns) == 2 and set(case["ops"][1]) <= {"<", "<="}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ids, "NARROW_ROWS", case["narrow"])
        index = build_range_index(
            columns, equal_keys(case["build_keys"], build_rows), groups_builder(case["groups"]), inverted
        )
        index = mapped(index)
        keys = RangeKeys(equal_keys(case["probe_keys"], probe_rows), bounds)
        got = found_pairs(index, keys, how, budget)
        asked = [
            [
                [(op, values[row]) for op, values in zip(ops, columns_asked, strict=True)]
                for ops, columns_asked in zip(case["ops"], case["asked"], strict=True)
            ]
            for row in range(probe_rows)
        ]
        expected = oracle_pairs(case["build"], case["build_keys"], asked, case["probe_keys"], how)
        assert sorted(got) == sorted(expected)
        changes = sum(row != before for (before, _), (row, _) in itertools.pairwise(got))
        assert changes < max(len({row for row, _ in got}), 1)  # the matches of a probe row are consecutive
        matches = index.lookup(keys)
        one_each = matches.any() if isinstance(matches, Candidates) else matches
        with_match = {row for row, entry in expected if entry >= 0}
        assert set(np.flatnonzero(one_each.first >= 0).tolist()) == with_match
        assert one_each.matched == len(with_match)


@pytest.mark.parametrize("groups", ["hash", "dense", "ordered"])
@pytest.mark.parametrize("build_keys", [[2, 0, 1], [2, 0, 0], [0, 1, 2], [0, 0, 0], [None, 2, 0]])
def test_groups_of_one_row_and_of_several(groups: str, build_keys: list[Any]) -> None:
    """Indexes with and without repeated keys find rows by different methods."""
    build, asked = [[30, 10, 20], [1, 2, 3]], [5, 15, 25, 35]
    index = mapped(
        build_range_index([pa.array(column) for column in build], equal_keys(build_keys, 3), groups_builder(groups))
    )
    for key in (0, 1, 2, 3):
        bounds = [[Bound("<", pa.array(asked))], [Bound(">=", pa.array([0] * 4))]]
        got = found_pairs(index, RangeKeys(equal_keys([key] * 4, 4), bounds), "inner", 10)
        rows = [[[("<", value)], [(">=", 0)]] for value in asked]
        assert sorted(got) == sorted(oracle_pairs(build, build_keys, rows, [key] * 4, "inner"))


@pytest.mark.parametrize("name", VALUES)
def test_every_value_against_every_other(name: str) -> None:
    """All comparisons at the limits of each type, with one column, and with the same column twice."""
    arrow_type, values = VALUES[name]
    build = [*values, None]
    column = pa.array(build, arrow_type)
    asked = pa.array(build, arrow_type)
    length = len(build)
    for ops in [*((op,) for op in OPS), *((one, other) for one in OPS for other in OPS)]:
        index = build_range_index(
            [column] * len(ops), equal_keys(None, length), groups_builder("hash"), ops[-1][0] == "<" and len(ops) == 2
        )
        keys = RangeKeys(equal_keys(None, length), [[Bound(op, asked)] for op in ops])
        rows = [[[(op, value)] for op in ops] for value in build]
        expected = oracle_pairs([build] * len(ops), None, rows, None, "left")
        assert sorted(found_pairs(index, keys, "left", 1000)) == sorted(expected), ops


@pytest.mark.parametrize("size", [1, 15, 16, 17, 255, 256, 257, 4095, 4097, 10_000])
@pytest.mark.parametrize("shape", ["ascending", "descending", "random", "sparse", "equal"])
def test_block_maxima(size: int, shape: str) -> None:
    """All levels, at the ends of their blocks."""
    generator = np.random.default_rng(size)
    words = {
        "ascending": np.arange(size),
        "descending": np.arange(size)[::-1].copy(),
        "random": generator.integers(-50, 50, size),
        "sparse": np.where(generator.random(size) < 3 / size, 100, 0),
        "equal": np.zeros(size, dtype=np.int64),
    }[shape].astype(np.int64)
    maxima = BlockMaxima.over(freeze(words))
    for _ in range(60):
        start, stop = sorted(generator.integers(0, size + 1, 2).tolist())
        least = int(generator.choice(words)) + int(generator.integers(-1, 2))
        below = np.flatnonzero(words[start:stop] >= least)
        expected = start + int(below[-1]) if below.size else -1
        assert _last(maxima.words, maxima.levels, maxima.prefix, start, stop, np.int64(least)) == expected


@kernel
def _last(words: Any, levels: Any, prefix: Any, start: int, stop: int, least: int) -> int:
    return find_last_at_least(words, levels, prefix, start, stop, least)


@pytest.mark.parametrize("overlap", [1, 40, 3000])
@pytest.mark.parametrize("budget", [1, 999, 1 << 20])
def test_staggered_intervals(overlap: int, budget: int) -> None:
    """Many levels and long prefixes: points and intervals of growing length among short ones."""
    rows, points = 3000, 300 if budget > 1 else 20
    generator = np.random.default_rng(overlap)
    starts = np.arange(rows) * 10
    ends = starts + generator.integers(0, 10 * overlap, rows)
    ends[::997] += 10**6
    order = generator.permutation(rows)
    starts, ends = starts[order], ends[order]
    at = generator.integers(-5, rows * 10 + 5, points)
    index = mapped(
        build_range_index([pa.array(starts), pa.array(ends)], equal_keys(None, rows), groups_builder("hash"))
    )
    keys = RangeKeys(equal_keys(None, points), [[Bound("<=", pa.array(at))], [Bound(">", pa.array(at))]])
    got = found_pairs(index, keys, "inner", budget)
    hits = (starts[None, :] <= at[:, None]) & (ends[None, :] > at[:, None])
    assert sorted(got) == [(int(a), int(b)) for a, b in np.argwhere(hits)]


def test_one_row_with_all_matches_streams() -> None:
    rows = 100_000
    values = pa.array(np.arange(rows))
    index = build_range_index([values, values], equal_keys(None, rows), groups_builder("hash"))
    bounds = [[Bound("<", pa.array([rows]))], [Bound(">=", pa.array([0]))]]
    matches = index.lookup(RangeKeys(equal_keys(None, 1), bounds))
    assert isinstance(matches, Candidates)
    seen: list[int] = []
    cursor, ended = START, False
    while not ended:
        pairs, cursor, ended = matches.probe("inner", cursor, 30_000)
        assert pairs.length <= 30_000 and pairs.build_rows is not None
        seen += pairs.build_rows.tolist()
    assert sorted(seen) == list(range(rows))


def test_one_compared_column_gives_ranges() -> None:
    """A band is one range of entries: pairs are enumerated only on request."""
    build = pa.array([5, 1, 3, None, 3])
    index = build_range_index([build], equal_keys(None, 5), groups_builder("hash"))
    bounds = [[Bound(">=", pa.array([3, 9, None])), Bound("<=", pa.array([5, 9, 9]))]]
    matches = index.lookup(RangeKeys(equal_keys(None, 3), bounds))
    assert isinstance(matches, Matches)
    assert (matches.first.tolist(), matches.counts is not None and matches.counts.tolist()) == ([1, -1, -1], [3, 0, 0])
    assert matches.rows is not None and matches.rows.tolist() == [1, 2, 4, 0]
    assert (matches.matched, matches.pairs) == (1, 3)
