r"""LIKE: `%` matches any text, `_` any character, and a backslash escapes these and itself.

    "%s_n\%"   ──▶   ANY_TEXT  's'  ANY_CHARACTER  'n'  '%'

If the rest of the pattern does not match after the last `%`, this `%` is extended by one more character. Bytes that are
not valid UTF-8 also count as characters, as many as Java decodes them to.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, view_var_bytes
from sparkext.kernels.runtime.jit import freeze, inlined, kernel

Int16Array = npt.NDArray[np.int16]

ANY_CHARACTER, ANY_TEXT = 256, 257


def match_pattern(column: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    """Return bool[n]: whether each text matches; undefined for null rows."""
    texts = view_var_bytes(column)
    out = np.empty(len(column), dtype=np.uint8)
    _match(texts.offsets, texts.data, _parse_pattern(pattern), out)
    return out.view(np.bool_)


@lru_cache(maxsize=16)
def _parse_pattern(pattern: str) -> Int16Array:
    """Return the steps of a pattern, int16: its bytes, `ANY_CHARACTER` and `ANY_TEXT`."""
    steps: list[int] = []
    characters = iter(pattern)
    for character in characters:
        if character == "_":
            steps.append(ANY_CHARACTER)
        elif character == "%":
            if steps[-1:] != [ANY_TEXT]:
                steps.append(ANY_TEXT)
        else:
            steps += (next(characters, "\\") if character == "\\" else character).encode()
    return freeze(np.array(steps, dtype=np.int16))


@kernel
def _match(offsets: Int64Array, data: UInt8Array, steps: Int16Array, out: UInt8Array) -> None:
    """out[i] = whether text i matches."""
    for i in range(out.size):
        out[i] = _is_matching(data, offsets[i], offsets[i + 1], steps)


@inlined
def _is_matching(data: UInt8Array, at: int, end: int, steps: Int16Array) -> bool:
    step = 0
    tried, behind = -1, -1  # the current end of the last ANY_TEXT, and the step after it
    while True:
        if step < steps.size and steps[step] == ANY_TEXT:
            step += 1
            if step == steps.size:
                return True
            tried, behind = at, step
        elif step < steps.size and at < end and steps[step] == ANY_CHARACTER:
            at += _count_decoded_bytes(data, at, end)
            step += 1
        elif step < steps.size and at < end and data[at] == steps[step]:
            at += 1
            step += 1
        elif step == steps.size and at == end:
            return True
        elif behind < 0 or tried >= end:
            return False
        else:
            first = steps[behind]
            if first == ANY_CHARACTER:
                tried += _count_decoded_bytes(data, tried, end)
            else:
                # A byte that begins a character in the pattern also begins a character in every text.
                tried += 1
                while tried < end and data[tried] != first:
                    tried += 1
            at, step = tried, behind


@inlined
def _count_decoded_bytes(data: UInt8Array, at: int, end: int) -> int:
    """Return the number of bytes from `at` on that Java decodes to one character.

    Of invalid bytes, it decodes the longest prefix of a valid character to one character.
    """
    first = data[at]
    if first < 0xC2 or first > 0xF4 or at + 1 >= end:
        return 1
    second = data[at + 1]
    if second & 0xC0 != 0x80:
        return 1
    if first < 0xE0:
        return 2
    if first < 0xF0:
        if first == 0xE0 and second < 0xA0:
            return 1
        # Java replaces half of a surrogate pair, which is not a valid character, by one character.
        return 3 if at + 2 < end and data[at + 2] & 0xC0 == 0x80 else 2
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 1
    if at + 2 >= end or data[at + 2] & 0xC0 != 0x80:
        return 2
    return 4 if at + 3 < end and data[at + 3] & 0xC0 == 0x80 else 3
