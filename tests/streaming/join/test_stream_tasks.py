"""Every pair is emitted once, for any batch sizes, any partitioning of both sides, and repeated tasks."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, StringType, StructType, TimestampNTZType

from sparkext.config import DEBUG_HASH_MASK, DEBUG_PARTITIONS, MORSEL_MAX_ROWS, STREAMS_UNIT_MAX_BYTES, read_settings
from sparkext.errors import StateError
from sparkext.joins.columns import JoinInputs, OutputField
from sparkext.joins.join_condition import read_condition
from sparkext.joins.resolved_join import resolve_join
from sparkext.joins.resolved_theta import resolve_theta
from sparkext.plans.pipeline.spec import PROBE, ColumnRef
from sparkext.plans.shuffle.fragments import GridShape
from sparkext.spark.arrow import arrow_schema
from sparkext.storage.last_used import LruCache
from sparkext.storage.local_folder import local_folder
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.join.description_of import describe_join, renumber_build_columns
from sparkext.streaming.join.join_task import StreamJoinTask
from sparkext.streaming.state import stream_state
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.stream_state import StoredSide
from tests.streaming.tasks import Query, Rows, on_a_node, plain, task
from tests.support.times import micros

TIME = TimestampNTZType()
LEFT = StructType().add("row", "long").add("k", "integer").add("price", "double").add("at", TIME)
LEFT = LEFT.add("until", ArrayType(StringType()))
RIGHT = StructType().add("rid", "long").add("d", "integer").add("low", "double").add("high", "double").add("time", TIME)
RIGHT = RIGHT.add("line", StructType().add("x", "integer"))

Test = Callable[[Any, Any], bool]


def in_range(left: Any, right: Any) -> bool:
    return None not in (left[2], right[2], right[3]) and right[2] <= left[2] < right[3]


def equal(left: Any, right: Any) -> bool:
    return left[1] is not None and left[1] == right[1]


CONDITIONS: dict[str, tuple[Any, Test]] = {
    "cross": (None, lambda left, right: True),
    "key": ([("k", "d")], equal),
    "null-safe key": ([("k", "<=>", "d")], lambda left, right: left[1] == right[1]),
    "range": ([("price", ">=", "low"), ("price", "<", "high")], in_range),
    "function": (
        lambda left, right: left.price - right.low > right.d and left.k != 3,
        lambda left, right: (
            None not in (left[1], left[2], right[1], right[2]) and left[2] - right[2] > right[1] and left[1] != 3
        ),
    ),
    "key and range": (
        [("k", "d"), ("price", ">=", "low"), ("price", "<", "high")],
        lambda left, right: equal(left, right) and in_range(left, right),
    ),
}
START = datetime(2026, 1, 1)
FAN_OUT = 3
"""Number of runs that are compacted at once, small enough for few batches."""


@pytest.fixture(autouse=True)
def a_node(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_node(tmp_path_factory.mktemp("node"), monkeypatch, FAN_OUT)


def joined(
    on: str,
    partitions: int = 3,
    retained: tuple[int | None, int | None] | None = None,
    how: str = "inner",
    **options: Any,
) -> StreamJoin:
    named, problems = CONDITIONS[on][0], list[str]()
    outputs = [OutputField(field, ColumnRef(PROBE, number)) for number, field in enumerate(LEFT.fields)]
    inputs = JoinInputs(outputs, RIGHT.fields, 1, "auto", False)
    if callable(named):
        resolved = resolve_theta(inputs, named, "inner", problems)
    else:
        condition = read_condition(named, how, "cross" if named is None else how, problems)
        assert condition is not None, problems
        resolved = resolve_join(inputs, condition, how, problems)
        resolved = None if resolved is None else renumber_build_columns(resolved)
    assert resolved is not None, problems
    if retained is None:
        sides = StoredSide(arrow_schema(LEFT)), StoredSide(arrow_schema(RIGHT))
    else:
        left = StoredSide(arrow_schema(LEFT), 3, retained[0], numbered=how != "inner")
        sides = left, StoredSide(arrow_schema(RIGHT), 4, retained[1])
    settings = read_settings(lambda key: None, options)
    return describe_join(resolved, sides, partitions, settings, 1, f"a join on {on}")


def left_rows(draw: random.Random, count: int, seconds: float = 0) -> Rows:
    return [
        (
            draw.randrange(3 if draw.random() < 0.5 else 1 << 40),  # many rows are equal
            draw.choice([None, 0, *range(8)]),
            draw.choice([None, *range(20)]),
            None if draw.random() < 0.02 else START + timedelta(seconds=seconds + draw.randrange(10)),
            draw.choice([None, [], ["x"], ["x", None]]),
        )
        for _ in range(count)
    ]


def right_rows(draw: random.Random, count: int, seconds: float = 0) -> Rows:
    rows: Rows = []
    for _ in range(count):
        low = draw.choice([None, *range(20)])
        high = None if low is None or draw.random() < 0.1 else low + draw.randrange(4)
        time = START + timedelta(seconds=seconds + draw.randrange(10))
        rows.append((draw.randrange(5), draw.choice([None, *range(8)]), low, high, time, draw.choice([None, {"x": 1}])))
    return rows


def pairs(left: Rows, right: Rows, test: Test) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(plain, (*one, *other))) for one in left for other in right if test(one, other))


def together(parts: Iterable[Rows]) -> Rows:
    return [row for part in parts for row in part]


def parted(draw: random.Random, rows: Rows) -> list[Rows]:
    """Distribute rows to partitions of a source."""
    dealt: list[Rows] = [[] for _ in range(draw.randrange(1, 4))]
    for row in rows:
        draw.choice(dealt).append(row)
    return dealt


@pytest.mark.reduced("values", reason="two seconds each")
@pytest.mark.parametrize("way", ["planned", "random"])
@pytest.mark.parametrize("on", CONDITIONS)
def test_batches_of_any_size(on: str, way: str, tmp_path: Path) -> None:
    """The number of partitions changes between runs. Batches run twice, or stop midway before they run again."""
    draw = random.Random(f"{on} {way}")
    query = Query(joined(on, **{DEBUG_PARTITIONS.name: way}), tmp_path, draw)
    left, right, began = list[Any](), list[Any](), 0
    for number in range(2 * FAN_OUT + 3):
        sizes = draw.choices([0, 1, 20, 50], k=2)
        new = parted(draw, left_rows(draw, sizes[0])), parted(draw, right_rows(draw, sizes[1]))
        if draw.random() < 0.2:
            began = query.batch
            query.restart(partitions=draw.randrange(1, 6) if "key" not in on or number == 0 else query.join.partitions)
        if draw.random() < 0.2:
            query.attempt(*new, only=range(draw.randrange(query.join.partitions)))
            query.restart()
        query.process(*new)
        left += [row for part in new[0] for row in part]
        right += [row for part in new[1] for row in part]
    expected = pairs(left, right, CONDITIONS[on][1])
    assert query.emitted == expected and expected.total() > 20, (query.emitted - expected, expected - query.emitted)
    rows = [len([row for row in side if on != "key" or row[1] is not None]) for side in (left, right)]
    if "key and" not in on:
        assert query.progress["state_rows"] == sum(rows) and query.progress["state_bytes"] > 0
    assert query.progress["units"] == query.join.partitions or way == "random" or query.batch == began + 1


@pytest.mark.parametrize(
    "options", [{DEBUG_HASH_MASK.name: 0}, {MORSEL_MAX_ROWS.name: 1, "spark.sparkext.morsel.minRows": 1}]
)
def test_hostile_modes(options: dict[str, Any], tmp_path: Path) -> None:
    draw = random.Random(3)
    query = Query(joined("key and range", **options), tmp_path, draw)
    new = [(left_rows(draw, 30), right_rows(draw, 30)) for _ in range(3)]
    for left, right in new:
        query.process([left], [right])
    expected = pairs(*map(together, zip(*new, strict=True)), CONDITIONS["key and range"][1])
    assert query.emitted == expected


def test_units_are_as_many_as_memory_asks_for(tmp_path: Path) -> None:
    draw = random.Random(4)
    query = Query(joined("range", partitions=2, **{STREAMS_UNIT_MAX_BYTES.name: 20_000}), tmp_path, draw)
    left, right, cuts = list[Any](), list[Any](), list[GridShape]()
    for _ in range(10):
        new = left_rows(draw, 200), right_rows(draw, 100)
        query.process([new[0]], [new[1]])
        left += new[0]
        right += new[1]
        with task(0, query.properties()):
            cuts.append(query.join.state(MicroBatch.of_this_task()).cut)
    assert query.emitted == pairs(left, right, in_range)
    units = [cut.left * cut.right for cut in cuts]
    assert units == sorted(units) and units[-1] > 8 and cuts[-1].left > 1 < cuts[-1].right


@pytest.mark.parametrize("retained", [(5, 40), (None, 20), (20, None), (0, 0)])
def test_rows_match_while_they_are_kept(retained: tuple[int | None, int | None], tmp_path: Path) -> None:
    """Only the times of both rows determine whether they match, not the moment at which expired rows are dropped."""
    draw = random.Random(5)
    kept = [None if seconds is None else seconds * 1_000_000 for seconds in retained]
    query = Query(joined("range", retained=(kept[0], kept[1])), tmp_path, draw)
    left, right = list[Any](), list[Any]()
    for number in range(3 * FAN_OUT):
        new = left_rows(draw, draw.choice([0, 30]), number * 10), right_rows(draw, draw.choice([0, 30]), number * 10)
        query.watermark = micros(START + timedelta(seconds=number * 10))
        query.process(parted(draw, new[0]), parted(draw, new[1]))
        left += new[0]
        right += new[1]

    def test(one: Any, other: Any) -> bool:
        if not in_range(one, other) or one[3] is None:
            return False
        apart = (other[4] - one[3]).total_seconds()
        return (retained[0] is None or apart <= retained[0]) and (retained[1] is None or -apart <= retained[1])

    expected = pairs(left, right, test)
    assert query.emitted == expected and expected.total() > 0
    for side, name in enumerate(("left", "right")):
        whole = sum(path.stat().st_size for path in (tmp_path / "sparkext").glob(f"*/{name}/0-{FAN_OUT - 1}/*.segment"))
        parts = sum(path.stat().st_size for path in (tmp_path / "sparkext").glob(f"*/{name}/?-?/*.segment"))
        assert 0 < whole < parts
        assert retained[side] is None or retained[side] > 5 or whole < parts / 4, "rows that are over are left out"


def test_a_batch_without_partitions(tmp_path: Path) -> None:
    """Spark sends none if neither stream has new rows, but another stream of the query has."""
    draw = random.Random(11)
    query = Query(joined("range"), tmp_path, draw)
    left, right = left_rows(draw, 50), right_rows(draw, 50)
    query.process([left[:25]], [right[:25]])
    query.process([], [])
    query.process([left[25:]], [right[25:]])
    assert query.emitted == pairs(left, right, in_range)


@pytest.mark.parametrize(
    ("how", "on"), [("left", "range"), ("left", "key"), ("semi", "null-safe key"), ("semi", "range")]
)
def test_left_rows_are_decided_once(how: str, on: str, tmp_path: Path) -> None:
    """Matched and unmatched rows are emitted once they are final, despite repeated batches and more partitions."""
    draw = random.Random(f"{how} {on}")
    retained = (25, 10)
    query = Query(joined(on, how=how, retained=(25_000_000, 10_000_000)), tmp_path, draw)
    left, right, watermark = list[Any](), list[Any](), START
    for number in range(2 * FAN_OUT + 4):
        few = draw.choice([0, 1, 12])
        new = left_rows(draw, draw.choice([0, 12]), number * 10), right_rows(draw, few, number * 10)
        watermark = START + timedelta(seconds=10 * number)
        query.watermark = micros(watermark)
        parts = parted(draw, new[0]), parted(draw, new[1])
        if draw.random() < 0.3:
            query.attempt(*parts, only=range(draw.randrange(query.join.partitions)))
            query.restart()
        query.process(*parts)
        left += new[0]
        right += new[1]

    def test(one: Any, other: Any) -> bool:
        apart = (other[4] - one[3]).total_seconds()
        return CONDITIONS[on][1](one, other) and -retained[1] <= apart <= retained[0]

    known = [row for row in left if row[3] is not None]
    matches = {number: [other for other in right if test(row, other)] for number, row in enumerate(known)}
    expected = Counter[tuple[Any, ...]]()
    for number, row in enumerate(known):
        if how == "semi":
            expected.update([tuple(map(plain, row))] if matches[number] else [])
        else:
            over = not matches[number] and row[3] + timedelta(seconds=25) <= watermark
            nothing = [(None,) * len(RIGHT)] if over else []
            expected.update(tuple(map(plain, (*row, *other))) for other in [*matches[number], *nothing])
    assert query.emitted == expected, (query.emitted - expected, expected - query.emitted)
    assert 0 < len([found for found in matches.values() if found]) < len(known)


def test_late_rows_are_left_out(tmp_path: Path) -> None:
    draw = random.Random(6)
    query = Query(joined("cross", retained=(10**12, 10**12)), tmp_path, draw)
    row = (1, 1, 1.0, START, None)
    other = (1, 1, 1.0, 2.0, START, None)
    query.watermark = micros(START) - 1000
    assert query.process([[row]], [[other]]).total() == 1
    query.watermark = micros(START)
    assert query.process([[row]], []).total() == 1, "as it was before the batch"
    assert query.process([[row]], [[other]]).total() == 0, "Spark takes what happened at the watermark for late"
    assert query.process([[(*row[:3], START + timedelta(milliseconds=1), None)]], []).total() == 1


def test_nodes_keep_indexes_of_runs_that_there_are(tmp_path: Path) -> None:
    draw, kept = random.Random(12), list[int]()
    query = Query(joined("range", partitions=1), tmp_path, draw)
    for _ in range(FAN_OUT**2 + 2):
        query.process([left_rows(draw, 3)], [right_rows(draw, 3)])
        kept.append(len([*local_folder().glob("*.index")]))
    assert kept[FAN_OUT**2] <= 2 * FAN_OUT and max(kept) <= 4 * FAN_OUT, kept


def test_what_is_merged_is_swept(tmp_path: Path) -> None:
    draw = random.Random(7)
    query = Query(joined("key", partitions=1), tmp_path, draw, retained=FAN_OUT)
    left, right = list[Any](), list[Any]()
    for _ in range(3 * FAN_OUT):
        new = left_rows(draw, 1), right_rows(draw, 1)
        query.process([new[0]], [new[1]])
        left += new[0]
        right += new[1]
    assert query.emitted == pairs(left, right, equal)
    found = {path.name for path in (tmp_path / "sparkext").glob("*/left/*")}
    assert not {f"{number}-{number}" for number in range(FAN_OUT)} & found and f"0-{FAN_OUT - 1}" in found
    assert f"{query.batch - 1}-{query.batch - 1}" in found
    files = [path for path in (tmp_path / "sparkext").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}, "as SECURITY.md says"


@pytest.mark.parametrize("retained", [1, FAN_OUT + 2])
def test_a_query_may_be_set_back_by_as_many_batches_as_spark_retains(retained: int, tmp_path: Path) -> None:
    """It may be reset to any of these batches, and older state has been removed."""
    draw, batches = random.Random(retained), 5 * FAN_OUT
    new = [(left_rows(draw, 2), right_rows(draw, 2)) for _ in range(batches)]
    for back in range(1, retained + 1):
        query = Query(joined("cross", partitions=1), tmp_path / str(back), draw, retained=retained)
        for left, right in new:
            query.process([left], [right])
        found = {path.name for path in (tmp_path / str(back) / "sparkext").glob("*/left/*")}
        assert ("0-0" in found) == (FAN_OUT + retained >= batches)
        query.batch -= back
        query.restart()
        query.emitted.clear()
        for left, right in new[-back:]:
            query.process([left], [right])
        before, after = (
            pairs(*map(together, zip(*rows, strict=True)), CONDITIONS["cross"][1]) for rows in (new[:-back], new)
        )
        assert query.emitted == after - before


@pytest.mark.parametrize("late", [1, 3 * FAN_OUT - 1])
def test_a_task_of_a_batch_before_takes_nothing_from_later_ones(
    late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was suspended while a second attempt replaced it, in a process that had not written any state."""
    draw = random.Random(late)
    query = Query(joined("cross", partitions=1), tmp_path, draw, retained=1)
    new = [([left_rows(draw, 2)], [right_rows(draw, 2)]) for _ in range(4 * FAN_OUT)]
    for number, rows in enumerate(new[: 3 * FAN_OUT + 2]):
        if number == late:
            properties = query.properties()
            blocks = query.blocks(*rows)[0]
            with task(0, properties):
                joined_rows = [*StreamJoinTask(query.join)(blocks)][:-1]
                standing_still = StreamJoinTask(query.join)(blocks)
                assert [next(standing_still) for _ in joined_rows], "of this attempt nothing is stored yet"
        query.process(*rows)
    monkeypatch.setattr(stream_state, "_begun", LruCache(10))
    with task(0, properties), suppress(StateError):  # its state may have been removed meanwhile
        assert [*standing_still]
    query.restart()
    for rows in new[3 * FAN_OUT + 2 :]:
        query.process(*rows)
    left, right = (together(side for [side] in sides) for sides in zip(*new, strict=True))
    assert query.emitted == pairs(left, right, CONDITIONS["cross"][1])


