"""What a pipeline is, as plain data: joins in order, keys, and where every output column comes from.

A spec is written by the driver, shipped to workers as JSON, and interpreted there.

Sources are numbered: source 0 is the probe side, source k the build side of join k - 1. A column reference names a
source and a column's position in it; a full outer join with USING makes its key column of either side, which
`otherwise` expresses (Spark's `coalesce(left, right)`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sparkext.plans.predicate import Predicate, parse_predicate, render_predicate

SPEC_VERSION = 1
PROBE = 0

JOIN_KINDS = ("inner", "left", "right", "full", "semi", "anti", "existence")
"""`existence` keeps every probe row once; column 0 of its build side's source tells whether the row found a match."""

BUILD_PRESERVING = ("right", "full")
"""Kinds that give out unmatched build rows: only the first join of a pipeline can be one."""


@dataclass(frozen=True)
class ColumnRef:
    """Column number `column` of source number `source`.

    Where that is null, `otherwise` if given; then both are brought to the key type `type` (see `plans.key_types`).
    """

    source: int
    column: int
    otherwise: ColumnRef | None = None
    type: str | None = None

    def __post_init__(self) -> None:
        """Refuse an alternative without a type to meet in."""
        if (self.otherwise is None) != (self.type is None):
            raise ValueError("otherwise and type go together")


@dataclass(frozen=True)
class KeyPair:
    """One equality of a join: a column of the row so far, and a column of the build side.

    Both are compared as `type` (see `plans.key_types`); with `null_safe`, null equals null.
    """

    probe: ColumnRef
    build: int
    type: str
    null_safe: bool


@dataclass(frozen=True)
class JoinSpec:
    """One join. No keys: every probe row matches every build row. `label` is for people.

    `condition` has to hold for a pair beside its keys; it may look at the columns of all sources so far and of the
    build side. Kinds that give out unmatched build rows take none.
    """

    how: str
    keys: tuple[KeyPair, ...]
    algorithm: str
    label: str
    condition: Predicate | None = None

    def __post_init__(self) -> None:
        """Refuse what no operator runs."""
        if self.how not in JOIN_KINDS:
            raise ValueError(f"not a join kind: {self.how!r}")
        if self.condition is not None and self.how in BUILD_PRESERVING:
            raise ValueError(f"a {self.how} join takes no condition beside its keys")


@dataclass(frozen=True)
class PipelineSpec:
    """A chain of joins over one probe side.

    `probe_columns` counts the columns of the probe side. Where the first join preserves build rows, each input batch
    carries two kinds of rows and `owner_columns` leading columns: the first is the build row id that this task owns,
    or null for a probe row; the others only served to bring equal keys to one task. With `owned_by`, it is the number
    of a part instead: the task owns all build rows that have this number in column `owned_by` of the first build side.
    """

    probe_columns: int
    joins: tuple[JoinSpec, ...]
    outputs: tuple[ColumnRef, ...]
    owner_columns: int = 0
    owned_by: int | None = None

    def then(self, join: JoinSpec, outputs: tuple[ColumnRef, ...]) -> PipelineSpec:
        """Return the pipeline with one more join at its end."""
        return replace(self, joins=(*self.joins, join), outputs=outputs)

    def to_json(self) -> str:
        """Serialise; `from_json` reads it back."""
        data = {"version": SPEC_VERSION, **asdict(self)}
        for join, written in zip(self.joins, data["joins"], strict=True):
            written["condition"] = None if join.condition is None else render_predicate(join.condition)
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> PipelineSpec:
        """Read what `to_json` wrote. Raises `ValueError` for another version."""
        data = json.loads(text)
        version = data.pop("version", None)
        if version != SPEC_VERSION:
            raise ValueError(f"pipeline spec of version {version}, expected {SPEC_VERSION}")
        return cls(
            probe_columns=data["probe_columns"],
            joins=tuple(_join(join) for join in data["joins"]),
            outputs=tuple(_reference(output) for output in data["outputs"]),
            owner_columns=data["owner_columns"],
            owned_by=data.get("owned_by"),
        )


def _reference(data: Mapping[str, Any]) -> ColumnRef:
    otherwise = data["otherwise"]
    return ColumnRef(data["source"], data["column"], None if otherwise is None else _reference(otherwise), data["type"])


def _join(data: Mapping[str, Any]) -> JoinSpec:
    keys = tuple(KeyPair(_reference(key["probe"]), key["build"], key["type"], key["null_safe"]) for key in data["keys"])
    condition = data.get("condition")
    return JoinSpec(
        data["how"],
        keys,
        data["algorithm"],
        data["label"],
        None if condition is None else parse_predicate(condition),
    )
