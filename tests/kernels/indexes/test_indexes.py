"""Every index type against a dictionary of lists, both in memory and through its file."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.build_sides.index_builder import build_index
from sparkext.build_sides.index_file import IndexInfo, read_index_file, write_index_file
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.kernels.indexes import hash_index, ordered_index
from sparkext.kernels.indexes.all_rows_index import AllRowsIndex
from sparkext.kernels.indexes.dense_index import DenseIndex, build_dense_index, key_range
from sparkext.kernels.indexes.hash_index import HashIndex, build_hash_index
from sparkext.kernels.indexes.ordered_index import OrderedIndex, build_ordered_index
from sparkext.kernels.indexes.protocols import JoinIndex, index_bytes
from sparkext.kernels.keys.hashing import mix_word
from sparkext.kernels.keys.normalised import NormalisedKeys, normalise_keys
from sparkext.kernels.runtime.jit import JIT_ENABLED
from tests.oracle.joins import matches
from tests.support.kernel_inputs import FULL_MASK, examples, match_lists, seeded, with_nulls

MIN, MAX = -(2**63), 2**63 - 1
# All bits; none; few home slots with tags; few homes without tags; one bit of each.
MASKS = [FULL_MASK, 0, 0xFF, 0xF << 60, 1, 1 << 63]
SIZES = [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129]

Build = Callable[[NormalisedKeys, bool], JoinIndex]


def hash_build(mask: int) -> Build:
    return lambda keys, wide: build_hash_index(keys, mask, wide)


def partitioned_build(keys: NormalisedKeys, wide: bool) -> HashIndex:
    """Build the index like one of millions of rows: keys are partitioned before insertion."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hash_index, "_PARTITION_ROWS", 2)
        return build_hash_index(keys, FULL_MASK, wide)


def ordered_build(keys: NormalisedKeys, wide: bool) -> OrderedIndex:
    return build_ordered_index(keys, wide)


def dense_build(keys: NormalisedKeys, wide: bool) -> DenseIndex:
    bounds = key_range(keys)
    assert bounds is not None
    return build_dense_index(keys, bounds[0], bounds[1], wide)


BUILDS: dict[str, Build] = {
    "ordered": ordered_build,
    "hash partitioned": partitioned_build,
    **{f"hash {mask:#x}": hash_build(mask) for mask in MASKS},
}


def normalised(
    values: Sequence[Any], arrow_type: pa.DataType, null_safe: bool = False, before: int = 0
) -> NormalisedKeys:
    """Return keys of one column. Below each null is a neighbour's value, so that reading it gives a wrong row."""
    present = [value for value in values if value is not None] or [arrow_type_default(arrow_type)]
    filled = [present[row % len(present)] if value is None else value for row, value in enumerate(values)]
    padding = present[:1] * before
    array = pa.array([*padding, *filled], arrow_type)
    array = with_nulls(array, [*[True] * before, *(value is not None for value in values)]).slice(before)
    return normalise_keys([array], [null_safe])


def arrow_type_default(arrow_type: pa.DataType) -> Any:
    return 0 if pa.types.is_integer(arrow_type) else "default"


def through_file(index: JoinIndex) -> JoinIndex:
    """Return the index as another process maps it."""
    stream = io.BytesIO()
    write_index_file(index, IndexInfo(index.kind, "a test", index_bytes(index), 0, 0.0), stream)
    again, info, _ = read_index_file(pa.py_buffer(stream.getvalue()), "memory")
    assert type(again) is type(index)
    assert info.kind == index.kind
    assert again.attributes == index.attributes
    assert {name: array.tolist() for name, array in again.arrays.items()} == {
        name: array.tolist() for name, array in index.arrays.items()
    }
    assert not any(array.flags.writeable for array in again.arrays.values())
    return again