def test_a_query_is_set_back(tmp_path: Path) -> None:
    """The new batches differ from the old ones, so that compacted runs of the old ones must not be read."""
    draw = random.Random(8)
    query = Query(joined("cross"), tmp_path, draw)
    new = [(left_rows(draw, 3), right_rows(draw, 3)) for _ in range(3 * FAN_OUT)]
    for left, right in new[: FAN_OUT + 1]:
        query.process([left], [right])
    query.batch = FAN_OUT - 2
    query.restart()
    query.emitted.clear()
    for left, right in new[FAN_OUT + 1 :]:
        query.process([left], [right])
    kept = [*new[: FAN_OUT - 2], *new[FAN_OUT + 1 :]]
    before = pairs(*map(together, zip(*new[: FAN_OUT - 2], strict=True)), CONDITIONS["cross"][1])
    assert query.emitted + before == pairs(*map(together, zip(*kept, strict=True)), CONDITIONS["cross"][1])


KEPT = (30_000_000, 30_000_000)
BEGUN_ANEW: dict[str, tuple[StreamJoin, StreamJoin, int]] = {
    "until when rows match": (joined("range", 1, (0, 0)), joined("range", 1, KEPT), 0),
    "lines": (joined("key", 1, KEPT, how="left"), joined("null-safe key", 1, KEPT, how="left"), 0),
    "order of batches": (joined("key", 1, KEPT, how="left"), joined("key", 1, KEPT, how="left"), 1),
}
"""The query before and after it starts from an empty checkpoint, and the number of batches by which its rows move."""


