"""The texts in Scala sources: comments, and string literals with placeholders for interpolated values.

A small scanner, not a parser: it recognises comments, characters, plain, interpolated and triple-quoted strings, and
code within `${…}`, which may contain strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

OPEN = "…"
"""The placeholder of an interpolated value."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_CHARACTER = re.compile(r"'(\\u[0-9a-fA-F]{4}|\\.|[^\\'\n])'")
_FORMAT = re.compile(r"%[-\d.]*[a-z]")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def texts(source: str) -> list[str]:
    """Return the strings of a source in order. `+` joins strings to one; strings within `${…}` are left out."""
    found: list[str] = []
    end = None
    for start, stop, text in _literals(source):
        if end is not None and source[end:start].strip() == "+":
            found[-1] += text
        else:
            found.append(text)
        end = stop
    return found


def sentences(path: Path) -> list[str]:
    """Return the distinct texts of a file for readers: single lines of more than one word."""
    spoken = [text for text in texts(path.read_text(encoding="utf-8")) if re.search(r"[a-z…] [a-z…]", text)]
    return list(dict.fromkeys(text for text in spoken if "\n" not in text))


def comments(source: str) -> list[str]:
    """Return the comments of a source in order, as written."""
    return [text for is_comment, _, _, text in _scanned(source) if is_comment]


def _literals(source: str) -> Iterator[tuple[int, int, str]]:
    return ((start, stop, text) for is_comment, start, stop, text in _scanned(source) if not is_comment)


def _scanned(source: str) -> Iterator[tuple[bool, int, int, str]]:
    """Yield (whether it is a comment, start, end, text) of each comment and string."""
    at = 0
    while at < len(source):
        if source.startswith(("//", "/*"), at):
            stop = _index(source, "\n", at) if source[at + 1] == "/" else _index(source, "*/", at) + 2
            yield True, at, stop, source[at:stop]
            at = stop
        elif source[at] == "'" and (character := _CHARACTER.match(source, at)):
            at = character.end()
        elif source[at] == '"':
            interpolated = (
                source[at - 1 : at] if at and source[at - 1] in "sf" and not _continues_name(source, at - 1) else ""
            )
            stop, text = _literal(source, at, interpolated)
            yield False, at - len(interpolated), stop, text
            at = stop
        else:
            at += 1


def _continues_name(source: str, at: int) -> bool:
    return at > 0 and (source[at - 1].isalnum() or source[at - 1] == "_")


def _index(source: str, wanted: str, at: int) -> int:
    found = source.find(wanted, at)
    return len(source) if found < 0 else found


def _literal(source: str, at: int, interpolated: str) -> tuple[int, str]:
    """Return the end of the string that begins at `at`, and its text."""
    quote = '"""' if source.startswith('"""', at) else '"'
    at += len(quote)
    text = ""
    while not source.startswith(quote, at):
        if source[at] == "\\" and quote == '"':
            text += _ESCAPES.get(source[at + 1], source[at + 1])
            at += 2
        elif interpolated and source[at] == "$":
            at = _skip_value(source, at + 1)
            if interpolated == "f" and (form := _FORMAT.match(source, at)):
                at = form.end()
            text += OPEN
        else:
            text += source[at]
            at += 1
    return at + len(quote), text


def _skip_value(source: str, at: int) -> int:
    """Return the end of the interpolated name, or code in braces, that begins at `at`."""
    if source[at] != "{":
        name = _NAME.match(source, at)
        assert name is not None, source[at : at + 40]
        return name.end()
    depth = 0
    while True:
        if source[at] == '"':
            interpolated = source[at - 1] if source[at - 1] in "sf" and not _continues_name(source, at - 1) else ""
            at, _ = _literal(source, at, interpolated)
            continue
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
        if not depth:
            return at
