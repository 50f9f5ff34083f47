"""Errors in a CQL text, with their positions."""

from __future__ import annotations

from collections.abc import Sequence

from sparkext.streaming.cql.language.syntax import Position


class CqlProblems(ValueError):
    """Lists every problem of a text with its position."""

    def __init__(self, problems: Sequence[tuple[Position | None, str]]) -> None:
        self.problems = tuple(text if at is None else f"{at}: {text}" for at, text in problems)
        super().__init__("\n".join(self.problems))