@pytest.mark.parametrize("changed", BEGUN_ANEW)
def test_a_query_that_begins_anew_uses_no_index_of_another(changed: str, tmp_path: Path) -> None:
    """Name, checkpoint path and rows are the same, but hidden columns differ."""
    before, after, moved = BEGUN_ANEW[changed]
    draw = random.Random(changed)
    batches = [(left_rows(draw, 8), right_rows(draw, 4)) for _ in range(FAN_OUT)]
    batches.append(([], []))
    run_all(before, tmp_path / "checkpoint", batches, 1)
    shutil.rmtree(tmp_path / "checkpoint")
    batches = [*batches[moved:FAN_OUT], *batches[:moved], *batches[FAN_OUT:]]
    found = run_all(after, tmp_path / "checkpoint", batches, 2)
    assert found == run_all(after, tmp_path / "elsewhere", batches, 3) and found.total() > 0


def run_all(join: StreamJoin, checkpoint: Path, batches: list[tuple[Rows, Rows]], run: int) -> Counter[tuple[Any, ...]]:
    """Run a query until all of its rows are final."""
    join = replace(join, name="hits")
    query = Query(join, checkpoint, random.Random(1), run=run, watermark=micros(START) - 1_000_000)
    for left, right in batches:
        query.process([left], [right])
    query.watermark = micros(START + timedelta(seconds=100))
    query.process([], [])
    return query.emitted


