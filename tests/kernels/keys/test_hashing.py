"""Hashes depend only on the content, and differ for different content."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.columns.buffers import VarBytes
from sparkext.kernels.keys.hashing import hash_rows, mix_word
from sparkext.kernels.runtime.jit import JIT_ENABLED, freeze
from tests.support.kernel_inputs import FULL_MASK, examples, seeded

LENGTHS = range(41)


def rows_of(texts: Sequence[bytes], lead: bytes = b"") -> VarBytes:
    """Return the concatenated texts, after `lead`, which shifts them all."""
    offsets = np.cumsum([len(lead), *map(len, texts)]).astype(np.int64)
    return VarBytes(freeze(offsets), freeze(np.frombuffer(lead + b"".join(texts), dtype=np.uint8)))


def hashes(texts: Sequence[bytes], lead: bytes = b"", mask: int = FULL_MASK) -> list[int]:
    hashed = hash_rows(rows_of(texts, lead), mask)
    assert hashed.dtype == np.int64
    assert not hashed.flags.writeable
    return hashed.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("length", LENGTHS)
def test_content_decides_and_not_the_place(length: int) -> None:
    """The hash is the same at every alignment and with any neighbouring bytes."""
    text = bytes((7 * i + 1) % 256 for i in range(length))
    alone = hashes([text])[0]
    for shift in range(9):
        for neighbour in (b"\0", b"\xff"):
            assert hashes([text, neighbour * 9], lead=neighbour * shift)[0] == alone
            assert hashes([neighbour * shift, text, text]) == [*hashes([neighbour * shift]), alone, alone]


@pytest.mark.parametrize("length", [length for length in LENGTHS if length])
def test_every_byte_counts(length: int) -> None:
    text = bytes((7 * i + 1) % 256 for i in range(length))
    changed = [text[:at] + bytes([text[at] ^ (1 << bit)]) + text[at + 1 :] for at in range(length) for bit in range(8)]
    found = hashes([text, *changed])
    assert len(set(found)) == len(found)


def test_zeros_of_every_length_differ() -> None:
    """Bytes after the end are not treated as zeros."""
    found = hashes([b"\0" * length for length in LENGTHS])
    assert len(set(found)) == len(found)


def test_order_of_bytes_and_words_counts() -> None:
    words = [b"aaaaaaaa", b"bbbbbbbb", b"cccccccc", b"dd"]
    texts = [b"".join(order) for order in itertools.permutations(words)]
    found = hashes(texts)
    assert len(set(found)) == len(found)


@given(st.lists(st.binary(max_size=40), unique=True, max_size=60), st.binary(max_size=9))
@examples(60)
def test_differing_texts_differ(texts: list[bytes], lead: bytes) -> None:
    found = hashes(texts, lead)
    assert len(set(found)) == len(texts)


def test_no_collision_among_many_similar_texts() -> None:
    count = 100_000 if JIT_ENABLED else 2_000
    texts = [f"Customer#{number:09d}".encode() for number in range(count)]
    assert len(set(hashes(texts))) == count


@pytest.mark.parametrize("mask", [0, 1, 0xFF, 1 << 63, FULL_MASK])
def test_the_mask_is_applied(mask: int) -> None:
    texts = [bytes([number]) * 3 for number in range(50)]
    for masked, full in zip(hashes(texts, mask=mask), hashes(texts), strict=True):
        assert masked % 2**64 == full % 2**64 & mask


def test_no_rows() -> None:
    assert hashes([]) == []


@pytest.mark.parametrize(
    "words",
    [
        list(range(-500, 500)),
        [number << 40 for number in range(1000)],
        [number * 1000 for number in range(1000)],
        [-(2**63), 2**63 - 1, 0, -1, 1],
        [seeded(number).randint(-(2**63), 2**63 - 1) for number in range(200)],
    ],
)
def test_words_mix_at_both_ends(words: list[int]) -> None:
    """No two words collide (mixing is invertible); the top bits spread over buckets, the low byte over tags."""
    mixed = [int(mix_word(np.int64(word))) for word in words]
    assert all(0 <= value < 2**64 for value in mixed)
    assert len(set(mixed)) == len(words)
    if len(words) >= 1000:
        for part in ([value >> 58 for value in mixed], [value & 63 for value in mixed]):
            fullest = max(part.count(bucket) for bucket in range(64))
            assert fullest < 4 * len(words) / 64


GUARDED = """
import numpy as np
from sparkext.kernels.columns.buffers import VarBytes
from sparkext.kernels.keys.hashing import hash_rows
from sparkext.kernels.runtime.jit import freeze
from tests.support.kernel_inputs import GuardedBytes

for before in (False, True):
    for length in range(41):
        data = GuardedBytes(bytes(length), guard_before=before).array
        hash_rows(VarBytes(freeze(np.array([0, length], dtype=np.int64)), data))
print("alive")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect")
def test_nothing_outside_the_span_is_read(request: pytest.FixtureRequest) -> None:
    ran = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, cwd=request.config.rootpath)
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr
