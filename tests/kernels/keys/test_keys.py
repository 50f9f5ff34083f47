"""Encoded keys against Spark's equality of keys."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.keys.normalised import NormalisedKeys, cast_key, key_ranges, normalise_keys, uses_words
from tests.oracle.joins import join_key, matches
from tests.support.kernel_inputs import SAMPLES, KeySample, examples, with_nulls

OFFSETS = [(0, 0), (3, 2), (8, 0), (13, 5)]


def tokens(normalised: NormalisedKeys) -> list[int | bytes | None]:
    """Return each key's word or bytes, which an index compares, or None for a key that matches nothing."""
    if normalised.words is not None:
        assert normalised.rows is None
        assert normalised.words.dtype == np.int64
        plain: list[int | bytes] = normalised.words.tolist()
    else:
        assert normalised.rows is not None
        offsets, data = normalised.rows
        assert offsets.dtype == np.int64
        plain = [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(normalised.length)]
    assert len(plain) == normalised.length
    if normalised.valid is None:
        return list(plain)
    return [token if valid else None for token, valid in zip(plain, normalised.valid.tolist(), strict=True)]


def check(
    samples: list[KeySample], arrays: list[pa.Array], columns: list[list[Any]], safe: list[bool]
) -> NormalisedKeys:
    """Assert that encodings are equal exactly if the oracle's keys are, and that the layout follows from the widths."""
    normalised = normalise_keys(arrays, safe)
    bits = [None if sample.bits is None else sample.bits + flag for sample, flag in zip(samples, safe, strict=True)]
    fits = None not in bits and sum(width for width in bits if width is not None) <= 64
    assert (normalised.words is not None) == fits
    assert uses_words([array.type for array in arrays], safe) == fits
    expected = [join_key(key, safe) for key in zip(*columns, strict=True)]
    got = tokens(normalised)
    assert [token is None for token in got] == [key is None for key in expected]
    pairs = {(token, key) for token, key in zip(got, expected, strict=True) if key is not None}
    assert len({token for token, _ in pairs}) == len(pairs), "two different keys share an encoding"
    assert len({key for _, key in pairs}) == len(pairs), "one key has two encodings"
    return normalised


@pytest.mark.parametrize("before, after", OFFSETS)
@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_one_column(name: str, null_safe: bool, before: int, after: int) -> None:
    sample = SAMPLES[name]
    picks = [*range(len(sample.raw)), *reversed(range(len(sample.raw)))]
    for valid in ([True] * len(picks), [number % 4 != 2 for number in range(len(picks))], [False] * len(picks)):
        array = sample.array(picks, valid, before, after)
        assert array.offset == before
        assert array.null_count == len(picks) - sum(valid)
        check([sample], [array], [sample.keys(picks, valid)], [null_safe])


@given(st.data())
@examples(150)
def test_composites(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(SAMPLES)), min_size=1, max_size=4), label="types")
    length = data.draw(st.integers(0, 12), label="length")
    samples, arrays, columns, safe = [], [], [], []
    for name in names:
        sample = SAMPLES[name]
        # Few distinct values, so that keys repeat.
        chosen = data.draw(st.lists(st.integers(0, len(sample.raw) - 1), min_size=1, max_size=3), label=name)
        picks = data.draw(st.lists(st.sampled_from(chosen), min_size=length, max_size=length))
        valid = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
        before = data.draw(st.integers(0, 10))
        samples.append(sample)
        arrays.append(sample.array(picks, valid, before, data.draw(st.integers(0, 3))))
        columns.append(sample.keys(picks, valid))
        safe.append(data.draw(st.booleans()))
    check(samples, arrays, columns, safe)


@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        ("int8", "int8"),
        ("int16", "bool", "int32"),
        ("int32", "int32"),
        ("date", "int8", "bool"),
        ("int64", "bool"),
        ("float32", "int8"),
        ("string", "int32"),
        ("decimal(38,10)", "int8"),
        ("binary", "string"),
    ],
)
def test_every_combination_of_values(names: tuple[str, ...], null_safe: bool) -> None:
    samples = [SAMPLES[name] for name in names]
    rows = list(itertools.product(*(range(len(sample.raw) + 1) for sample in samples)))[:4000]
    arrays, columns = [], []
    for sample, picks in zip(samples, zip(*rows, strict=True), strict=True):
        # An index after the last value represents a null, with a real value below it.
        valid = [pick < len(sample.raw) for pick in picks]
        picks = [pick % len(sample.raw) for pick in picks]
        arrays.append(sample.array(picks, valid, before=5))
        columns.append(sample.keys(picks, valid))
    check(samples, arrays, columns, [null_safe] * len(names))