@pytest.mark.parametrize("harm", ["lost", "cut off", "damaged", "version"])
def test_state_that_cannot_be_read(harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(9)
    query = Query(joined("key", partitions=1), tmp_path, draw)
    for _ in range(3):
        query.process([left_rows(draw, 20)], [right_rows(draw, 20)])
    [segment] = (tmp_path / "sparkext").glob("*/right/1-1/0.segment")
    content = bytearray(segment.read_bytes())
    query.restart()
    (tmp_path / "another node").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "another node"))  # with no index of the state
    if harm == "lost":
        segment.unlink()
    elif harm == "cut off":
        segment.write_bytes(content[:-100])
    elif harm == "damaged":
        content[200] ^= 1
        segment.write_bytes(content)
    else:
        segment.write_bytes(bytes(content).replace(b'"state": 1', b'"state": 9'))
    with pytest.raises(StateError, match=r"right/1-1/0\.segment"):
        for _ in range(2):
            query.process([left_rows(draw, 20)], [])


def test_another_join_has_the_same_state(tmp_path: Path) -> None:
    draw = random.Random(10)
    query = Query(joined("key"), tmp_path, draw)
    query.process([left_rows(draw, 5)], [right_rows(draw, 5)])
    query.join = StreamJoin(**{**vars(query.join), "token": "another in the same query"})
    with pytest.raises(StateError, match=r"two equal operators of a query would share the state in .*name=…"):
        query.attempt([left_rows(draw, 5)], [])
    query.restart(made_by="a join on something else")
    with pytest.raises(StateError, match="belongs to another operator"):
        query.attempt([left_rows(draw, 5)], [])


def test_a_task_of_no_query() -> None:
    with task(0, {}), pytest.raises(StateError, match="belongs to no streaming query"):
        MicroBatch.of_this_task()
    properties = {"spark.sparkext.checkpoint": "hdfs://b/c", "spark.sparkext.run": "1", "streaming.sql.batchId": "0"}
    with task(0, properties), pytest.raises(StateError, match=r"hdfs://b/c.*file:/….*s3a://…"):
        MicroBatch.of_this_task()
