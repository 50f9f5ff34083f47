"""LIKE against regular expressions, and its characters against those that Java decodes."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from sparkext.kernels.values.patterns import match_pattern
from tests.oracle.expressions import like

PATTERNS = ["", "%", "%%", "_", "__", "a", "a%", "%a", "%a%", "a%b", "%a%b%", "a_b", "%_", "_%_", "%_%a", "%ab",
            "%aab%", "\\%", "\\_%", "%\\\\", "ä", "%ä_", "日%", "_😀", "\n%"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    generator = random.Random(f"texts for {pattern}")
    texts = ["".join(generator.choices("aabä%_\\日😀\n", k=generator.randrange(6))) for _ in range(400)]
    for count in (0, 1, len(texts)):
        got = match_pattern(pa.array(["b", *texts], pa.string()).slice(1, count), pattern).tolist()
        assert got == [like(text, pattern) for text in texts[:count]]


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("aä日😀".encode(), 4),
        (b"\x80\xbf", 2),  # no lead bytes
        (b"\xc0\x80", 2),  # an overlong encoding
        (b"\xe0\x80\x80", 3),
        (b"\xe0\xa0", 1),  # truncated
        (b"\xe3\x81a", 2),
        (b"\xed\xa0\x80", 1),  # half of a surrogate pair
        (b"\xf0\x9f\x98", 1),
        (b"\xf0\x8f\xbf\xbf", 4),
        (b"\xf4\x90\x80\x80", 4),  # after the last code point
        (b"\xf5\x80", 2),
        (b"\xf0\x9fa", 2),
    ],
)
def test_bytes_that_are_no_characters(text: bytes, characters: int) -> None:
    texts = pa.array([text], pa.binary())
    assert [match_pattern(texts, "_" * count).tolist()[0] for count in range(1, 6)] == [
        count == characters for count in range(1, 6)
    ]
