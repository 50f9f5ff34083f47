"""Conversion of decimals to machine words and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sparkext.kernels.keys.decimal_words import halves_of, read_unscaled_digits
from tests.support.kernel_inputs import SAMPLES

WORDS = [-(2**63), -(2**63) + 1, -1, 0, 1, 7, 2**63 - 1]


def decimals(digits: list[int], valid: list[bool]) -> pa.Array:
    """Return decimals with garbage below nulls, as a slice of a longer array."""
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in (5, *digits, 2**100))
    bitmap = np.packbits([True, *valid, True], bitorder="little").tobytes()
    buffers = [pa.py_buffer(bitmap) if not all(valid) else None, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.decimal128(38, 2), len(digits) + 2, buffers).slice(1, len(digits))


@pytest.mark.parametrize("count", [0, 1, len(WORDS)])
def test_words(count: int) -> None:
    digits = WORDS[:count]
    words = read_unscaled_digits(decimals(digits, [True] * count))
    assert words is not None
    assert words.digits.tolist() == digits
    assert (words.least, words.most) == (min(digits, default=0), max(digits, default=0))
    halves = halves_of(words.digits)
    assert [high << 64 | low & (1 << 64) - 1 for low, high in halves.tolist()] == digits


@pytest.mark.parametrize("digits", [2**63, -(2**63) - 1, 2**64, -(2**64), 10**38 - 1, 1 << 64 | 7])
def test_what_fits_no_word(digits: int) -> None:
    assert read_unscaled_digits(decimals([1, digits, 3], [True] * 3)) is None
    words = read_unscaled_digits(decimals([1, digits, 3], [True, False, True]))
    assert words is not None
    assert words.digits.tolist() == [1, 0, 3] and (words.least, words.most) == (0, 3)


def test_samples() -> None:
    for kind in ("decimal(7,2)", "decimal(18,0)"):
        sample = SAMPLES[kind]
        words = read_unscaled_digits(sample.array(range(len(sample.raw)), [True] * len(sample.raw), before=1))
        assert words is not None and words.digits.tolist() == list(sample.raw)
