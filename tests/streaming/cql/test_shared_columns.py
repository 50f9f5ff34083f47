"""Columns of several streams in one table."""

from __future__ import annotations

from sparkext.streaming.cql.code.shared_columns import SharedColumns


def test_columns_of_a_type_share_a_place_those_of_one_stream_do_not() -> None:
    shared = SharedColumns({"a": ["int", "text", "int"], "b": ["text", "int"], "c": [], "d": ["date", "int", "int"]})
    assert shared.kinds == ["int", "text", "int", "date"]
    assert shared.places == {"a": (0, 1, 2), "b": (1, 0), "c": (), "d": (3, 0, 2)}


def test_no_streams_have_no_columns() -> None:
    assert SharedColumns[str]({}).kinds == []