def check(
    build: Build,
    build_keys: Sequence[Any],
    probe_keys: Sequence[Any],
    arrow_type: pa.DataType,
    null_safe: bool = False,
    wide: bool = False,
) -> JoinIndex:
    """Assert that the index and its mapped copy both give the oracle's rows; return the index."""
    index = build(normalised(build_keys, arrow_type, null_safe, before=3), wide)
    probe = normalised(probe_keys, arrow_type, null_safe, before=5)
    assert (probe.words is not None) == (pa.types.is_integer(arrow_type) and not null_safe)
    expected = matches([(key,) for key in probe_keys], [(key,) for key in build_keys], [null_safe])
    matchable = [key for key in build_keys if null_safe or key is not None]
    for candidate in (index, through_file(index)):
        assert candidate.distinct == len(set(matchable))
        found = candidate.lookup(probe)
        assert match_lists(found) == expected
        assert not found.first.flags.writeable
        assert {array.dtype for array in (found.first, found.counts, found.rows) if array is not None} == {
            np.dtype(np.int64 if wide else np.int32)
        }
    return index


def as_text(values: Sequence[int | None]) -> list[str | None]:
    """Return strings with long common prefixes, so that lengths and suffixes matter."""
    return [None if value is None else "key " * (abs(value) % 5) + str(value) for value in values]


DOMAINS = [
    st.integers(0, 3),
    st.integers(-20, 20),
    st.sampled_from([MIN, MIN + 1, -1, 0, 1, MAX - 1, MAX]),
    st.integers(MIN, MAX),
]


@st.composite
def key_lists(draw: st.DrawFn) -> tuple[list[int | None], list[int | None]]:
    """Draw build and probe keys of one domain, without nulls, or with some, mostly or only nulls."""
    domain = draw(st.sampled_from(DOMAINS))
    nulls = draw(st.sampled_from([0, 1, 5, 10]))
    key = domain if nulls == 0 else st.tuples(st.integers(1, 10), domain).map(lambda d: None if d[0] <= nulls else d[1])
    return draw(st.lists(key, max_size=40)), draw(st.lists(key, max_size=40))


@pytest.mark.parametrize("name", BUILDS)
@given(keys=key_lists(), wide=st.booleans(), null_safe=st.booleans())
@examples(40)
def test_words_and_wider_keys(
    name: str, keys: tuple[list[int | None], list[int | None]], wide: bool, null_safe: bool
) -> None:
    """A null-safe int64 does not fit into a word, and uses the byte layout."""
    index = check(BUILDS[name], keys[0], keys[1], pa.int64(), null_safe, wide)
    assert index.kind == name.split()[0]
    assert ("key_bytes.offsets" in index.arrays) == null_safe


@pytest.mark.parametrize("name", BUILDS)
@given(keys=key_lists(), wide=st.booleans(), null_safe=st.booleans())
@examples(30)
def test_strings(name: str, keys: tuple[list[int | None], list[int | None]], wide: bool, null_safe: bool) -> None:
    index = check(BUILDS[name], as_text(keys[0]), as_text(keys[1]), pa.string(), null_safe, wide)
    assert "key_bytes.offsets" in index.arrays


@given(
    base=st.sampled_from([MIN, MIN + 1, -50, 0, MAX - 60]),
    build=st.lists(st.one_of(st.integers(0, 60), st.none()), min_size=1, max_size=60),
    probe=st.lists(st.one_of(st.integers(0, 60), st.sampled_from([MIN, -1, 0, 1, MAX]), st.none()), max_size=60),
    wide=st.booleans(),
)
@examples(80)
def test_dense(base: int, build: list[int | None], probe: list[int | None], wide: bool) -> None:
    build_keys = [None if key is None else base + key for key in build]
    if all(key is None for key in build_keys):
        build_keys.append(base)
    # Probe keys around the range and, for overflows, at both ends of int64.
    probe_keys = [
        None if key is None else key if key in (MIN, MAX) else min(max(base + key, MIN), MAX) for key in probe
    ]
    index = check(dense_build, build_keys, probe_keys, pa.int64(), wide=wide)
    assert isinstance(index, DenseIndex)
    valid = [key for key in build_keys if key is not None]
    assert (index.rows is None) == (len(set(valid)) == len(valid))
    assert index.slots.dtype == (np.int64 if wide else np.int32)


