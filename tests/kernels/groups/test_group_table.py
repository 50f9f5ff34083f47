"""The group table against a dictionary of rows: every key type, composites, batch sizes, and colliding hashes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.groups import group_table
from sparkext.kernels.groups.group_slots import DenseSlots, HashSlots
from sparkext.kernels.groups.group_table import GroupTable
from tests.support.kernel_inputs import FULL_MASK, SAMPLES, examples, seeded, with_nulls

MASKS = (FULL_MASK, 0, 0xFF, 0xF << 60)
SIZES = (0, 1, 2, 63, 64, 65, 127, 128, 129)  # around a block of rows
NULL_RATES = (0, 0.01, 0.1, 0.5, 1)


class Oracle:
    """Assigns group ids to rows with a dictionary."""

    def __init__(self) -> None:
        self.groups: dict[tuple[Any, ...], int] = {}

    def numbers(self, rows: Sequence[tuple[Any, ...]]) -> list[int]:
        return [self.groups.setdefault(tuple(map(canonical, row)), len(self.groups)) for row in rows]


def canonical(value: Any) -> Any:
    """Return a value that is equal in Python exactly if SQL values are equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else ("float", value + 0.0)
    return ("bool", value) if isinstance(value, bool) else value


def python_values(array: pa.Array) -> list[Any]:
    """Return values in the form of `KeySample.values`: unscaled decimals, days and ticks."""
    if pa.types.is_decimal(array.type):
        data = array.buffers()[1].to_pybytes()[16 * array.offset :]
        unscaled = [int.from_bytes(data[16 * row : 16 * row + 16], "little", signed=True) for row in range(len(array))]
        return [value if valid.as_py() else None for value, valid in zip(unscaled, array.is_valid(), strict=True)]
    if pa.types.is_date32(array.type):
        return array.view(pa.int32()).to_pylist()
    if pa.types.is_temporal(array.type):
        return array.view(pa.int64()).to_pylist()
    return array.to_pylist()


