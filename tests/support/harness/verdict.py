"""The comparison of a case with its reference."""

from __future__ import annotations

from typing import Protocol


class Verdict(Protocol):
    """A difference: its kind and a description, both empty if there is none."""

    kind: str
    told: str

    @property
    def origin(self) -> str:
        """The part of an error that is independent of rows; empty if the difference is no error."""
        ...
