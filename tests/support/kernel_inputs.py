"""Helpers of several kernel tests: hypothesis settings, and Arrow arrays that are as unusual as Arrow permits."""

from __future__ import annotations

import ctypes
import datetime
import mmap
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings

from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.runtime.jit import JIT_ENABLED, freeze

FULL_MASK = (1 << 64) - 1


def examples(count: int) -> settings:
    """Return settings of a property test: deterministic examples, and fewer of them without the JIT."""
    return settings(
        max_examples=count if JIT_ENABLED else max(5, count // 5),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def with_nulls(array: pa.Array, valid: Sequence[bool]) -> pa.Array:
    """Return `array` (no nulls) with nulls where `valid` is false.

    Values below the nulls remain as garbage, except in nested arrays.
    """
    if all(valid):
        return array
    if pa.types.is_nested(array.type):
        values = [value if present else None for value, present in zip(array.to_pylist(), valid, strict=True)]
        return pa.array(values, array.type)
    bitmap = np.packbits(
        np.concatenate([np.zeros(array.offset, bool), np.asarray(valid, bool)]), bitorder="little"
    ).tobytes()
    return pa.Array.from_buffers(
        array.type, len(array), [pa.py_buffer(bitmap), *array.buffers()[1:]], offset=array.offset
    )


@dataclass(frozen=True)
class KeySample:
    """A key type with values that distinguish encodings.

    `make` converts `raw` to an Arrow array without nulls. The oracle compares `values`, which differ from `raw` if
    several bit patterns represent one value.
    """

    type: pa.DataType
    raw: Sequence[Any]
    values: Sequence[Any]
    make: Callable[[Sequence[Any]], pa.Array]
    bits: int | None

    def array(self, picks: Sequence[int], valid: Sequence[bool], before: int = 0, after: int = 0) -> pa.Array:
        """Return an array of the samples at `picks`, sliced from a longer one, with garbage below its nulls."""
        padding = [(number * 7) % len(self.raw) for number in range(before + after)]
        whole = self.make([self.raw[pick] for pick in [*padding[:before], *picks, *padding[before:]]])
        holes = [number % 3 != 0 for number in range(before + after)]
        if not all(valid):
            whole = with_nulls(whole, [*holes[:before], *valid, *holes[before:]])
        return whole.slice(before, len(picks))

    def keys(self, picks: Sequence[int], valid: Sequence[bool]) -> list[Any]:
        """Return the same keys as Python values."""
        return [self.values[pick] if present else None for pick, present in zip(picks, valid, strict=True)]


def _integers(arrow_type: pa.DataType, storage: pa.DataType, bits: int) -> KeySample:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    raw = sorted({low, low + 1, -100, -2, -1, 0, 1, 2, 100, high - 1, high, low // 2, high // 2})
    return KeySample(arrow_type, raw, raw, lambda values: pa.array(values, storage).view(arrow_type), bits)


def _floats(arrow_type: pa.DataType, bit_patterns: Sequence[int], unsigned: str, code: str) -> KeySample:
    size = np.dtype(unsigned).itemsize
    values = [struct.unpack(code, pattern.to_bytes(size, "little"))[0] for pattern in bit_patterns]
    return KeySample(
        arrow_type,
        bit_patterns,
        values,
        lambda patterns: pa.array(np.array(patterns, dtype=unsigned)).view(arrow_type),
        64,
    )


def _decimals(precision: int, scale: int, unscaled: Sequence[int]) -> KeySample:
    arrow_type = pa.decimal128(precision, scale)

    def make(values: Sequence[int]) -> pa.Array:
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
        return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(data)])

    return KeySample(arrow_type, unscaled, unscaled, make, 64 if precision <= 18 else None)


_TEXTS = (
    "", "\0", "\0\0", "a", "a\0", "\0a", "ab", "abc", "abcdefg", "abcdefgh", "abcdefgh\0", "abcdefghi",
    "abcdefghijklmnop", "abcdefghijklmnoq", "abcdefghijklmnopq", "z", "ä", "日本", "x" * 40, "x" * 41,
)  # fmt: skip
_BYTES = [text.encode() for text in _TEXTS] + [b"\xff", b"\xff\xff", b"\x80\0"]


def _texts(arrow_type: pa.DataType, values: Sequence[Any]) -> KeySample:
    return KeySample(arrow_type, values, values, lambda picked: pa.array(picked, arrow_type), None)


_DOUBLE_BITS = (
    0x0000000000000000, 0x8000000000000000,  # 0.0, -0.0
    0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF,  # NaNs
    0x7FF0000000000000, 0xFFF0000000000000,  # infinities
    0x0000000000000001, 0x8000000000000001, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF,  # smallest and largest
    0x3FF0000000000000, 0xBFF0000000000000, 0x3FF0000000000001,  # 1, -1, next after 1
)  # fmt: skip
_FLOAT_BITS = (
    0x00000000, 0x80000000, 0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000,
    0x00000001, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x3F800001,
)  # fmt: skip

SAMPLES: dict[str, KeySample] = {
    "bool": KeySample(pa.bool_(), (False, True), (False, True), lambda values: pa.array(values, pa.bool_()), 1),
    "int8": _integers(pa.int8(), pa.int8(), 8),
    "int16": _integers(pa.int16(), pa.int16(), 16),
    "int32": _integers(pa.int32(), pa.int32(), 32),
    "int64": _integers(pa.int64(), pa.int64(), 64),
    "float32": _floats(pa.float32(), _FLOAT_BITS, "<u4", "<f"),
    "float64": _floats(pa.float64(), _DOUBLE_BITS, "<u8", "<d"),
    "decimal(7,2)": _decimals(7, 2, (-9999999, -100, -1, 0, 1, 100, 9999999)),
    "decimal(18,0)": _decimals(18, 0, (-(10**18) + 1, -(1 << 40), -1, 0, 1, 1 << 40, 10**18 - 1)),
    "decimal(19,4)": _decimals(19, 4, (-(10**19) + 1, -(1 << 63), -1, 0, 1, 1 << 32, 1 << 63, 10**19 - 1)),
    "decimal(38,10)": _decimals(
        38, 10, (-(10**38) + 1, -(1 << 64), -(1 << 64) - 1, -1, 0, 1, 1 << 63, 1 << 64, (1 << 64) + 1, 10**38 - 1)
    ),
    "date": _integers(pa.date32(), pa.int32(), 32),
    "timestamp": _integers(pa.timestamp("us", tz="UTC"), pa.int64(), 64),
    "timestamp_ntz": _integers(pa.timestamp("us"), pa.int64(), 64),
    "time": _integers(pa.time64("ns"), pa.int64(), 64),
    "daytime_interval": _integers(pa.duration("us"), pa.int64(), 64),
    "string": _texts(pa.string(), _TEXTS),
    "large_string": _texts(pa.large_string(), _TEXTS),
    "binary": _texts(pa.binary(), _BYTES),
    "large_binary": _texts(pa.large_binary(), _BYTES),
}
"""Every key type of the package, by its name in plans, and the large variants of strings."""


_DAY = datetime.date(2024, 2, 29)
_INSTANT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
_POINT = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])

