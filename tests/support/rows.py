"""Rows of a query as a multiset."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame


def rows_of(df: DataFrame) -> Counter[str]:
    """Return the rows as a multiset of texts. They distinguish null, NaN, -0.0 and decimals of different scales."""
    return Counter(repr(tuple(row)) for row in df.collect())
