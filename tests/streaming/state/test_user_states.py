"""States of functions are restored exactly, refused with the path of the problem, and never unpickled."""

from __future__ import annotations

import math
import os
import pickle
import random
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.errors import OperatorError, StateError
from sparkext.streaming.ordered import key_states
from sparkext.streaming.ordered.function_operator import FunctionOperator
from sparkext.streaming.state.places import LocalLocation
from sparkext.streaming.state.segments import read_metadata, read_segment, write_segment
from sparkext.streaming.state.user_states import (
    MOST_BITS,
    MOST_LEVELS,
    UnstorableStateError,
    decode_state,
    encode_state,
)
from tests.streaming.order_tasks import OrderedQuery
from tests.streaming.ordered.test_order_tasks import COUNTING, START, counting, ordered
from tests.streaming.tasks import on_a_node
from tests.support.times import micros


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


TABLE = pa.table({"a": [1, None], "b": pa.array(["x", "y"]).dictionary_encode()}, metadata={"k": "v"})
STORED: list[Any] = [
    b"",
    b"p\x80\x04",
    "",
    'a\n"\\ä\u2028😀',
    "\ud83d\ude00",  # two surrogates, which are not a character
    0,
    -(1 << 70),
    (1 << MOST_BITS) - 1,
    True,
    0.0,
    -0.0,
    5e-324,
    0.1,
    1e300,
    math.inf,
    -math.inf,
    [],
    {},
    {"": None, "b": [1, 1.0, True, "1"], "a": {"": [{}]}},
    nested(MOST_LEVELS),
]


