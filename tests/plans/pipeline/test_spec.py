"""The pipeline spec as data: it is read from JSON, survives pickling, and no spec is accepted that cannot run."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.pipeline.spec import JOIN_KINDS, SPEC_VERSION, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.plans.pipeline.top import MOST_TOP_ROWS, OrderColumn, Top

plain = st.builds(ColumnRef, st.integers(0, 5), st.integers(0, 50))
references = plain | st.builds(ColumnRef, st.integers(0, 5), st.integers(0, 50), plain, st.just("int64"))
keys = st.builds(KeyPair, references, st.integers(0, 9), st.sampled_from(["int64", "decimal(9,2)"]), st.booleans())
joins = st.builds(
    JoinSpec, st.sampled_from(JOIN_KINDS), st.lists(keys, max_size=3).map(tuple), st.just("auto"), st.text()
)

orders = st.builds(OrderColumn, st.just(0), st.booleans(), st.booleans())
tops = st.builds(Top, st.integers(1, MOST_TOP_ROWS), st.lists(orders, min_size=1, max_size=3).map(tuple))


def written(spec: PipelineSpec) -> dict[str, Any]:
    """Return the JSON form of a spec without expressions."""
    data: dict[str, Any] = json.loads(json.dumps({"version": SPEC_VERSION, **asdict(spec)}))
    return data


@given(st.integers(0, 99), st.lists(joins, max_size=4).map(tuple), st.lists(references).map(tuple), st.integers(0, 3))
def test_round_trips(columns: int, chain: tuple[JoinSpec, ...], outputs: tuple[ColumnRef, ...], owners: int) -> None:
    spec = PipelineSpec(columns, chain, outputs, owners)
    assert PipelineSpec.from_data(written(spec)) == spec
    sent = pickle.loads(pickle.dumps(spec))
    assert (sent, hash(sent)) == (spec, hash(spec))


@given(tops)
def test_json_round_trip_of_first_rows(top: Top) -> None:
    spec = PipelineSpec(1, (), (ColumnRef(0, 0),), top=top)
    assert PipelineSpec.from_data(written(spec)) == spec


def test_first_rows_that_mean_nothing_are_refused() -> None:
    by = OrderColumn(0, True, True)
    for count in (0, MOST_TOP_ROWS + 1):
        with pytest.raises(ValueError, match=f"rows to be kept, got {count}"):
            Top(count, (by,))
    with pytest.raises(ValueError, match="columns to order by"):
        Top(1, ())
    for number in (-1, 1):
        with pytest.raises(ValueError, match="rows of 1 columns cannot be ordered"):
            PipelineSpec(1, (), (ColumnRef(0, 0),), top=Top(1, (by, OrderColumn(number, True, True))))


def test_another_version_is_refused() -> None:
    data = written(PipelineSpec(1, (), ()))
    for version in (None, SPEC_VERSION + 1):
        with pytest.raises(ValueError, match="version"):
            PipelineSpec.from_data({**data, "version": version})


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="sideways"):
        JoinSpec("sideways", (), "auto", "")


def test_an_alternative_needs_a_type() -> None:
    with pytest.raises(ValueError, match="otherwise"):
        ColumnRef(0, 0, ColumnRef(1, 0))


def test_then_appends() -> None:
    join = JoinSpec("inner", (), "auto", "cross")
    outputs = (ColumnRef(1, 0),)
    spec = PipelineSpec(2, (), (ColumnRef(0, 0),)).then(join, outputs).then(join, outputs)
    assert spec == PipelineSpec(2, (join, join), outputs)