PAYLOADS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, True, True, False],
    pa.int8(): [-128, 0, 1, 127, -1],
    pa.uint8(): [0, 1, 2, 254, 255],
    pa.int16(): [-(2**15), 0, 1, 2**15 - 1, -1],
    pa.int32(): [-(2**31), 0, 1, 2**31 - 1, -1],
    pa.int64(): [-(2**63), 0, 1, 2**63 - 1, -1],
    pa.float32(): [-0.0, 0.0, float("nan"), float("-inf"), 1.5],
    pa.float64(): [-0.0, 0.0, float("nan"), float("inf"), 5e-324],
    pa.decimal128(9, 2): [Decimal(text) for text in ("-9999999.99", "0.00", "0.01", "1.00", "9999999.99")],
    pa.decimal128(38, 10): [Decimal(text) for text in ("-1", "0", "1E-10", "12345678901234567890.5", "7")],
    pa.date32(): [_DAY, datetime.date(1, 1, 1), datetime.date(1969, 12, 31), _DAY, datetime.date(9999, 12, 31)],
    pa.timestamp("us"): [_INSTANT, datetime.datetime(1, 1, 1), _INSTANT, _INSTANT, datetime.datetime(9999, 12, 31)],
    pa.timestamp("us", tz="UTC"): [_INSTANT.replace(tzinfo=datetime.timezone.utc)] * 5,
    pa.time64("us"): [datetime.time(0), datetime.time(23, 59, 59, 999999), *map(datetime.time, (12, 1, 2))],
    pa.duration("us"): [datetime.timedelta(microseconds=us) for us in (-1, 0, 1, 10**12, -(10**12))],
    pa.month_day_nano_interval(): [pa.MonthDayNano([months, -months, 7 * months]) for months in (0, 1, -1, 100, 5)],
    pa.string(): ["", "a", "eight by", "sixteen letters.", "日本" * 30],
    pa.large_string(): ["", "a", "eight by", "sixteen letters.", "x" * 200],
    pa.binary(): [b"", b"\0", b"\xff" * 8, b"12345678901234567", b"\0" * 65],
    pa.large_binary(): [b"", b"\0", b"\xff" * 8, b"12345678901234567", b"\0" * 65],
    pa.binary(3): [b"abc", b"\0\0\0", b"abd", b"xyz", b"\xff\xff\xff"],
    pa.list_(pa.int64()): [[1, None], [], [3], [None], [5, 6, 7]],
    pa.list_(pa.list_(pa.string())): [[["a"], []], [], [["b", None]], [None], [["c"] * 3]],
    _POINT: [{"x": 1, "tags": ["a"]}, {"x": None, "tags": []}, {"x": 3, "tags": None}, {"x": 4, "tags": [None]}] * 2,
    pa.map_(pa.string(), pa.int32()): [[("a", 1)], [], [("b", None)], [("c", 3), ("d", 4)], [("", 0)]],
    pa.null(): [None] * 5,
}  # fmt: skip
"""At least five values of every Arrow type that a column may have."""


