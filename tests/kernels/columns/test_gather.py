"""`Column.take` against Python lists, for every Arrow type that Spark has, and at the limits of its short copies."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.columns import gather
from sparkext.kernels.columns.gather import Column, VarBytesOverflowError, compose
from sparkext.kernels.runtime.jit import JIT_ENABLED, freeze
from tests.oracle.rows import canonical, take
from tests.support.kernel_inputs import PAYLOADS, examples, seeded, with_nulls

BY_KERNEL = {
    kind
    for kind in PAYLOADS
    if (
        (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)) and kind.bit_width <= 64
    )
    or kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
}

RESULT_TYPES = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def rows_of(*rows: int, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    return freeze(np.array(rows, dtype=dtype))


def check(array: pa.Array, rows: Sequence[int], missing: bool) -> None:
    """Assert that the gathered column is a valid array of the right type with the rows that a Python loop selects."""
    for dtype in (np.int32, np.int64):
        taken = Column.of(array).take(rows_of(*rows, dtype=dtype), missing)
        taken.validate(full=True)
        assert taken.type == RESULT_TYPES.get(array.type, array.type)
        assert len(taken) == len(rows)
        assert canonical(taken.to_pylist()) == canonical(take(array.to_pylist(), rows))
        assert taken.null_count == sum(value is None for value in taken.to_pylist())


def sources(kind: pa.DataType) -> list[pa.Array]:
    """Return the values plain, with nulls, and all null, and each of these as a slice of a longer array."""
    whole = pa.array(PAYLOADS[kind] * 3, kind)
    arrays = [whole, whole.slice(4, 9)]
    if kind != pa.null():
        for valid in ([row % 3 != 1 for row in range(len(whole))], [False] * len(whole)):
            holes = with_nulls(whole, valid)
            arrays += [holes, holes.slice(3, 10), holes.slice(9, 5)]
        arrays.append(pa.nulls(4, kind))
    return arrays


@pytest.mark.parametrize("kind", PAYLOADS, ids=str)
def test_every_type(kind: pa.DataType) -> None:
    for array in sources(kind):
        n = len(array)
        check(array, range(n), missing=False)
        check(array, [n - 1, 0, 0, n // 2, n - 1, 1], missing=False)
        check(array, [n - 1, 0], missing=True)
        check(array, [-1, 0, -1, n - 1, -1], missing=True)
        check(array, [-1] * 11, missing=True)
        check(array, [], missing=False)
        check(array, [], missing=True)


@pytest.mark.parametrize("kind", PAYLOADS, ids=str)
def test_empty_sources_give_nulls_only(kind: pa.DataType) -> None:
    for array in (pa.array([], kind), pa.array(PAYLOADS[kind], kind).slice(2, 0)):
        check(array, [], missing=False)
        check(array, [-1, -1, -1], missing=True)


@pytest.mark.parametrize("kind", PAYLOADS, ids=str)
def test_which_types_the_kernels_take(kind: pa.DataType) -> None:
    column = Column.of(pa.array(PAYLOADS[kind], kind))
    assert (column.values is not None) == (kind in BY_KERNEL)


@pytest.mark.parametrize("kind", PAYLOADS, ids=str)
def test_without_rows_the_column_is_handed_through(kind: pa.DataType) -> None:
    array = pa.array(PAYLOADS[kind], kind)
    assert Column.of(array).take(None, missing=False) is array


def test_dictionaries_are_taken_by_arrow() -> None:
    array = pa.array(["a", "b", None, "a"]).dictionary_encode()
    assert Column.of(array).take(rows_of(3, -1, 2, 1), missing=True).to_pylist() == ["a", None, None, "b"]


@given(data=st.data())
@examples(120)
def test_any_rows_of_any_slice(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(PAYLOADS, key=str)))
    size = data.draw(st.integers(1, 30))
    picks = data.draw(st.lists(st.integers(0, len(PAYLOADS[kind]) - 1), min_size=size, max_size=size))
    array = pa.array([PAYLOADS[kind][pick] for pick in picks], kind)
    if kind != pa.null():
        array = with_nulls(array, data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    start = data.draw(st.integers(0, size - 1))
    array = array.slice(start, data.draw(st.integers(1, size - start)))
    missing = data.draw(st.booleans())
    rows = data.draw(st.lists(st.integers(-1 if missing else 0, len(array) - 1), max_size=70))
    check(array, rows, missing)


@given(data=st.data())
@examples(60)
def test_runs_of_consecutive_rows(data: st.DataObject) -> None:
    """Runs are copied as one block: of every length, at both ends, adjacent, and next to missing or repeated rows."""
    random = seeded(data.draw(st.integers(0, 1 << 32)))
    array = pa.array(["x" * random.randrange(30) + str(row) for row in range(25)], pa.string()).slice(5)
    rows: list[int] = []
    for length in data.draw(st.lists(st.integers(0, 20), max_size=8)):
        start = random.randrange(len(array) - length + 1)
        rows += [*range(start, start + length), *[-1] * random.randrange(2), *[3] * random.randrange(3)]
    check(array, rows, missing=True)
    check(array, [row for row in rows if row >= 0], missing=False)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("missing", [False, True])
def test_strings_of_every_length(monkeypatch: pytest.MonkeyPatch, passes: int, missing: bool) -> None:
    """From a buffer of exact size, with lengths around the thresholds of the copying methods, in any order."""
    if passes == 2:
        monkeypatch.setattr(gather, "_ONE_PASS_BYTES", 0)
    random = seeded(3)
    lengths = [*range(70), 127, 128, 129, 1000]
    texts = [bytes(random.randrange(256) for _ in range(length)) for length in lengths]
    for order in (texts, texts[::-1], random.sample(texts, len(texts))):
        data = b"".join(order)
        offsets = np.cumsum([0, *map(len, order)]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        array = pa.Array.from_buffers(pa.binary(), len(order), buffers)
        lowest = -1 if missing else 0
        rows = [random.randrange(lowest, len(order)) for _ in range(400)]
        check(array, rows, missing)
        check(array, [*rows[:20], len(order) - 1], missing)
        for row in range(len(order)):
            check(array, [row], missing)


def test_the_first_pass_is_saved_for_short_results_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    total_length = gather._sum_lengths

    def spy(*args: Any) -> int:
        asked.append(total_length(*args))
        return asked[-1]

    monkeypatch.setattr(gather, "_sum_lengths", spy)
    column = Column.of(pa.array(["x" * 100, ""]))
    column.take(rows_of(0, 1, 1), missing=False)
    assert asked == []
    monkeypatch.setattr(gather, "_ONE_PASS_BYTES", 299)
    column.take(rows_of(0, 1, 1), missing=False)
    assert asked == [100]


class Canaries:
    """Replaces `allocate_array` by arrays that are followed by bytes which must not change."""

    def __init__(self) -> None:
        self.blocks: list[tuple[npt.NDArray[np.uint8], int]] = []

    def __call__(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        wanted = np.dtype(dtype)
        size = count * wanted.itemsize
        block = np.full(size + 256, 0xAB, dtype=np.uint8)
        self.blocks.append((block, size))
        return block[:size].view(wanted)

    def check(self) -> None:
        assert self.blocks
        for block, size in self.blocks:
            assert (block[size:] == 0xAB).all(), f"written past an output of {size} bytes"


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("kind", sorted(BY_KERNEL, key=str), ids=str)
def test_nothing_is_written_outside_the_outputs(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, passes: int
) -> None:
    if passes == 2:
        monkeypatch.setattr(gather, "_ONE_PASS_BYTES", 0)
    values = PAYLOADS[kind] * 2
    for array in (
        pa.array(values, kind),
        with_nulls(pa.array(values, kind), [row % 2 == 0 for row in range(len(values))]),
    ):
        for rows in ([0], [4], [3, 3, 3], list(range(10)), list(range(9, -1, -1)), [-1, 4, -1], [-1], []):
            canaries = Canaries()
            monkeypatch.setattr(gather, "allocate_array", canaries)
            check(array, rows, missing=-1 in rows)
            canaries.check()


@pytest.mark.parametrize("length", range(1, 70))
def test_the_slack_takes_what_short_copies_write_too_much(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """The result's last row is short and from the middle of a long source: the worst case for writing past the end."""
    array = pa.array(["x" * length, "y" * 200])
    for rows in ([0], [0, 0], [0] * 9):
        canaries = Canaries()
        monkeypatch.setattr(gather, "allocate_array", canaries)
        check(array, rows, missing=False)
        canaries.check()


