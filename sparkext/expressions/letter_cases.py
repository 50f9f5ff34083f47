"""Strings in upper or lower case: ASCII letters by Arrow, other letters by the tables in the expression.

    "ß" + "SS", "ä" + "Ä", ...        one letter per line, followed by its replacement

A capital sigma has another lower-case letter at the end of a word, that is, if a cased letter precedes it and none
follows. For `lower`, the expression also contains the cased letters, and the letters to skip between them, as ranges.
In strings that are not ASCII, invalid bytes are replaced first, as in Spark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkext.expressions.text_functions import array_of
from sparkext.expressions.vectors import Vector
from sparkext.plans.expressions.expression import Expression

_SIGMA, _LAST_SIGMA = "\u03a3", "\u03c2"
_ASCII: dict[str, Any] = {"upper": pc.ascii_upper, "lower": pc.ascii_lower}


def change_case(node: Expression, operand: Vector) -> Vector:
    """Return strings in upper or lower case."""
    array = array_of(operand)
    texts = array.cast(pa.large_binary()).view(pa.large_string())
    result = _ASCII[node.op](texts).view(pa.large_binary())
    is_not_ascii = pc.invert(pc.string_is_ascii(texts)).fill_null(False)
    if pc.any(is_not_ascii).as_py():
        letters = _parse_letters(node.op, node.args[1].text or "")
        distinct = texts.view(pa.large_binary()).filter(is_not_ascii).dictionary_encode()
        changed = [
            letters.changed(text.decode("utf-8", "replace")).encode() for text in distinct.dictionary.to_pylist()
        ]
        result = pc.replace_with_mask(result, is_not_ascii, pa.array(changed, pa.large_binary()).take(distinct.indices))
    result = result.cast(array.type)
    return Vector(result[0] if operand.is_constant else result, operand.known, operand.failed)


class _Ranges:
    """A set of characters, as the first and the last character of each range."""

    def __init__(self, ends: str) -> None:
        self._firsts, self._lasts = ends[::2], ends[1::2]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, character: str) -> bool:
        position = bisect_right(self._firsts, character) - 1
        return position >= 0 and character <= self._lasts[position]


@dataclass(frozen=True)
class _Letters:
    """Replacements of letters; `cased` and `ignored` are empty if sigma needs no special treatment."""

    table: Mapping[int, str]
    cased: _Ranges
    ignored: _Ranges

    def changed(self, text: str) -> str:
        """Return a string in the other case."""
        if self.cased and _SIGMA in text:
            text = "".join(
                _LAST_SIGMA if letter == _SIGMA and self._is_last(text, position) else letter
                for position, letter in enumerate(text)
            )
        return text.translate(self.table)

    def _is_last(self, text: str, position: int) -> bool:
        return self._meets_case(reversed(text[:position])) and not self._meets_case(text[position + 1 :])

    def _meets_case(self, letters: Iterable[str]) -> bool:
        return next((letter in self.cased for letter in letters if letter not in self.ignored), False)


@lru_cache(maxsize=4)
def _parse_letters(op: str, text: str) -> _Letters:
    lines, *ranges = text.split("\n\n")
    ascii_letters = map(chr, range(0x80))
    table = {ord(letter): letter.upper() if op == "upper" else letter.lower() for letter in ascii_letters}
    table.update((ord(line[0]), line[1:]) for line in lines.split("\n") if line)
    cased, ignored = ranges or ("", "")
    return _Letters(table, _Ranges(cased), _Ranges(ignored))