def same(one: Any, two: Any) -> bool:
    """Return whether two values are equal, with equal types at all positions."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return [*one] == [*two] and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(two)) or (one == two and math.copysign(1, one) == math.copysign(1, two))
    return bool(one == two)


@pytest.mark.parametrize("state", [*STORED, math.nan, {"a": [math.nan]}], ids=lambda state: repr(state)[:20])
@pytest.mark.parametrize("pickles", [False, True])
def test_a_state_is_read_back(state: Any, pickles: bool) -> None:
    stored = encode_state(state, pickles)
    assert stored.startswith(b"p") == pickles
    assert same(decode_state(stored, pickles), state)
    assert same(decode_state(encode_state(state, False), True), state), "one from before the option was given"


@pytest.mark.parametrize("state", [TABLE, TABLE[:0], TABLE.to_batches()[0], pa.table({})])
def test_an_arrow_state_is_read_back(state: Any) -> None:
    found = decode_state(encode_state(state, False), False)
    assert type(found) is type(state) and found.equals(state, check_metadata=True)


class Text(str):
    pass


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"positions": [1, 2, 3, (4, 5)]}, "state['positions'][3]: tuple"),
        ((1, 2), "state: tuple"),
        ([{"a": {1: 2}}], "state[0]['a']: dict with the key 1 of type int"),
        ({"a": Decimal("1.5")}, "state['a']: decimal.Decimal"),
        ([datetime(2026, 1, 1)], "state[0]: datetime.datetime"),
        ({1, 2}, "state: set"),
        ([np.float64(1)], "state[0]: numpy.float64"),
        ([np.int32(1)], "state[0]: numpy.int32"),
        ({"a": bytearray(b"x")}, "state['a']: bytearray"),
        ({"a": b"x"}, "state['a']: bytes"),
        ({"a": TABLE}, "state['a']: pyarrow.lib.Table"),
        (defaultdict(int), "state: collections.defaultdict"),
        (OrderedDict(a=1), "state: collections.OrderedDict"),
        ([Text("a")], "state[0]: tests.streaming.state.test_user_states.Text"),
        ({Text("a"): 1}, "state: dict with the key 'a' of type tests.streaming.state.test_user_states.Text"),
        ([1 << MOST_BITS], f"state[0]: int of more than {MOST_BITS} bits"),
        (nested(MOST_LEVELS + 1), f"state{'[0]' * MOST_LEVELS}: list on level 101, expected at most 100 levels"),
        (object(), "state: object"),
    ],
)
def test_a_state_that_is_refused(state: Any, problem: str) -> None:
    with pytest.raises(UnstorableStateError) as raised:
        encode_state(state, False)
    assert str(raised.value) == problem


def test_a_state_that_contains_itself() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(UnstorableStateError, match=r"\[0\]: list on level"):
        encode_state(state, False)


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"x1",
        b"j",
        b"j{",
        b"j\xff",
        b"j" + b"[" * 100_000,
        b"t",
        b"tARROW",
        encode_state(TABLE, False)[:-400],
    ],
)
def test_a_damaged_state(stored: bytes) -> None:
    with pytest.raises(StateError, match="the state of a key"):
        decode_state(stored, True)


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OrderedQuery:
    """Return a query that counts the rows of each sensor."""
    (tmp_path / "node").mkdir()
    on_a_node(tmp_path / "node", monkeypatch, 2)
    return OrderedQuery(ordered(1, operator=COUNTING), tmp_path / "cp", random.Random(1))


def batches(query: OrderedQuery, count: int) -> Iterator[list[Any]]:
    """Process batches of one row, each of which is final at once; yield the rows that they emit."""
    for _ in range(count):
        at = START + timedelta(seconds=query.batch)
        query.watermark = micros(at)
        yield [row for partition in query.process([[("a", 1, at, query.batch)]]) for row in partition]


def test_what_a_function_returns_is_refused_at_once(query: OrderedQuery) -> None:
    def moving(rows: pa.Table, state: list[int]) -> Any:
        return counting(rows, state)[0], {"seen": [state[0], ("a", 1)]}

    query.restart(operator=FunctionOperator(moving, COUNTING.initial))
    with pytest.raises(OperatorError, match=r"state\['seen'\]\[1\]: tuple.*Expected bytes, an Arrow table"):
        [*batches(query, 1)]


def test_pickles_by_an_option(query: OrderedQuery) -> None:
    """With the option, states of any type work, as do states stored before. Without it, stored pickles are refused."""

    def counted(rows: pa.Table, state: Any) -> Any:
        return counting(rows, [*state])[0], (state[0] + rows.num_rows,)

    assert [row[3] for rows in batches(query, 2) for row in rows] == [0, 1]
    query.restart(operator=FunctionOperator(counted, COUNTING.initial, pickles=True))
    assert [row[3] for rows in batches(query, 3) for row in rows] == [2, 3, 4]
    query.restart(operator=COUNTING)
    with pytest.raises(StateError, match="is a pickle, which may run any code"):
        [*batches(query, 1)]


class Planted:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("form", [b"", b"p", b"j", b"t"])
def test_a_pickle_in_a_segment_is_not_read(query: OrderedQuery, tmp_path: Path, form: bytes) -> None:
    assert [row[3] for rows in batches(query, 2) for row in rows] == [0, 1]
    planted = form + pickle.dumps(Planted(tmp_path / "executed"))
    for file in (tmp_path / "cp" / "sparkext" / "order" / "states").rglob("*.segment"):
        replace_states(LocalLocation(file), planted)
    query.restart()
    with pytest.raises(StateError, match="the state of a key"):
        [*batches(query, 1)]
    assert not (tmp_path / "executed").exists()
    with pytest.raises(FileExistsError):  # the pickle would have run
        (tmp_path / "executed").mkdir()
        pickle.loads(planted[len(form) :])


def replace_states(place: LocalLocation, state: bytes) -> None:
    """Rewrite a segment, complete and with valid checksums, with another state in each row."""
    told = read_metadata(place)
    found = pa.Table.from_batches(read_segment(place), ordered(1, operator=COUNTING).states.schema)
    at = found.schema.get_field_index("state")
    found = found.set_column(at, found.schema.field(at), pa.array([state] * found.num_rows, pa.binary()))
    more = {name: value for name, value in told.items() if name not in ("info", "state", "rows", "blocks")}
    write_segment(place, found.schema, found.combine_chunks().to_batches(), lambda: told["info"], **more)


def test_a_state_that_no_value_holds(query: OrderedQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_states, "MAX_VAR_BYTES", 100)
    large = FunctionOperator(lambda rows, state: (counting(rows, [0])[0], b"x" * 100), COUNTING.initial)
    query.restart(operator=large)
    with pytest.raises(StateError, match="has 101 bytes: at most 100 can be stored"):
        [*batches(query, 1)]
