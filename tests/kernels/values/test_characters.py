"""Lengths and substrings by characters, against Python's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkext.kernels.values.characters import count_characters, take_substrings
from tests.oracle.expressions import substring
from tests.support.kernel_inputs import SAMPLES

TEXTS = [*SAMPLES["string"].raw, "äöü", "日本語", "a😀b", "😀😀", "x日", "\U0010ffff", "\u07ff\u0800\uffff"]
PLACES = [-(2**31), -41, -3, -2, -1, 0, 1, 2, 3, 41, 2**31 - 1]


def column(wide: bool, count: int) -> pa.Array:
    """Return texts as a slice of a longer array."""
    return pa.array(["ä", *TEXTS, "z"], pa.large_string() if wide else pa.string()).slice(1, count)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("count", [0, 1, len(TEXTS)])
def test_parts_and_lengths(wide: bool, count: int) -> None:
    texts = column(wide, count)
    assert count_characters(texts).tolist() == [len(text) for text in TEXTS[:count]]
    for position in PLACES:
        for length in (-(2**31), -1, 0, 1, 2, 5, 2**31 - 1):
            parts = [part.decode() for part in take_substrings(texts, position, length).to_pylist()]
            assert parts == [substring(text, position, length) for text in TEXTS[:count]], (position, length)


@pytest.mark.parametrize(
    ("text", "length", "last"),
    [
        (b"\xff\xff", 2, b"\xff"),
        (b"a\x80", 2, b"\x80"),
        (b"\xc3", 1, b"\xc3"),  # ends before its second byte
        (b"\xf0\x9f", 1, b"\xf0\x9f"),
        (b"\xe3aab", 2, b"b"),  # a lead byte determines how many bytes are skipped, whatever they are
        (b"\xc0\x80\xf5", 3, b"\xf5"),
    ],
)
def test_bytes_that_are_no_characters(text: bytes, length: int, last: bytes) -> None:
    texts = pa.array([text], pa.binary())
    assert count_characters(texts).tolist() == [length]
    assert take_substrings(texts, -1, 1).to_pylist() == [last]