@pytest.mark.parametrize("name", [*BUILDS, "dense"])
@pytest.mark.parametrize("size", SIZES)
def test_sizes_around_the_groups_of_the_kernels(name: str, size: int) -> None:
    random = seeded(size)
    build = BUILDS.get(name, dense_build)
    for distinct in (1, max(size // 3, 1), 4 * size + 1):
        keys: list[int | None] = [random.randrange(distinct) for _ in range(size)]
        if name == "dense" and not keys:
            keys = [0]
        probe: list[int | None] = [random.choice([*range(-1, distinct + 1), None]) for _ in range(size + 1)]
        index = check(build, keys, probe, pa.int64())
        assert index.kind == name.split()[0]
        check(build, keys, probe[:size], pa.int64())
        if name != "dense":
            check(build, as_text(keys), as_text(probe), pa.string())


@pytest.mark.parametrize("name", [*BUILDS, "dense"])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_null_rates(name: str, rate: float) -> None:
    random = seeded(int(rate * 100))
    size = 300 if JIT_ENABLED else 60
    build = BUILDS.get(name, dense_build)
    keys = [None if random.random() < rate else random.randrange(150) for _ in range(size)]
    probe = [None if random.random() < rate else random.randrange(200) for _ in range(size)]
    if name == "dense" and rate == 1.0:
        keys[0] = 7
    check(build, keys, probe, pa.int64())
    if name != "dense":
        check(build, as_text(keys), as_text(probe), pa.string())
        check(build, as_text(keys), as_text(probe), pa.string(), null_safe=True)


@pytest.mark.parametrize("name", [*BUILDS, "dense"])
def test_probes_that_never_match(name: str) -> None:
    build = BUILDS.get(name, dense_build)
    index = build(normalised(range(0, 200, 2), pa.int64()), False)
    found = index.lookup(normalised([*range(1, 200, 2), -5, 1000, MIN, MAX], pa.int64()))
    assert (found.first == -1).all()
    assert found.matched == found.pairs == 0


@pytest.mark.parametrize("name", [*BUILDS, "dense"])
def test_one_key_a_thousand_times(name: str) -> None:
    keys: list[int | None] = [5] * 1000
    index = check(BUILDS.get(name, dense_build), keys, [4, 5, 6, 5], pa.int64())
    assert ("rows" in index.arrays) == (name != "ordered"), "sorted build rows need no map"


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("name", ["hash 0xffffffffffffffff", "ordered", "dense"])
def test_row_ids_are_as_wide_as_asked(name: str, wide: bool, unique: bool) -> None:
    keys = [9, 3, 6] if unique else [9, 3, 9]
    index = check(BUILDS.get(name, dense_build), keys, [3, 6, 9], pa.int64(), wide=wide)
    expected = np.int64 if wide else np.int32
    assert index.lookup(normalised([9], pa.int64())).first.dtype == expected
    if "rows" in index.arrays:
        assert index.arrays["rows"].dtype == expected
    assert ("rows" in index.arrays) == (not unique or name == "ordered")


@pytest.mark.skipif(not JIT_ENABLED, reason="too many rows for plain Python")
@pytest.mark.parametrize("name", ["hash 0xffffffffffffffff", "hash 0xff", "ordered"])
def test_many_rows(name: str) -> None:
    """Long and short homes are sorted by different methods, and tables are addressed with many bits."""
    random = seeded(7)
    size = 20_000 if name != "hash 0xff" else 1_000
    keys = [
        random.choice([random.randrange(size), random.randrange(50), random.randint(MIN, MAX)]) for _ in range(size)
    ]
    probe = [random.choice([random.choice(keys), random.randrange(2 * size)]) for _ in range(size)]
    check(BUILDS[name], keys, probe, pa.int64())
    check(BUILDS[name], as_text(keys), as_text(probe), pa.string())


def test_hash_index_tells_colliding_strings_apart() -> None:
    """With a hash of zero every string has the same word, so that the bytes are compared."""
    keys = ["b", "a", "b", "", "c", "a"]
    index = check(hash_build(0), keys, ["a", "b", "c", "", "d", "bb"], pa.string())
    assert isinstance(index, HashIndex)
    assert set(index.table[::2].tolist()) == {0}
    assert index.key_bytes is not None
    assert index.key_bytes.data.tobytes() == b"bac"  # each distinct key once, in the order of its first row


def test_hash_index_keeps_its_mask() -> None:
    index = build_hash_index(normalised([1, 2], pa.int64()), 0xFF)
    assert index.attributes["hash_mask"] == 0xFF
    again = HashIndex.from_arrays(index.arrays, index.attributes)
    assert match_lists(again.lookup(normalised([2, 3], pa.int64()))) == [[1], []]


def test_hash_table_follows_the_distinct_keys_and_not_the_rows() -> None:
    many = 40_000 if JIT_ENABLED else 4_000
    few = build_hash_index(normalise_keys([pa.array(np.arange(many) % 10)], [False]))
    assert few.table.nbytes < 2_000


def test_partitions_hold_every_valid_key_once_in_row_order(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = normalised([None if row % 7 == 0 else row % 50 for row in range(200)], pa.int64())
    assert keys.words is not None
    for rows, prefix_bits in ((1 << 20, 0), (50, 2), (2, 7)):
        monkeypatch.setattr(hash_index, "_PARTITION_ROWS", rows)
        pairs = hash_index._partition(keys.words, keys.mask, np.uint64(FULL_MASK)).reshape(-1, 2).tolist()
        partition = {word: int(mix_word(np.int64(word))) >> (64 - prefix_bits) for word, _ in pairs}
        expected = [(int(keys.words[row]), row) for row in range(200) if row % 7]
        assert [tuple(pair) for pair in pairs] == sorted(expected, key=lambda pair: partition[pair[0]])
        assert (len(set(partition.values())) > 1) == (prefix_bits > 0)


def test_hash_index_ring_is_not_smaller_than_its_lead() -> None:
    assert hash_index._RING >= hash_index._AHEAD
    assert hash_index._RING & (hash_index._RING - 1) == 0


def test_hash_probes_at_the_ends_of_the_rolling_pipeline() -> None:
    """The last `_AHEAD` rows are compared after the last slot has been prefetched."""
    index = build_hash_index(normalised(range(100), pa.int64()))
    for size in range(2 * hash_index._RING + 2):
        probe = [(number * 37) % 130 for number in range(size)]
        expected = [[key] if key < 100 else [] for key in probe]
        assert match_lists(index.lookup(normalised(probe, pa.int64()))) == expected


# Merge and search of the ordered index.


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the ordered index's kernels in the order in which lookups call them."""
    taken: list[str] = []
    for name in ("_merge_words", "_search_words", "_search_bytes"):
        kernel = getattr(ordered_index, name)

        def spy(*args: Any, name: str = name, kernel: Any = kernel) -> Any:
            taken.append(name)
            return kernel(*args)

        monkeypatch.setattr(ordered_index, name, spy)
    return taken


def words_of(values: Sequence[int], valid: Sequence[int] | None = None) -> NormalisedKeys:
    """Return keys with exactly these words, including invalid ones."""
    mask = None if valid is None else np.array(valid, dtype=np.uint8)
    for array in (words := np.array(values, dtype=np.int64), mask):
        if array is not None:
            array.flags.writeable = False
    return NormalisedKeys(len(values), words, None, mask)


@given(
    build=st.lists(st.one_of(st.integers(-30, 30), st.sampled_from([MIN, MAX])), max_size=40),
    probe=st.lists(st.one_of(st.integers(-35, 35), st.sampled_from([MIN, MAX])), max_size=40),
    data=st.data(),
)
@examples(80)
def test_merge_and_search_agree(build: list[int], probe: list[int], data: st.DataObject) -> None:
    """The same morsel in ascending and in any other order, with nulls whose words ascend as well."""
    index = build_ordered_index(words_of(build))
    assert index.words is not None
    ascending = sorted(probe)
    valid = data.draw(st.one_of(st.none(), st.lists(st.integers(0, 1), min_size=len(probe), max_size=len(probe))))
    keys = words_of(ascending, valid)
    expected = matches(
        [(key if valid is None or valid[row] else None,) for row, key in enumerate(ascending)],
        [(key,) for key in build],
        [False],
    )
    groups = []
    for search in (ordered_index._merge_words, ordered_index._search_words):
        group = np.empty(len(probe), dtype=np.int64)
        search(keys.words, keys.mask, index.words, group)
        groups.append(group.tolist())
    assert groups[0] == groups[1]
    assert match_lists(index.lookup(keys)) == expected


def test_a_sorted_morsel_is_merged_and_any_other_searched(path: list[str]) -> None:
    index = build_ordered_index(words_of([5, 3, 9, 3]))
    assert match_lists(index.lookup(words_of([3, 4, 5, 5, 9, 10]))) == [[1, 3], [], [0], [0], [2], []]
    assert match_lists(index.lookup(words_of([9, 3, 5]))) == [[2], [1, 3], [0]]
    assert match_lists(index.lookup(words_of([]))) == []
    assert path == ["_merge_words", "_search_words", "_merge_words"]
    path.clear()
    strings = build_ordered_index(normalised(["b", "a"], pa.string()))
    assert match_lists(strings.lookup(normalised(["a", "b", "c"], pa.string()))) == [[1], [0], []]
    assert path == ["_search_bytes"]


@pytest.mark.parametrize(
    "words, valid, kernel",
    [
        # Garbage that ascends with the other words: merged, and the nulls at 3, 5 and 9 must not match.
        ([1, 3, 3, 5, 5, 9], [1, 0, 1, 1, 0, 0], "_merge_words"),
        # Garbage far above the other words at the end, like a large value below a trailing null.
        ([3, 5, 9, MAX], [1, 1, 1, 0], "_merge_words"),
        # Garbage above the other words in the middle: the morsel is not ascending, so it must not be merged.
        ([3, MAX, 5, 9], [1, 0, 1, 1], "_search_words"),
        # Garbage below the other words, with the same consequence.
        ([3, 5, 0, 9], [1, 1, 0, 1], "_search_words"),
        ([9, 5, 3], [0, 0, 0], "_search_words"),
        ([3, 5, 9], [0, 0, 0], "_merge_words"),
    ],
)
def test_words_beneath_nulls_never_mislead_the_merge(
    path: list[str], words: list[int], valid: list[int], kernel: str
) -> None:
    index = build_ordered_index(words_of([5, 3, 9, 3, 1]))
    found = match_lists(index.lookup(words_of(words, valid)))
    of = {1: [4], 3: [1, 3], 5: [0], 9: [2]}
    assert found == [of.get(word, []) if present else [] for word, present in zip(words, valid, strict=True)]
    assert path == [kernel]


def test_build_side_garbage_beneath_nulls_is_not_indexed() -> None:
    build = words_of([7, 7, 1, 7, MAX], [1, 0, 1, 0, 0])
    for index in (build_ordered_index(build), build_hash_index(build), dense_build(build, False)):
        assert match_lists(index.lookup(words_of([7, 1, MAX]))) == [[0], [2], []]


def test_merge_gallops_over_long_gaps(path: list[str]) -> None:
    index = build_ordered_index(words_of(list(range(0, 30_000, 3))))
    probe = [0, 3, 4, 6, 2_997, 2_998, 15_000, 29_997, 29_998, 40_000]
    assert match_lists(index.lookup(words_of(probe))) == [
        [key // 3] if key % 3 == 0 and key < 30_000 else [] for key in probe
    ]
    assert path == ["_merge_words"]


@pytest.mark.parametrize(
    "keys, has_starts, has_rows",
    [([1, 2, 3], False, False), ([3, 1, 2], False, True), ([1, 1, 2], True, False), ([2, 1, 1], True, True)],
)
def test_ordered_index_leaves_out_what_it_can(keys: list[int], has_starts: bool, has_rows: bool) -> None:
    index = check(ordered_build, keys, [0, 1, 2, 3, 4], pa.int64())
    assert isinstance(index, OrderedIndex)
    assert (index.starts is not None, index.rows is not None) == (has_starts, has_rows)
    text = check(ordered_build, as_text(keys), as_text([0, 1, 2, 3]), pa.string())
    assert isinstance(text, OrderedIndex)
    assert text.words is None


def test_ordered_index_keeps_row_ids_where_nulls_were_dropped() -> None:
    """The valid rows ascend, but positions of entries differ from row ids."""
    index = check(ordered_build, [None, 1, None, 2], [1, 2, None], pa.int64())
    assert isinstance(index, OrderedIndex)
    assert index.rows is not None


# The index of all rows, and the choice of an index from recipes.


@pytest.mark.parametrize("build_rows, probe_rows", [(0, 3), (3, 0), (0, 0), (4, 3)])
def test_all_rows(build_rows: int, probe_rows: int) -> None:
    index = AllRowsIndex(build_rows)
    for candidate in (index, through_file(index)):
        assert candidate.distinct == 1
        found = candidate.lookup(NormalisedKeys(probe_rows, None, None, None))
        assert match_lists(found) == matches([()] * probe_rows, [()] * build_rows, [])


@pytest.mark.parametrize(
    "keys, algorithm, kind",
    [
        ([5, 6, 7], "auto", "dense"),
        ([5, 6, 7], "hash", "dense"),
        ([5, 6, 7], "sort_merge", "ordered"),
        ([0, 1 << 40], "auto", "hash"),
        ([MIN, MAX], "auto", "hash"),
        ([MIN, 0, MAX], "hash", "hash"),
        ([MIN, MAX], "sort_merge", "ordered"),
        ([-2, MAX - 1], "auto", "hash"),
        ([MIN, MIN + 1, MIN + 3], "auto", "dense"),
        ([MAX, MAX - 2], "auto", "dense"),
        ([None, None], "auto", "hash"),
        ([None, None], "sort_merge", "ordered"),
        ([], "auto", "hash"),
        ([], "sort_merge", "ordered"),
        ([None, 3], "auto", "dense"),
        (["a", "b"], "auto", "hash"),
        (["a", "b"], "sort_merge", "ordered"),
    ],
)
def test_the_chosen_index_answers_right(keys: list[Any], algorithm: str, kind: str) -> None:
    arrow_type = pa.string() if any(isinstance(key, str) for key in keys) else pa.int64()
    recipe = IndexRecipe((0,), (arrow_type,), (False,), algorithm, FULL_MASK)
    index, info = build_index(len(keys), [pa.array(keys, arrow_type)], recipe)
    assert index.kind == info.kind == kind
    assert info.build_rows == len(keys)
    assert info.bytes == index_bytes(index)
    assert info.reason
    probe = [*keys, *(["zz", ""] if arrow_type == pa.string() else [MIN, -1, 0, 1, 4, 8, MAX]), None]
    found = index.lookup(normalise_keys([pa.array(probe, arrow_type)], [False]))
    assert match_lists(found) == matches([(key,) for key in probe], [(key,) for key in keys], [False])


def test_an_index_reports_its_whole_state() -> None:
    """State that is missing in `arrays` would be lost in a file."""
    for index in (
        build_hash_index(normalised(["a", "b", "a"], pa.string())),
        build_ordered_index(normalised(["b", "a", "b"], pa.string())),
        build_ordered_index(normalised([2, 1, 2], pa.int64())),
        dense_build(normalised([2, 1, 2], pa.int64()), False),
    ):
        arrays = [value for value in vars(index).values() if isinstance(value, np.ndarray)]
        arrays += [part for value in vars(index).values() if isinstance(value, tuple) for part in value]
        assert {id(array) for array in arrays} == {id(array) for array in index.arrays.values()}
        scalars = {field.name for field in dataclasses.fields(index) if isinstance(getattr(index, field.name), int)}
        assert scalars == set(index.attributes)
