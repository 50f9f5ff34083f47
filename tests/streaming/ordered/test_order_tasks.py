"""The tasks of `ordered`: rows are emitted in order, and are the same for any batch sizes and partitions."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.config import read_settings
from sparkext.errors import OperatorError, StateError
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.plans.streams import order_table
from sparkext.plans.streams.order_table import BUCKETS, create_first_table
from sparkext.rows.time_order import TimeOrder
from sparkext.shuffle.partitioning import Partitioning
from sparkext.streaming.ordered.description import BUCKET_FIELDS, KeyedOperator, OrderedRows
from sparkext.streaming.ordered.function_operator import FunctionOperator
from sparkext.streaming.ordered.partition import RowsInOrder
from sparkext.streaming.state.stream_state import StoredSide
from sparkext.streaming.state.user_states import encode_state
from tests.streaming.order_tasks import OrderedQuery, table_of
from tests.streaming.tasks import Rows, on_a_node
from tests.support.times import micros

START = datetime(2026, 1, 1)
DEVICE, SENSOR, AT, N = range(4)
SCHEMA = pa.schema([("device", pa.string()), ("sensor", pa.int64()), ("at", pa.timestamp("us")), ("n", pa.int64())])
RESULT = pa.schema([("at", pa.timestamp("us")), ("sensor", pa.int64()), ("n", pa.int64()), ("before", pa.int64())])


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").mkdir()
    on_a_node(tmp_path / "node", monkeypatch, 2)
    monkeypatch.setattr(order_table, "_LEAST_ROWS", 50)


def ordered(
    partitions: int, way: str = "planned", operator: KeyedOperator | None = None, ties: int | None = N
) -> OrderedRows:
    keys = [
        Partitioning((column,), (SCHEMA.types[column],), (True,), RoutingTable(BUCKETS, 1), False, 0xFFFFFFFFFFFFFFFF)
        for column in (DEVICE, SENSOR)
    ]
    order = TimeOrder(len(SCHEMA), AT, ties)
    result = SCHEMA if operator is None else RESULT
    return OrderedRows(
        name="order",
        is_named=True,
        made_by="test",
        token="run 0",
        is_stream=True,
        rows=StoredSide(pa.schema([*SCHEMA, *BUCKET_FIELDS]), AT, 0),
        order_keys=keys[DEVICE],
        operator_keys=keys[SENSOR],
        key_types=("string", "int64"),
        user_columns=tuple(SCHEMA.names),
        order=order,
        operator=operator,
        result_schema=result,
        result_order=order if operator is None else TimeOrder(len(result), 0, rank=len(result)),
        partitions=partitions,
        table=create_first_table(partitions),
        splits=True,
        keeps_late=True,
        settings=read_settings(lambda key: None, {"spark.sparkext.debug.partitions": way}),
        tasks_sharing=None,
    )


def counting(rows: pa.Table, state: list[int]) -> tuple[pa.Table, list[int]]:
    """Append the number of previous rows of the sensor to each row."""
    before = pa.array(range(state[0], state[0] + rows.num_rows))
    made = pa.table([rows["at"], rows["sensor"], rows["n"], before], names=RESULT.names)
    return made, [state[0] + rows.num_rows]


COUNTING = FunctionOperator(counting, encode_state([0], pickles=False))


def made_rows(draw: random.Random, count: int, since: int, numbers: Any) -> Rows:
    """Return random rows. Half of them are of one device, which has many sensors."""
    rows = []
    for _ in range(count):
        device = draw.choice(["hot", "hot", "hot", "a", "b", None])
        sensor = draw.randrange(40) if device == "hot" else draw.randrange(3)
        rows.append((device, sensor, START + timedelta(seconds=since + draw.randrange(20)), next(numbers)))
    return rows


def played(query: OrderedQuery, draw: random.Random, batches: int, partitions: tuple[int, ...] = ()) -> Rows:
    """Process some batches until all rows are emitted; return the rows that were not late."""
    numbers, known = iter(range(10**9)), list[tuple[Any, ...]]()
    for number in range(batches):
        if partitions and number % 3 == 2:
            query.restart(draw.choice(partitions), splits=draw.random() < 0.7)
        rows = made_rows(draw, draw.choice([0, 1, 30, 120]), number * 5, numbers)
        before = query.watermark
        query.watermark = max(before, micros(START + timedelta(seconds=number * 5 - 10)))
        parts = [rows[at::3] for at in range(3)]
        if draw.random() < 0.3:
            query.attempt(parts)
        query.process(parts)
        late = [row for row in rows if micros(row[AT]) <= before]
        assert Counter(query.late) == Counter(late) and query.progress["late_rows"] == len(late)
        known += [row for row in rows if row not in late]
    query.watermark = micros(START + timedelta(days=1))
    query.process([[]])
    query.process([[]])
    return known


def emitted(query: OrderedQuery) -> dict[Any, Rows]:
    """Return the emitted rows of each device, batch by batch, and assert that each batch has them in one partition."""
    found: dict[Any, Rows] = defaultdict(list)
    for batch in query.emitted:
        where: dict[Any, int] = {}
        for number, partition in enumerate(batch):
            for row in partition:
                assert where.setdefault(row[DEVICE], number) == number
                found[row[DEVICE]].append(row)
    return found


@pytest.mark.reduced("values", reason="eight seconds each; a way of drawing tables does not depend on their partitions")
@pytest.mark.parametrize("way", ["planned", "hash", "random"])
@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_each_device_is_in_order(tmp_path: Path, way: str, partitions: int) -> None:
    draw = random.Random(f"{way} {partitions}")
    query = OrderedQuery(ordered(partitions, way), tmp_path / "cp", draw)
    known = played(query, draw, 12, (1, 2, 3) if partitions == 2 else ())
    found = emitted(query)
    for device in {row[DEVICE] for row in known}:
        own = [row for row in known if row[DEVICE] == device]
        assert found.pop(device) == sorted(own, key=lambda row: (row[AT], row[N]))
    assert not found
    assert query.progress["state_rows"] == 0


@pytest.mark.parametrize("way", ["planned", "random"])
def test_an_operator_sees_each_sensor_in_order(tmp_path: Path, way: str) -> None:
    draw = random.Random(way)
    query = OrderedQuery(ordered(3, way, COUNTING), tmp_path / "cp", draw)
    known = played(query, draw, 14, (2, 3))
    sensors: dict[Any, Rows] = defaultdict(list)
    for row in sorted(known, key=lambda row: (row[AT], row[N])):
        sensors[row[DEVICE], row[SENSOR]].append(row)
    expected = Counter(
        (row[AT], row[SENSOR], row[N], before) for own in sensors.values() for before, row in enumerate(own)
    )
    out = [row for batch in query.emitted for partition in batch for row in partition]
    assert Counter(out) == expected
    devices = {row[N]: row[DEVICE] for row in known}
    last: dict[Any, datetime] = {}
    for batch in query.emitted:
        where: dict[Any, int] = {}
        for number, partition in enumerate(batch):
            for at, _, n, _ in partition:
                device = devices[n]
                assert where.setdefault(device, number) == number and last.get(device, START) <= at
                last[device] = at


def test_a_device_with_half_of_all_rows_is_split(tmp_path: Path) -> None:
    draw = random.Random(1)
    query = OrderedQuery(ordered(4), tmp_path / "cp", draw)
    played(query, draw, 10)
    table = table_of(query)
    assert len(table.merged) == 1
    merged = sum(len(partition) for batch in query.emitted for partition in batch[4:])
    assert merged > 100
    query = OrderedQuery(replace(ordered(4), splits=False), tmp_path / "whole", random.Random(1))
    played(query, random.Random(1), 10)
    assert not table_of(query).merged


def test_rows_of_one_time_have_an_order(tmp_path: Path) -> None:
    """Without a column that defines it, the order of equal times is the same for any batch sizes and partitions."""
    rows = made_rows(random.Random(5), 300, 0, iter(range(1000)))
    answers = []
    for seed, partitions, cuts in ((1, 1, 1), (2, 3, 4), (3, 4, 2)):
        draw = random.Random(seed)
        query = OrderedQuery(ordered(partitions, "random", ties=None), tmp_path / str(seed), draw)
        query.process([rows[at::cuts] for at in range(cuts)])
        query.watermark = micros(START + timedelta(days=1))
        query.process([[]])
        answers.append(emitted(query))
    assert answers[0] == answers[1] == answers[2] and sum(map(len, answers[0].values())) == 300


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: None, "NoneType, expected an Arrow table"),
        (lambda rows: rows.select(["at"]), "columns at, but schema also has sensor, n, before"),
        (lambda rows: rows.append_column("before", rows["device"]), "do not have the types of schema"),
        (lambda rows: rows.append_column("before", rows["n"]).take([*range(rows.num_rows)][::-1]), "in order"),
    ],
)
def test_what_a_function_may_not_return(tmp_path: Path, function: Any, message: str) -> None:
    rows = [("a", 1, START + timedelta(seconds=second), second) for second in range(5)]
    query = OrderedQuery(ordered(1, operator=FunctionOperator(function, None)), tmp_path, random.Random(1))
    query.watermark = micros(START + timedelta(days=1))
    with pytest.raises(OperatorError, match=message):
        query.process([rows])


def test_state_of_another_operator_is_refused(tmp_path: Path) -> None:
    query = OrderedQuery(ordered(2), tmp_path, random.Random(1))
    query.process([[]])
    query.restart(made_by="another")
    with pytest.raises(StateError, match="belongs to another operator"):
        query.process([[]])


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2], [2, 0, 1]])
def test_wide_texts_leave_with_narrow_offsets(order: list[int]) -> None:
    rows = pa.table({"a": pa.array(["x", "y", None], pa.large_string()), "n": [1, 2, 3]})
    [piece] = RowsInOrder(rows, np.array(order, np.int32)).pieces(2)
    assert piece.schema.types == [pa.string(), pa.int64()]
    assert piece.to_pylist() == [rows.to_pylist()[number] for number in order]
