"""The checksum of blocks: independent of how bytes are split, and different for any other bytes."""

from __future__ import annotations

import numpy as np
import pytest

from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.checksum import Checksum, checksum

SIZES = [0, 1, 7, 8, 63, 64, 65, 127, 128, 200, 1000]
FLIPS = np.random.default_rng(7)


def bytes_of(size: int) -> np.ndarray:
    return freeze(np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8))


@pytest.mark.parametrize("size", SIZES)
def test_pieces_make_no_difference(size: int) -> None:
    data = bytes_of(size)
    expected = checksum(data)
    for piece in (1, 3, 64, 70):
        pieces = Checksum()
        for start in range(0, size, piece):
            pieces.update(data[start : start + piece])
            pieces.digest()  # does not change the state
        assert pieces.digest() == expected


@pytest.mark.parametrize("size", SIZES[1:])
def test_any_flipped_bit_makes_one(size: int) -> None:
    data = bytes_of(size)
    seen = {checksum(data)}
    bits = range(8 * size) if size <= 128 else FLIPS.choice(8 * size, 200, replace=False)
    for bit in bits:
        damaged = data.copy()
        damaged[bit // 8] ^= 1 << (bit % 8)
        seen.add(checksum(freeze(damaged)))
    assert len(seen) == 1 + len(bits)


def test_high_bits_do_not_cancel_out() -> None:
    """Words of one lane are 64 bytes apart: a multiplication alone would preserve only the highest bit of each."""
    data = bytes_of(640)
    for first, second in [(7, 71), (7, 135), (519, 583)]:
        damaged = data.copy()
        damaged[[first, second]] ^= 0x80
        assert checksum(freeze(damaged)) != checksum(data)


def test_zeros_at_the_end_count() -> None:
    assert len({checksum(freeze(np.zeros(size, dtype=np.uint8))) for size in range(200)}) == 200


def test_the_format_stays() -> None:
    """Other processes, with and without the JIT, read the files."""
    assert checksum(freeze(np.arange(200, dtype=np.uint8))) == 0x24F471AD68EA1C3F
