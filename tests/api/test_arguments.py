"""Public functions called with wrong arguments: the error is immediate, and shows the right call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from sparkext import asof_join, pipelined_join, scan_parquet, theta_join
from sparkext.errors import InvalidCallError
from sparkext.streams import cql, ordered, stream_asof_join, stream_join

ITEMS = pa.table({"k": [1]})
FACTS = pd.DataFrame({"k": [1]})


@pytest.mark.parametrize(
    ("call", "usage"),
    [
        (lambda: pipelined_join(FACTS, ITEMS), "the left side must be a Spark DataFrame, got pandas.core.frame.Data"),
        (
            lambda: pipelined_join(ITEMS, FACTS, on="k"),
            "the left side must be a Spark DataFrame, got pyarrow.lib.Table",
        ),
        (
            lambda: pipelined_join(FACTS, ITEMS, "k", "inner", "hash"),
            'too many positional arguments. Call it as pipelined_join(left, right, on="key") or left.transform(pipel',
        ),
        (lambda: pipelined_join(), "'other'. Call it as pipelined_join(left, right, on="),
        (
            lambda: pipelined_join(ITEMS, key="k"),
            "unexpected keyword argument 'key'. Call it as pipelined_join(left, r",
        ),
        (lambda: theta_join(FACTS, ITEMS), "'predicate'. Call it as theta_join(left, right, predicate) or left.transf"),
        (lambda: theta_join(FACTS, ITEMS, max), "the left side must be a Spark DataFrame"),
        (lambda: asof_join(FACTS, ITEMS), 'Call it as asof_join(left, right, on="time") or left.transform(asof_join(r'),
        (lambda: asof_join(FACTS, ITEMS, "k"), "the left side must be a Spark DataFrame"),
        (lambda: scan_parquet("/data"), "'path'. Call it as scan_parquet(spark, path, columns="),
        (lambda: stream_join(FACTS, ITEMS, "k"), 'Call it as stream_join(left, right, on=[("price", ">=", "low")])'),
        (lambda: stream_asof_join(FACTS, ITEMS, "k"), 'Call it as stream_asof_join(left, right, on="time") or left.tr'),
        (
            lambda: ordered(FACTS, "k"),
            'Call it as ordered(frame, time="time") or frame.transform(ordered(time="time"))',
        ),
        (lambda: cql("a", "b"), "Call it as cql(text)"),
    ],
)
def test_a_call_that_is_none(call: Callable[[], Any], usage: str) -> None:
    with pytest.raises(InvalidCallError) as raised:
        call()
    assert usage in str(raised.value)


def test_what_is_decorated_keeps_its_name() -> None:
    assert pipelined_join.__name__ == "pipelined_join" and pipelined_join.__doc__
    assert callable(pipelined_join(ITEMS, on="k", partitioned=False))