def match_lists(matches: Matches) -> list[list[int]]:
    """Return the build rows of every probe row, read from the match ranges; assert the invariants of the ranges."""
    lists: list[list[int]] = []
    for row, first in enumerate(matches.first.tolist()):
        count = (first >= 0) if matches.counts is None else int(matches.counts[row])
        assert (count > 0) == (first >= 0), f"probe row {row}: first {first}, count {count}"
        entries = range(first, first + count)
        lists.append([entry if matches.rows is None else int(matches.rows[entry]) for entry in entries])
    assert matches.matched == sum(1 for rows in lists if rows)
    assert matches.pairs == sum(len(rows) for rows in lists)
    return lists


def seeded(seed: int) -> random.Random:
    """Return a generator of test data; print its seed, so that a failure shows it."""
    print(f"seed {seed}")
    return random.Random(seed)


class GuardedBytes:
    """A read-only uint8 array that ends (or begins) directly at an inaccessible page.

    Reading one byte outside kills the process, so tests use it in a subprocess.
    """

    def __init__(self, content: bytes, guard_before: bool = False) -> None:
        page = mmap.PAGESIZE
        pages = -(-max(len(content), 1) // page)
        self._map = mmap.mmap(-1, (pages + 2) * page)
        start = page if guard_before else (pages + 1) * page - len(content)
        self._map[start : start + len(content)] = content
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for guard in (0, pages + 1):
            if libc.mprotect(ctypes.c_void_p(address + guard * page), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.array = freeze(np.frombuffer(self._map, dtype=np.uint8)[start : start + len(content)])
        self.buffer = pa.foreign_buffer(address + start, len(content), base=self._map)
