"""Columns with a watermark: when a stream gets one, Spark marks the column in its metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

MARK = "spark.watermarkDelayMs"


def is_marked(field: StructField) -> bool:
    """Return whether a column has a watermark."""
    return MARK in (field.metadata or {})