@pytest.mark.parametrize(
    "types, rows",
    [
        (
            (pa.string(), pa.string()),
            [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a\0", "bc"), ("a", "\0bc")],
        ),
        ((pa.string(), pa.string()), [(None, ""), ("", None), (None, None), ("", ""), ("\0", ""), ("", "\0")]),
        ((pa.string(), pa.int64()), [("", 0), (None, 0), ("", None), ("\0" * 8, 0), ("", 256), (None, None)]),
        ((pa.int64(), pa.int64()), [(0, 1), (1, 0), (None, 0), (0, None), (None, None), (0, 0), (-1, -1)]),
        (
            (pa.int8(), pa.int8()),
            [(0, -1), (-1, 0), (1, -128), (None, 0), (0, None), (None, None), (0, 0), (-128, -128)],
        ),
        ((pa.int32(),), [(None,), (0,), (-(2**31),), (2**31 - 1,), (-1,)]),
        ((pa.bool_(), pa.bool_()), [*itertools.product([None, False, True], repeat=2)]),
    ],
)
def test_null_safe_keys_that_look_alike(types: tuple[pa.DataType, ...], rows: list[tuple[Any, ...]]) -> None:
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    normalised = normalise_keys(arrays, [True] * len(types))
    assert normalised.valid is None
    assert len(set(tokens(normalised))) == len(rows)


@pytest.mark.parametrize(
    "names", [("int64",), ("string",), ("int16", "int32"), ("string", "int64"), ("decimal(38,10)",)]
)
@pytest.mark.parametrize("null_safe", [False, True])
def test_a_key_is_encoded_alike_in_every_batch(names: tuple[str, ...], null_safe: bool) -> None:
    """The encoding of a key does not depend on nulls, offsets and other rows of its batch."""
    samples = [SAMPLES[name] for name in names]
    count = min(len(sample.raw) for sample in samples)
    safe = [null_safe] * len(names)
    whole = tokens(normalise_keys([s.array(range(count), [True] * count) for s in samples], safe))
    valid = [number % 2 == 0 for number in range(count)]
    holes = tokens(normalise_keys([s.array(range(count), valid, before=9, after=3) for s in samples], safe))
    alone = [
        tokens(normalise_keys([s.array([number], [True], before=1) for s in samples], safe))[0]
        for number in range(count)
    ]
    assert alone == whole
    assert holes[::2] == whole[::2]


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.bits is not None])
def test_words_keep_the_order_of_one_column(name: str) -> None:
    sample = SAMPLES[name]
    array = sample.array(range(len(sample.raw)), [True] * len(sample.raw), before=2)
    words = normalise_keys([array], [False]).words
    assert words is not None
    for a, b in itertools.product(range(len(sample.raw)), repeat=2):
        x, y = sample.values[a], sample.values[b]
        # Spark's order: NaN equals itself and is greater than all other values.
        x_nan, y_nan = x != x, y != y
        less = (not x_nan and y_nan) or (not x_nan and not y_nan and x < y)
        assert (words[a] < words[b]) == less, (x, y)


@given(st.data())
@examples(60)
def test_words_keep_the_order_of_composites(data: st.DataObject) -> None:
    """The first column is the most significant; null-safe nulls come first."""
    widths = {"bool": 1, "int8": 8, "int16": 16, "int32": 32, "date": 32}
    names = data.draw(st.lists(st.sampled_from(sorted(widths)), min_size=1, max_size=5))
    safe = [data.draw(st.booleans()) for _ in names]
    while sum(widths[name] for name in names) + sum(safe) > 64:
        names, safe = names[:-1], safe[:-1]
    length = data.draw(st.integers(2, 8))
    arrays, columns = [], []
    for name, flag in zip(names, safe, strict=True):
        sample = SAMPLES[name]
        picks = data.draw(st.lists(st.integers(0, len(sample.raw) - 1), min_size=length, max_size=length))
        valid = [not flag or data.draw(st.booleans()) for _ in range(length)]
        arrays.append(sample.array(picks, valid, before=data.draw(st.integers(0, 9))))
        columns.append([(value is not None, value or 0) for value in sample.keys(picks, valid)])
    normalised = normalise_keys(arrays, safe)
    assert normalised.words is not None
    assert normalised.valid is None
    rows = list(zip(*columns, strict=True))
    for a, b in itertools.product(range(length), repeat=2):
        assert (normalised.words[a] < normalised.words[b]) == (rows[a] < rows[b]), (rows[a], rows[b])


def test_composite_of_exactly_64_bits_is_a_word_and_keeps_the_order() -> None:
    low, high = -(2**31), 2**31 - 1
    rows = [(low, low), (low, high), (-1, high), (0, low), (0, 0), (high, low), (high, high)]
    normalised = normalise_keys([pa.array(column, pa.int32()) for column in zip(*rows, strict=True)], [False, False])
    assert normalised.words is not None
    assert normalised.words.tolist() == sorted(normalised.words.tolist())
    assert len(set(normalised.words.tolist())) == len(rows)


