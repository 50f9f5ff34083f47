"""Texts of SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Quote a name as Spark's SQL does."""
    return "`" + name.replace("`", "``") + "`"
