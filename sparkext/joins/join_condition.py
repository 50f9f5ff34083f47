"""The argument `on` of a join: column names, pairs of names, and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkext.plans.pipeline.spec import BUILD_PRESERVING, RANGE_OPERATORS
from sparkext.spark.frames import is_column

NULL_SAFE = "<=>"
_EQUAL = ("=", "==")


@dataclass(frozen=True)
class NamedPair:
    """One equality as the caller named it."""

    left: str
    right: str
    null_safe: bool


@dataclass(frozen=True)
class NamedRange:
    """One comparison as the caller named it: `left op right`."""

    left: str
    op: str
    right: str


@dataclass(frozen=True)
class JoinCondition:
    """The parsed `on`. With `using`, each pair gives one output column, as in `DataFrame.join(other, "key")`."""

    pairs: tuple[NamedPair, ...]
    using: bool
    ranges: tuple[NamedRange, ...] = ()

    @property
    def names(self) -> list[tuple[str, str]]:
        """The left and the right column of every pair and every range."""
        return [(pair.left, pair.right) for pair in self.pairs] + [(end.left, end.right) for end in self.ranges]


def read_condition(on: Any, kind: str | None, how: object, problems: list[str]) -> JoinCondition | None:
    """Parse `on`: a name, a list of names, or a list of (left, right) or (left, operator, right).

    Return None if `problems` got longer.
    """
    if on is None:
        if str(how).lower() == "cross":
            return JoinCondition((), using=False)
        problems.append("on is missing: name the key columns (only how='cross' needs no keys)")
        return None
    items = [on] if isinstance(on, str) else on
    if not isinstance(items, (list, tuple)):
        problems.append(_describe_wrong_item(on))
        return None
    if not items:
        problems.append("on is empty: name at least one key column, or use how='cross' without on")
        return None
    if all(isinstance(item, str) for item in items):
        return JoinCondition(tuple(NamedPair(item, item, null_safe=False) for item in items), using=True)
    parts = [_read_item(item) for item in items]
    if None in parts:
        problems.extend(_describe_wrong_item(item) for item, part in zip(items, parts, strict=True) if part is None)
        return None
    pairs = tuple(part for part in parts if isinstance(part, NamedPair))
    ranges = tuple(part for part in parts if isinstance(part, NamedRange))
    if ranges and not pairs and kind in BUILD_PRESERVING:
        problems.append(f"a {kind} join on comparisons needs an equality as well: add it to on, or exchange the sides")
        return None
    return JoinCondition(pairs, using=False, ranges=ranges)


def _read_item(item: Any) -> NamedPair | NamedRange | None:
    if not isinstance(item, tuple) or not all(isinstance(part, str) for part in item):
        return None
    if len(item) == 2:
        return NamedPair(item[0], item[1], null_safe=False)
    if len(item) != 3:
        return None
    left, op, right = item
    if op in RANGE_OPERATORS:
        return NamedRange(left, op, right)
    return NamedPair(left, right, null_safe=op == NULL_SAFE) if op == NULL_SAFE or op in _EQUAL else None


def _describe_wrong_item(item: Any) -> str:
    if is_column(item):
        return (
            f"on holds the Column {item}: conditions on Columns need the session extension (sparkext.configure)."
            " Without it, name the columns, as in on=[('left_name', 'right_name')]"
        )
    return (
        f"on holds {item!r}: expected a column name, a list of names, or a list of (left, right) or"
        " (left, operator, right) tuples of names, where the operator is one of =, <=>, <, <=, >, >="
    )