def check(table: GroupTable, oracle: Oracle, morsels: Sequence[tuple[list[pa.Array], list[tuple[Any, ...]]]]) -> None:
    """Feed `table` and `oracle`; compare group ids after each morsel, and keys at the end."""
    types = table._types
    for columns, rows in morsels:
        numbers = table.numbers(columns)
        assert numbers.dtype == np.int32 and not numbers.flags.writeable
        assert numbers.tolist() == oracle.numbers(rows)
        assert table.count == len(oracle.groups)
    for start, stop in ((0, table.count), (table.count // 2, table.count), (0, 0), (0, min(1, table.count))):
        keys = table.keys(start, stop)
        for key, arrow_type in zip(keys, types, strict=True):
            key.validate(full=not pa.types.is_time(arrow_type))  # some samples are not valid times of day
            assert key.type == arrow_type
            assert len(key) == stop - start
        found = zip(*(map(canonical, python_values(key)) for key in keys), strict=True)
        assert list(found) == list(oracle.groups)[start:stop]
    for key in table.keys(0, table.count):
        if pa.types.is_floating(key.type):
            values = key.drop_null().to_numpy()
            assert not np.signbit(values[(values == 0) | np.isnan(values)]).any()


@pytest.mark.reduced("values", reason="each compiles kernels")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_groups_like_sql(name: str, mask: int) -> None:
    @examples(50)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        sample = SAMPLES[name]
        morsels = []
        for _ in range(data.draw(st.integers(1, 3))):
            picks = data.draw(st.lists(st.integers(0, len(sample.raw) - 1), max_size=40))
            valid = data.draw(st.lists(st.booleans(), min_size=len(picks), max_size=len(picks)))
            valid = valid if data.draw(st.booleans()) else [True] * len(picks)
            array = sample.array(picks, valid, before=data.draw(st.sampled_from((0, 1, 9))), after=1)
            morsels.append(([array], [(key,) for key in sample.keys(picks, valid)]))
        check(GroupTable([sample.type], mask), Oracle(), morsels)

    run()


@pytest.mark.parametrize("mask", MASKS)
def test_columns_together(mask: int) -> None:
    @examples(150)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        samples = [
            SAMPLES[name] for name in data.draw(st.lists(st.sampled_from(sorted(SAMPLES)), min_size=1, max_size=5))
        ]
        few = data.draw(st.booleans())
        table, oracle = GroupTable([sample.type for sample in samples], mask), Oracle()
        morsels = []
        for _ in range(data.draw(st.integers(1, 4))):
            size = data.draw(st.integers(0, 20))
            columns, keys = [], []
            for sample in samples:
                pick = st.integers(0, 1 if few else len(sample.raw) - 1)
                picks = data.draw(st.lists(pick, min_size=size, max_size=size))
                valid = [True] * size
                if data.draw(st.booleans()):
                    valid = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
                columns.append(sample.array(picks, valid, before=data.draw(st.sampled_from((0, 3)))))
                keys.append(sample.keys(picks, valid))
            morsels.append((columns, list(zip(*keys, strict=True))))
        check(table, oracle, morsels)

    run()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("spread", [1, 1 << 40])
@pytest.mark.parametrize("rate", NULL_RATES)
@pytest.mark.parametrize("width", [1, 2])
def test_sizes_around_blocks(width: int, rate: float, spread: int, mask: int) -> None:
    random = seeded(width)
    table, oracle = GroupTable([pa.int64()] * width, mask), Oracle()
    morsels = []
    for size in SIZES:
        columns = []
        for _ in range(width):
            values = [random.randrange(-50, 50) * spread for _ in range(size)]
            valid = [random.random() >= rate for _ in range(size)]
            columns.append(with_nulls(pa.array(values, pa.int64()), valid))
        morsels.append((columns, list(zip(*(column.to_pylist() for column in columns), strict=True))))
    check(table, oracle, morsels)


def texts_of(lengths: Sequence[int], prefix: str) -> list[str]:
    return [(prefix + "x" * length)[:length] for length in lengths]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("longest", [0, 1, 7, 8, 9, 16, 17])
def test_texts_of_all_lengths(longest: int, mask: int) -> None:
    lengths = [length for length in (0, 1, 2, 6, 7, 8, 9, 15, 16, 17) if length <= longest]
    texts = [*texts_of(lengths, ""), *texts_of(lengths, "common prefix, a"), *texts_of(lengths, "\0"), None]
    array = pa.array(texts * 2, pa.string())
    for width in (1, 2):
        table, oracle = GroupTable([pa.string()] * width, mask), Oracle()
        morsels = [array.slice(start, 1) for start in range(len(array))] + [array]
        check(table, oracle, [([part] * width, [(text,) * width for text in part.to_pylist()]) for part in morsels])


def test_a_long_text_late() -> None:
    """The layout of key codes changes when the first string is too long for one word, with one column and with two."""
    parts = [["a", None, "", "seven77"], ["b", "a", "eight 88", None], ["", "a", "nine is 9", "eight 88", "seven77"]]
    for width in (1, 2):
        morsels = []
        for part in parts:
            columns = [pa.array(part), pa.array([len(text or "") % 2 for text in part], pa.int32())][:width]
            morsels.append((columns, list(zip(*(column.to_pylist() for column in columns), strict=True))))
        check(GroupTable([pa.string(), pa.int32()][:width]), Oracle(), morsels)


def test_texts_end_where_their_buffer_does() -> None:
    data = pa.py_buffer(b"abcdefghijkl")
    for size in range(1, 8):
        offsets = pa.py_buffer(np.array([12 - size, 12], dtype=np.int32))
        array = pa.Array.from_buffers(pa.string(), 1, [None, offsets, data])
        check(GroupTable([pa.string()]), Oracle(), [([array], [(array[0].as_py(),)])])


@pytest.mark.parametrize("mask", [FULL_MASK, 0xFFFF << 48])
@pytest.mark.parametrize(
    "case", ["ascending", "descending", "random", "sparse", "outlier", "pair", "text", "text and int"]
)
def test_growth_over_many_morsels(case: str, mask: int) -> None:
    """Ranges, slots and dictionaries grow many times."""
    rows, cut = 30_000, 1000
    generator = np.random.default_rng(7)
    ids = {
        "ascending": np.arange(rows) // 2,
        "descending": -np.arange(rows) * 3,
        "outlier": np.where(np.arange(rows) == rows // 2, 1 << 61, np.arange(rows)),
    }.get(case, generator.integers(0, rows, rows))
    columns = {
        "sparse": [pa.array(ids << 40)],
        "pair": [pa.array(ids << 40), pa.array(generator.integers(-(1 << 62), 1 << 62, 7)[ids % 7])],
        "text": [pa.array([f"{number}" * (1 + number % 3) for number in ids])],
        "text and int": [pa.array([f"text {number % 5000}" for number in ids]), pa.array(ids % 3)],
    }.get(case, [pa.array(ids)])
    table, oracle = GroupTable([column.type for column in columns], mask), Oracle()
    values = list(zip(*(column.to_pylist() for column in columns), strict=True))
    check(
        table,
        oracle,
        [
            ([column.slice(start, cut) for column in columns], values[start : start + cut])
            for start in range(0, rows, cut)
        ],
    )
    assert table.nbytes < 400 * table.count


def kind(table: GroupTable) -> str:
    """Return the name of the table's lookup method."""
    if isinstance(table._slots, DenseSlots):
        return "dense"
    return "hashed" if isinstance(table._slots, HashSlots) else "dictionary"


def test_which_slots_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_table, "_DENSE_WORDS", 1000)

    def after(table: GroupTable, *values: Sequence[Any]) -> str:
        for part in values:
            table.numbers([pa.array(part, table._types[0])])
        return kind(table)

    assert after(GroupTable([pa.int64()]), range(10)) == "dense"
    assert after(GroupTable([pa.int64()], 0), range(10)) == "hashed"
    assert after(GroupTable([pa.int64()]), [0, 1 << 62]) == "hashed"
    assert after(GroupTable([pa.int64()]), range(10), [1 << 30]) == "hashed"
    assert after(GroupTable([pa.int64()]), [0, 1 << 13], range(0, 1 << 13, 7)) == "dense"
    assert after(GroupTable([pa.string()]), ["a", "b", None]) == "dense"
    assert after(GroupTable([pa.string()]), ["a", "seven77"]) == "hashed"
    assert after(GroupTable([pa.string()]), ["a", "eight 88"]) == "dictionary"
    table = GroupTable([pa.string(), pa.string()])
    table.numbers([pa.array(["A", "R", "N"]), pa.array(["F", "O", "F"])])
    assert kind(table) == "dense"


def test_a_column_of_its_own_word_has_no_range() -> None:
    table, oracle = GroupTable([pa.int64(), pa.int64()]), Oracle()
    columns = [pa.array([0, 1 << 62, -(1 << 63), 5]), pa.array([7, 1, (1 << 63) - 1, -(1 << 63)])]
    values = list(zip(*(column.to_pylist() for column in columns), strict=True))
    check(table, oracle, [([c.slice(row, 1) for c in columns], values[row : row + 1]) for row in (3, 2, 1, 0, 0, 3)])
    assert table._layout is not None and table._layout.width == 2


@pytest.mark.parametrize("name", SAMPLES)
def test_nulls_only(name: str) -> None:
    arrow_type = SAMPLES[name].type
    for array in (pa.nulls(3, arrow_type), pa.nulls(3)):
        table = GroupTable([arrow_type, pa.int32()])
        rows = [(None, 1), (None, 1), (None, 2)]
        check(table, Oracle(), [([array, pa.array([1, 1, 2], pa.int32())], rows)])


def test_strings_with_either_width_of_offsets() -> None:
    table, oracle = GroupTable([pa.string()]), Oracle()
    values = ["a", "b", None, "a long text"]
    check(
        table, oracle, [([pa.array(values, kind)], [(v,) for v in values]) for kind in (pa.large_string(), pa.string())]
    )


def test_bytes_that_a_table_holds() -> None:
    table = GroupTable([pa.int64(), pa.string()])
    assert table.nbytes < 100_000
    table.numbers([pa.array(range(20_000)), pa.array([f"text number {i}" for i in range(20_000)])])
    assert table.nbytes > 1_000_000


def test_a_table_without_rows() -> None:
    assert GroupTable([pa.int64(), pa.string()]).keys(0, 0) == [pa.array([], pa.int64()), pa.array([], pa.string())]


def test_keys_outlive_the_table() -> None:
    for values in (pa.array([1, 2, None]), pa.array(["a", None, "b"]), pa.array(["a", None, "a long text"])):
        table = GroupTable([values.type])
        table.numbers([values])
        (keys,) = table.keys(0, 3)
        table.numbers([pa.array([f"a new text {n}" for n in range(99)]) if values.type == "string" else values])
        del table
        assert keys.equals(values)


def test_bad_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="at least one column"):
        GroupTable([])
    with pytest.raises(TypeError, match="list<item: int64>"):
        GroupTable([pa.list_(pa.int64())])
    monkeypatch.setattr(group_table, "MOST_GROUPS", 2)
    with pytest.raises(OverflowError, match="at most 2 groups"):
        GroupTable([pa.int64()]).numbers([pa.array([1, 1, 1])])


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(20, 0)])
def test_a_table_that_has_seen_nothing_but_nulls(kind: pa.DataType) -> None:
    """A zero may follow nulls, and must be preserved when the next key needs another layout."""
    table = GroupTable([kind])
    keys = [None, None, 0, 6, None, 0, -1, 6]
    assert [table.numbers([pa.array([key], kind)]).tolist() for key in keys] == [[0], [0], [1], [2], [0], [1], [3], [2]]
    assert table.keys(0, 4)[0].cast(pa.int64()).to_pylist() == [None, 0, 6, -1]


@pytest.mark.parametrize("late", [None, -(2**63)])
def test_words_that_have_left_their_range(late: int | None) -> None:
    """A column with a word of its own may leave its range; the layout changes only when a later key requires it."""
    table = GroupTable([pa.int64(), pa.int64()])
    wide = [-(2**62), 2**62]
    assert table.numbers([pa.array(wide), pa.array(wide)]).tolist() == [0, 1]
    assert table.numbers([pa.array([2**63 - 1]), pa.array([0])]).tolist() == [2]
    assert table.numbers([pa.array([late], pa.int64()), pa.array([None], pa.int64())]).tolist() == [3]
    assert table.numbers([pa.array([2**63 - 1, -(2**62)]), pa.array([0, -(2**62)])]).tolist() == [2, 0]