def test_nulls_of_any_plain_column_rule_the_row_out() -> None:
    columns = [pa.array([1, None, 3, None]), pa.array(["a", "b", None, None]), pa.array([None, None, None, 1.0])]
    normalised = normalise_keys(columns, [False, False, True])
    assert normalised.valid is not None
    assert normalised.valid.tolist() == [1, 0, 0, 0]
    assert normalise_keys(columns[2:], [True]).valid is None
    assert normalise_keys([columns[0].drop_null()], [False]).valid is None


def test_garbage_beneath_a_null_does_not_reach_the_bytes() -> None:
    """Two null-safe nulls are one key, whatever values are below them, even if strings there have a length."""
    texts = with_nulls(pa.array(["long garbage", "other", "x"]), [False, False, True])
    numbers = with_nulls(pa.array([17, 42, 17]), [False, False, True])
    first, second, third = tokens(normalise_keys([texts, numbers], [True, True]))
    assert first == second != third


@pytest.mark.parametrize("name", SAMPLES)
def test_empty_batches_have_empty_keys(name: str) -> None:
    sample = SAMPLES[name]
    for array in (pa.array([], sample.type), sample.array([], [], before=4)):
        assert normalise_keys([array], [False]).length == 0
        assert tokens(normalise_keys([array, array], [False, True])) == []


def test_all_null_arrays_without_a_data_buffer() -> None:
    for arrow_type in (pa.string(), pa.large_binary(), pa.int64(), pa.bool_(), pa.decimal128(30, 2)):
        array = pa.nulls(5, arrow_type)
        assert tokens(normalise_keys([array], [False])) == [None] * 5
        assert len(set(tokens(normalise_keys([array], [True])))) == 1
        assert len(set(tokens(normalise_keys([array, pa.array([1, 1, 2, 2, 2])], [True, False])))) == 2


def test_a_key_needs_a_column() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        normalise_keys([], [])


@pytest.mark.parametrize(
    "column, target, expected",
    [
        (pa.array([-128, None, 127], pa.int8()), pa.int64(), [-128, None, 127]),
        (pa.array([2**53 + 1, None, -1]), pa.float64(), [float(2**53), None, -1.0]),
        (pa.array([0.5, None], pa.float32()), pa.float64(), [0.5, None]),
        (pa.array([7, None], pa.int32()), pa.decimal128(10, 0), [7, None]),
        (pa.array(["a", None], pa.string()), pa.string(), ["a", None]),
    ],
)
def test_cast_to_the_common_type(column: pa.Array, target: pa.DataType, expected: list[Any]) -> None:
    cast = cast_key(column, target)
    assert cast.type == target
    assert cast.to_pylist() == expected


def test_decimals_of_two_scales_meet_in_the_common_type() -> None:
    wide = pa.decimal128(14, 4)
    short = cast_key(pa.array([150, -25], pa.int64()).cast(pa.decimal128(19, 0)), pa.decimal128(23, 4))
    long = cast_key(pa.array(["150.0000", "-25.0001"]).cast(wide), pa.decimal128(23, 4))
    a, b = tokens(normalise_keys([short], [False])), tokens(normalise_keys([long], [False]))
    assert a[0] == b[0]
    assert a[1] != b[1]


def test_a_cast_that_would_lose_digits_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast_key(pa.array([2**40]), pa.int32())


def test_string_keys_beyond_two_gibibytes_stay_usable() -> None:
    """Such build sides are stored as large strings, although the key type of the join is a plain string."""
    half = 1100 << 20
    data = pa.py_buffer(np.zeros(2 * half, dtype=np.uint8))  # never touched, so it uses no memory
    offsets = pa.py_buffer(np.array([0, half, 2 * half], dtype=np.int64))
    column = pa.Array.from_buffers(pa.large_string(), 2, [None, offsets, data])
    assert len(cast_key(column, pa.string())) == 2


MIN, MAX = -(1 << 63), (1 << 63) - 1
LIMIT = 1 << 63  # keys that fit into a packed word


def int64(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64())


def check_packed(build: list[pa.Array], probe: list[pa.Array], keys: list[list[Any]], safe: list[bool]) -> bool:
    """Return whether these keys are packed; assert that packed keys are equal exactly if the oracle's are.

    `keys` are the rows of the build side and of the probe side.
    """
    ranges = key_ranges(build, safe)
    if ranges is None:
        return False
    built, probed = (tokens(normalise_keys(side, safe, ranges)) for side in (build, probe))
    assert all(token is None or 0 <= int(token) < LIMIT for token in [*built, *probed])
    found = [[row for row, key in enumerate(built) if key == wanted is not None] for wanted in probed]
    build_keys, probe_keys = keys
    assert found == matches(probe_keys, build_keys, safe)
    assert [key is None for key in built] == [join_key(key, safe) is None for key in build_keys]
    return True