GUARDED = """
import sys
import numpy as np, pyarrow as pa
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.runtime.jit import freeze
from tests.support.kernel_inputs import GuardedBytes

before = sys.argv[1] == "before"
for length in [*range(0, 70), 127, 128, 129]:
    for count in (1, 2, 5):
        content = bytes(i % 251 for i in range(length * count))
        guarded = GuardedBytes(content, guard_before=before)
        offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * length)
        array = pa.Array.from_buffers(pa.binary(), count, [None, offsets, guarded.buffer])
        rows = [*range(count), *range(count - 1, -1, -1)]
        taken = Column.of(array).take(freeze(np.array(rows, dtype=np.int64)), False)
        assert taken.to_pylist() == [content[length * r : length * (r + 1)] for r in rows]
print("alive")
if sys.argv[1] == "control":
    address = guarded.array.__array_interface__["data"][0]
    import ctypes
    ctypes.string_at(address, len(content) + 1)
    print("the guard does not hold")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect")
@pytest.mark.parametrize("guard", ["after", "before", "control"])
def test_nothing_is_read_outside_the_source(guard: str, request: pytest.FixtureRequest) -> None:
    """Sources end, or begin, at an inaccessible page; a control proves that touching it kills the process."""
    ran = subprocess.run(
        [sys.executable, "-c", GUARDED, guard], capture_output=True, text=True, cwd=request.config.rootpath
    )
    assert ran.stdout == "alive\n", ran.stderr
    assert (ran.returncode == 0) == (guard != "control")


# Limits.


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_too_many_string_bytes(monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, passes: int) -> None:
    if passes == 2:
        monkeypatch.setattr(gather, "_ONE_PASS_BYTES", 0)
    monkeypatch.setattr(gather, "MAX_VAR_BYTES", 100)
    array = pa.array(["x" * 10] * 3, pa.string()).cast(kind)
    check(array, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0], missing=False)
    for missing in (False, True):
        with pytest.raises(VarBytesOverflowError):
            Column.of(array).take(rows_of(*[0] * 11), missing)


def test_the_limit_counts_the_rows_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MAX_VAR_BYTES", 100)
    monkeypatch.setattr(gather, "_ONE_PASS_BYTES", 0)
    array = pa.array(["x" * 50, "", "y"])
    check(array, [0, -1, -1, 1, 0, -1, 1], missing=True)
    with pytest.raises(VarBytesOverflowError):
        Column.of(array).take(rows_of(0, -1, 0, 2), missing=True)


@pytest.mark.skipif(not JIT_ENABLED, reason="too many bytes for plain Python")
def test_offsets_do_not_wrap_at_two_gibibytes() -> None:
    """Rows of together more than 2^31 bytes raise an error before anything is copied, instead of negative offsets."""
    array = pa.array(["x" * (1 << 20)])
    with pytest.raises(VarBytesOverflowError):
        Column.of(array).take(freeze(np.zeros(2048, dtype=np.int64)), missing=False)


def test_large_strings_beyond_two_gibibytes_are_gathered_from() -> None:
    """Offsets of the source have 64 bits, whatever those of the result have."""
    far = 3 << 30
    data = np.zeros(far + 5, dtype=np.uint8)  # untouched pages use no memory
    data[far:] = np.frombuffer(b"hello", dtype=np.uint8)
    offsets = pa.py_buffer(np.array([0, 2, far, far + 5], dtype=np.int64))
    array = pa.Array.from_buffers(pa.large_string(), 3, [None, offsets, pa.py_buffer(data)])
    taken = Column.of(array).take(rows_of(2, 0, 2), missing=False)
    assert taken.type == pa.string()
    assert taken.to_pylist() == ["hello", "\0\0", "hello"]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.string()], ids=str)
def test_buffers_may_be_longer_than_their_values(kind: pa.DataType) -> None:
    """Arrow requires buffers to be at least as large as their values: padding of any length may follow."""
    plain = pa.array(PAYLOADS[kind], kind)
    for extra in (1, 3, 8):
        buffers = [None if b is None else pa.py_buffer(b.to_pybytes() + b"\xee" * extra) for b in plain.buffers()]
        array = pa.Array.from_buffers(kind, len(plain), buffers)
        array.validate(full=True)
        check(array, [4, 0, -1, 2], missing=True)


@pytest.mark.parametrize("widths", list(itertools.product([np.int32, np.int64], repeat=2)))
@given(data=st.data())
@examples(30)
def test_compose(widths: tuple[npt.DTypeLike, npt.DTypeLike], data: st.DataObject) -> None:
    largest = int(np.iinfo(widths[0]).max)
    outer = data.draw(st.lists(st.integers(-1, largest), min_size=1, max_size=20))
    inner = data.draw(st.lists(st.integers(0, len(outer) - 1), max_size=40))
    out = np.empty(len(inner), dtype=widths[0])
    compose(rows_of(*outer, dtype=widths[0]), rows_of(*inner, dtype=widths[1]), out)
    assert out.tolist() == [outer[row] for row in inner]


def test_value_bytes_is_the_average_size_of_a_row() -> None:
    assert Column.of(pa.array([1, 2, 3])).value_bytes == 8.0
    assert Column.of(pa.array([], pa.int64())).value_bytes == 0.0
    assert 96 <= Column.of(pa.array(["x" * 96] * 4)).value_bytes <= 101, "text and offsets"
