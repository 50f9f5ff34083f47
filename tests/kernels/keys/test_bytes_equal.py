"""Comparison of byte spans against Python's comparison of bytes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.keys.bytes_equal import compare_spans, spans_equal
from sparkext.kernels.runtime.jit import freeze
from tests.support.kernel_inputs import examples


def check(left: bytes, right: bytes, left_shift: int = 0, right_shift: int = 0) -> None:
    """Check both comparisons in both directions, with different bytes around each span."""
    a = freeze(np.frombuffer(b"\x01" * left_shift + left + b"\x02" * 9, dtype=np.uint8))
    b = freeze(np.frombuffer(b"\x03" * right_shift + right + b"\x04" * 9, dtype=np.uint8))
    spans = (a, left_shift, left_shift + len(left), b, right_shift, right_shift + len(right))
    assert bool(spans_equal(*spans)) == (left == right)
    assert bool(spans_equal(*spans[3:], *spans[:3])) == (left == right)
    order = (left > right) - (left < right)
    assert compare_spans(*spans) == order
    assert compare_spans(*spans[3:], *spans[:3]) == -order


@given(
    left=st.binary(max_size=40),
    right=st.binary(max_size=40),
    common=st.binary(max_size=20),
    shifts=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
@examples(150)
def test_any_spans(left: bytes, right: bytes, common: bytes, shifts: tuple[int, int]) -> None:
    check(left, right, *shifts)
    check(common + left, common + right, *shifts)
    check(left, left, *shifts)
    check(left, left + right, *shifts)


@pytest.mark.parametrize("length", range(1, 41))
def test_every_position_counts(length: int) -> None:
    text = bytes((11 * i) % 256 for i in range(length))
    for at in range(length):
        for other in {0, 255, text[at] ^ 1, text[at] ^ 128}:
            check(text, text[:at] + bytes([other]) + text[at + 1 :], at % 9, length % 7)
    check(text, text[:-1])
    check(text, text + b"\0")


def test_bytes_are_unsigned_and_compared_from_the_first() -> None:
    """A word that is read in little-endian order would be ordered by its last byte, which is wrong."""
    check(b"\x7f", b"\x80")
    check(b"\x00\xff\xff\xff\xff\xff\xff\xff", b"\x01\x00\x00\x00\x00\x00\x00\x00")
    check(b"12345678\x01\xff\xff\xff\xff\xff\xff\xff", b"12345678\x02\x00\x00\x00\x00\x00\x00\x00")


GUARDED = """
from sparkext.kernels.keys.bytes_equal import compare_spans, spans_equal
from tests.support.kernel_inputs import GuardedBytes

for before in (False, True):
    for length in range(41):
        a = GuardedBytes(bytes(length), guard_before=before).array
        b = GuardedBytes(bytes(length), guard_before=before).array
        assert spans_equal(a, 0, length, b, 0, length)
        assert compare_spans(a, 0, length, b, 0, length) == 0
        assert compare_spans(a, 0, length, b, 0, max(length - 1, 0)) == (length > 0)
print("alive")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect")
def test_nothing_outside_the_spans_is_read(request: pytest.FixtureRequest) -> None:
    ran = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, cwd=request.config.rootpath)
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr
