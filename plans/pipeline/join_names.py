"""The join names that `DataFrame.join` accepts, and the join kind of each."""

from __future__ import annotations

from collections.abc import Container

_KINDS = {
    "inner": "inner",
    "cross": "inner",
    "left": "left",
    "leftouter": "left",
    "right": "right",
    "rightouter": "right",
    "full": "full",
    "outer": "full",
    "fullouter": "full",
    "semi": "semi",
    "leftsemi": "semi",
    "anti": "anti",
    "leftanti": "anti",
}


def parse_join_kind(how: str) -> str | None:
    """Return the join kind of a name, ignoring case and underscores like Spark; None for an unknown name."""
    return _KINDS.get(how.lower().replace("_", ""))


def join_names(kinds: Container[str] = frozenset(_KINDS.values())) -> str:
    """Return all names of some kinds, for an error message."""
    return ", ".join(name for name, kind in _KINDS.items() if kind in kinds)
