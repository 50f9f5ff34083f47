"""The join names that `DataFrame.join` takes, and the kinds they mean."""

from __future__ import annotations

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


def join_kind(how: str) -> str | None:
    """Return the kind for a name in any case and with any underscores, as Spark reads it; None for an unknown name."""
    return _KINDS.get(how.lower().replace("_", ""))


def join_names() -> str:
    """Return all names, for an error message."""
    return ", ".join(_KINDS)