@given(st.data())
@examples(200)
def test_packed_by_ranges(data: st.DataObject) -> None:
    names = sorted(name for name, sample in SAMPLES.items() if sample.bits is not None)
    picked = [SAMPLES[name] for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))]
    safe = data.draw(st.lists(st.booleans(), min_size=len(picked), max_size=len(picked)), label="null safe")
    sides, keys = [], []
    for side in ("build", "probe"):
        length = data.draw(st.integers(0, 12), label=side)
        arrays, columns = [], []
        for sample in picked:
            middle = len(sample.raw) // 2
            # Build values are close together, so that ranges are narrow; probe values are arbitrary.
            near = st.integers(max(middle - 1, 0), min(middle + 1, len(sample.raw) - 1))
            pick = near if side == "build" else st.integers(0, len(sample.raw) - 1)
            picks = data.draw(st.lists(pick, min_size=length, max_size=length))
            valid = data.draw(st.lists(st.sampled_from([True, True, False]), min_size=length, max_size=length))
            arrays.append(sample.array(picks, valid, 3, 1))
            columns.append(sample.keys(picks, valid))
        sides.append(arrays)
        keys.append(list(zip(*columns, strict=True)))
    packed = check_packed(sides[0], sides[1], keys, safe)
    assert not packed or len(picked) > 1 or safe[0], "a single column is its own word"
    assert packed or len(picked) == 1 or any(sample.bits == 64 for sample in picked)


@pytest.mark.parametrize("safe", [[False, False], [True, False], [False, True], [True, True]])
@pytest.mark.parametrize("base", [MIN, -3, MAX - 5])
def test_ranges_at_the_ends_of_int64(base: int, safe: list[bool]) -> None:
    """Values just outside of the ranges, at the other end of int64, and nulls have no false matches."""
    values = [MIN, MIN + 1, MIN + 6, -4, -3, 0, 2, 3, MAX - 6, MAX - 5, MAX - 1, MAX, None]
    probe_keys = list(itertools.product(values, values))
    build_keys = [(base, base + 5), (base + 5, base), (base + 2, None), (None, base), (None, None), (base, base)]
    build, probe = ([int64(list(column)) for column in zip(*keys, strict=True)] for keys in (build_keys, probe_keys))
    assert check_packed(build, probe, [build_keys, probe_keys], safe)


@pytest.mark.parametrize(
    "sizes, safe, fits",
    [
        ((1 << 31, 1 << 32), (False, False), True),
        (((1 << 31) + 1, 1 << 32), (False, False), False),
        ((LIMIT, 1), (False, False), True),
        ((LIMIT + 1, 1), (False, False), False),
        ((LIMIT - 1,), (True,), True),
        ((LIMIT,), (True,), False),
        ((1 << 31, (1 << 32) - 1), (False, True), True),
        ((1 << 31, 1 << 32), (False, True), False),
        ((1 << 64, 1), (False, False), False),
        ((1 << 21, 1 << 21, 1 << 21), (False, False, False), True),
        ((1 << 21, 1 << 21, (1 << 21) + 1), (False, False, False), False),
    ],
)
def test_ranges_of_63_bits_are_packed(sizes: tuple[int, ...], safe: tuple[bool, ...], fits: bool) -> None:
    """With one more value, or one more code for null, keys are normalised as without ranges."""
    lows = [MIN if size > LIMIT else -(size // 2) for size in sizes]
    corners = list(itertools.product(*((low, low + size - 1) for low, size in zip(lows, sizes, strict=True))))
    columns = [int64(list(column)) for column in zip(*corners, strict=True)]
    assert check_packed(columns, columns, [corners, corners], list(safe)) == fits


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("build", [[], [None], [None, None]])
def test_build_sides_without_a_value(build: list[None], safe: bool) -> None:
    probe = [None, 0, 1, MIN, MAX]
    keys = [[(value, value) for value in side] for side in (build, probe)]
    assert check_packed([int64(build)] * 2, [int64(probe)] * 2, keys, [safe] * 2)


def test_what_is_no_word_has_no_ranges() -> None:
    assert key_ranges([int64([1]), pa.array(["a"])], [False, False]) is None
    assert key_ranges([int64([1]), pa.array([1]).cast(pa.decimal128(38))], [False, False]) is None
    assert key_ranges([int64([1])], [False]) is None
