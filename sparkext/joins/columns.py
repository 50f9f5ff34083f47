"""Columns: resolution by name, common types for comparison, and checks of the result's names.

Problems are collected, not raised, so that a caller sees all of them at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkext.plans.expressions.key_types import KeyType, common_key_type
from sparkext.plans.pipeline.spec import ColumnRef
from sparkext.rows.types import spark_key_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


@dataclass(frozen=True)
class OutputField:
    """A column of the pipeline's result so far: its declaration, and the source of its values."""

    field: StructField
    ref: ColumnRef


@dataclass(frozen=True)
class JoinInputs:
    """The columns of both sides of a join. `source` is the index of the right side among the pipeline's sources."""

    left: Sequence[OutputField]
    right: Sequence[StructField]
    source: int
    algorithm: str
    case_sensitive: bool

    def resolve(self, left: str, right: str, problems: list[str]) -> tuple[int | None, int | None]:
        """Return the positions of a left and of a right column, None for a column after adding to `problems`."""
        return (
            resolve_column(left, [out.field for out in self.left], "left", self.case_sensitive, problems),
            resolve_column(right, self.right, "right", self.case_sensitive, problems),
        )

    def find_type(self, left: int, right: int, problems: list[str]) -> KeyType | None:
        """Return the type in which two columns are compared, or None after adding to `problems`."""
        return find_common_type(self.left[left].field, self.right[right], problems)

    def right_outputs(self, nullable: bool) -> list[OutputField]:
        """Return all right columns, declared nullable if `nullable`."""
        return [
            as_nullable(OutputField(field, ColumnRef(self.source, position)), nullable)
            for position, field in enumerate(self.right)
        ]


def resolve_column(
    name: str, fields: Sequence[StructField], side: str, case_sensitive: bool, problems: list[str]
) -> int | None:
    """Return the position of the only column called `name`, or None after adding to `problems`."""
    matches = [i for i, field in enumerate(fields) if _is_same_name(field.name, name, case_sensitive)]
    if len(matches) == 1:
        return matches[0]
    available = [field.name for field in fields]
    if matches:
        problems.append(
            f"{side} column {name!r} is ambiguous: {', '.join(repr(available[i]) for i in matches)} all match."
            " Rename or drop all but one"
        )
    else:
        close = difflib.get_close_matches(name, available, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        problems.append(f"{side} column {name!r} does not exist{hint} Available: {', '.join(available) or 'none'}")
    return None


def _is_same_name(first: str, second: str, case_sensitive: bool) -> bool:
    return first == second or (not case_sensitive and first.lower() == second.lower())


def find_common_type(left: StructField, right: StructField, problems: list[str]) -> KeyType | None:
    """Return the type in which two columns are compared, or None after adding to `problems`."""
    types = []
    for side, field in (("left", left), ("right", right)):
        key_type = spark_key_type(field)
        if key_type is None:
            problems.append(
                f"{side} column {field.name!r} of type {field.dataType.simpleString()} cannot be a join key:"
                " expected integers, floats, decimals, booleans, dates, timestamps, binary-collated strings or binary."
                " Use Spark's own join"
            )
        types.append(key_type)
    if types[0] is None or types[1] is None:
        return None
    common = common_key_type(types[0], types[1])
    if common is None:
        problems.append(
            f"left column {left.name!r} ({left.dataType.simpleString()}) and right column {right.name!r}"
            f" ({right.dataType.simpleString()}) have no common type that represents every value: cast one column"
        )
    return common


def as_nullable(output: OutputField, outer: bool) -> OutputField:
    """Return the column, declared nullable if `outer`."""
    if not outer or output.field.nullable:
        return output
    from pyspark.sql.types import StructField

    field = output.field
    return replace(output, field=StructField(field.name, field.dataType, True, field.metadata))


def check_names(outputs: Iterable[OutputField], case_sensitive: bool, problems: list[str]) -> None:
    """Add to `problems` if two columns of the result have the same name."""
    seen: dict[str, str] = {}
    repeated = []
    for output in outputs:
        name = output.field.name
        folded = name if case_sensitive else name.lower()
        if folded in seen:
            repeated.append(name)
        seen[folded] = name
    if repeated:
        problems.append(
            f"the result would have more than one column named {', '.join(map(repr, dict.fromkeys(repeated)))}:"
            " rename or drop them on one side, or name shared keys in on (on='key' keeps one of them)"
        )
