"""Each left row is emitted once with its nearest row, for any batch sizes, late rows, and repeated tasks."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType, TimestampNTZType

from sparkext.asof.resolved_as_of import AsOfArguments, resolve_as_of
from sparkext.asof.stream_as_of_join import derive_stored_sides
from sparkext.config import DEBUG_HASH_MASK, MORSEL_MAX_ROWS, read_settings
from sparkext.errors import StateError
from sparkext.joins.columns import JoinInputs, OutputField
from sparkext.plans.pipeline.spec import PROBE, ColumnRef
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.join.description_of import describe_join
from sparkext.streaming.state import nearest_order
from sparkext.streaming.state.places import LocalLocation
from sparkext.streaming.state.segments import read_metadata
from tests.streaming.tasks import Query, Rows, on_a_node, plain
from tests.support.times import micros

TIME = TimestampNTZType()
TRADES = StructType().add("id", "long").add("symbol", "string").add("traded", TIME)
QUOTES = StructType().add("number", "integer").add("of", "string").add("quoted", TIME).add("price", "double")
START = datetime(2026, 1, 1)
EPOCH = datetime(1970, 1, 1)
FAN_OUT = 2


@pytest.fixture(autouse=True)
def a_node(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also search in small steps for rows that no lookup will need any more."""
    on_a_node(tmp_path_factory.mktemp("node"), monkeypatch, FAN_OUT)
    monkeypatch.setattr(nearest_order, "_AT_ONCE", 4)


def joined(
    by: bool = True,
    direction: str = "backward",
    tolerance: float | None = None,
    exact: bool = True,
    how: str = "left",
    ties: bool = True,
    partitions: int = 2,
    **options: Any,
) -> StreamJoin:
    problems = list[str]()
    outputs = [OutputField(field, ColumnRef(PROBE, number)) for number, field in enumerate(TRADES.fields)]
    far = None if tolerance is None else timedelta(seconds=tolerance)
    arguments = AsOfArguments(("traded", "quoted"), [("symbol", "of")] if by else None, direction, far, exact, how)
    resolved = resolve_as_of(JoinInputs(outputs, QUOTES.fields, 1, "auto", False), arguments, problems)
    assert resolved is not None, problems
    sides = derive_stored_sides(TRADES, QUOTES, resolved, 0 if ties else None)
    return describe_join(resolved, sides, partitions, read_settings(lambda key: None, options), 1, "an as-of join")


class Feed:
    """Trades and quotes whose times advance with the watermark. A tenth are out of order, some of those late."""

    def __init__(self, draw: random.Random, symbols: int = 4) -> None:
        self.draw, self.symbols = draw, symbols
        self.trades, self.quotes = list[Any](), list[Any]()
        self.watermark = EPOCH  # of the first batch

    def batch(self, number: int, trades: int, quotes: int) -> tuple[Rows, Rows]:
        """Return the rows between two watermarks, and store those that are not late."""
        new = (
            [(self.draw.randrange(1 << 40), self._symbol(), self._time(number)) for _ in range(trades)],
            [
                (100 * number + row, self._symbol(), self._time(number), float(self.draw.randrange(9)))
                for row in range(quotes)
            ],
        )
        self.trades += [row for row in new[0] if row[2] is not None and row[2] > self.watermark]
        self.quotes += [row for row in new[1] if row[2] is not None and row[2] > self.watermark]
        self.watermark = START + timedelta(seconds=10 * number)
        return new

    def _symbol(self) -> str | None:
        return self.draw.choice([None, *"abcdefgh"[: self.symbols]])

    def _time(self, number: int) -> datetime | None:
        if self.draw.random() < 0.02:
            return None
        back = self.draw.choice([10, 30]) if self.draw.random() < 0.1 else 0
        return START + timedelta(
            seconds=10 * number + self.draw.randrange(10) - back, microseconds=self.draw.randrange(2)
        )


def nearest(
    trade: Any, quotes: Rows, by: bool, direction: str, tolerance: float | None, exact: bool
) -> list[tuple[Any, ...]]:
    """Return the nearest quote, or an empty list, by comparing all quotes."""
    found = []
    for quote in quotes:
        apart = (quote[2] - trade[2]).total_seconds()
        if by and (trade[1] is None or trade[1] != quote[1]):
            continue
        if (tolerance is not None and abs(apart) > tolerance) or (apart == 0 and not exact):
            continue
        if direction == "nearest" or (apart <= 0) == (direction == "backward") or apart == 0:
            before = apart <= 0 if direction == "nearest" else direction == "backward"
            found.append((abs(apart), not before, -quote[0] if before else quote[0], quote))
    return [min(found)[3]] if found else []


def test_a_query_that_begins_anew_with_other_ties(tmp_path: Path) -> None:
    """A query with the same name, checkpoint and rows, but another order of ties, uses no index of the old query."""
    quotes = [(number, "a", START, float(number)) for number in range(20)]
    for number, ties in enumerate((False, True)):
        join = replace(joined(ties=ties, partitions=1), name="priced")
        query = Query(join, tmp_path / "cp", random.Random(1), run=number)
        query.process([], [quotes])
        query.process([[(1, "a", START + timedelta(seconds=1))]], [])
        query.watermark = micros(START + timedelta(seconds=2))
        query.process([], [])
        shutil.rmtree(tmp_path / "cp")
    assert query.emitted == Counter([(1, "a", START + timedelta(seconds=1), *quotes[-1])])


def run(query: Query, feed: Feed, batches: int, again: bool = True) -> None:
    """Process batches of any size, some of them twice or partially, and restart with other numbers of partitions."""
    draw = feed.draw
    for number in range(1, batches):
        new = feed.batch(number, draw.choice([0, 5, 25]), draw.choice([0, 5, 25]))
        query.watermark = micros(feed.watermark)
        parts = tuple([rows[: len(rows) // 2], rows[len(rows) // 2 :]] for rows in new)
        if again and draw.random() < 0.3:
            query.attempt(*parts, only=range(draw.randrange(query.join.partitions)))
            query.restart()
        query.process(*parts)


def expected(feed: Feed, how: str = "left", waits: float = 0, **asked: Any) -> Counter[tuple[Any, ...]]:
    rows = Counter[tuple[Any, ...]]()
    for trade in feed.trades:
        if trade[2] + timedelta(seconds=waits) > feed.watermark:
            continue
        match = nearest(trade, feed.quotes, **asked)
        if match or how == "left":
            rows[tuple(map(plain, (*trade, *(match[0] if match else (None,) * len(QUOTES)))))] += 1
    return rows


@pytest.mark.parametrize(("by", "how"), [(True, "left"), (False, "inner")])
@pytest.mark.parametrize(
    ("direction", "tolerance", "exact"),
    [
        ("backward", None, True),
        ("backward", None, False),
        ("backward", 7, True),
        ("forward", 12, True),
        ("forward", 0, True),
        ("forward", 12, False),
        ("nearest", 8, True),
        ("nearest", 8, False),
    ],
)
def test_like_a_loop(direction: str, tolerance: float | None, exact: bool, by: bool, how: str, tmp_path: Path) -> None:
    draw = random.Random(f"{direction} {tolerance} {exact} {by} {how}")
    query = Query(joined(by, direction, tolerance, exact, how), tmp_path, draw)
    feed = Feed(draw)
    run(query, feed, 2 * FAN_OUT + 4)
    waits = 0 if direction == "backward" else tolerance or 0
    known = expected(feed, how, waits, by=by, direction=direction, tolerance=tolerance, exact=exact)
    assert query.emitted == known, (query.emitted - known, known - query.emitted)
    assert known.total() > (0 if tolerance == 0 else 8)


@pytest.mark.parametrize(
    "options", [{DEBUG_HASH_MASK.name: 0}, {MORSEL_MAX_ROWS.name: 1, "spark.sparkext.morsel.minRows": 1}]
)
def test_hostile_modes(options: dict[str, Any], tmp_path: Path) -> None:
    draw = random.Random(3)
    query, feed = Query(joined(**options), tmp_path, draw), Feed(draw)
    run(query, feed, 6)
    assert query.emitted == expected(feed, by=True, direction="backward", tolerance=None, exact=True)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_rows_of_one_time_without_an_order(direction: str, tmp_path: Path) -> None:
    """One of the rows of equal time is emitted, and it is the same one for any batch sizes."""
    draw = random.Random(4)
    trades = [(number, "a", START + timedelta(seconds=10 + number % 3)) for number in range(9)]
    quotes = [(number, "a", START + timedelta(seconds=10 + number % 3 * 2), 1.0) for number in range(30)]
    found = []
    for batches in (1, 2, 5, 10):
        query = Query(joined(direction=direction, tolerance=5, ties=False, partitions=2), tmp_path / f"{batches}", draw)
        query.watermark = micros(START)
        mixed = draw.sample(quotes, len(quotes))
        for number in range(batches):
            query.process([trades[number::batches]], [mixed[number::batches]])
        query.watermark += 60_000_000
        query.process([], [])
        found.append(query.emitted)
    assert found[0].total() == len(trades) and all(other == found[0] for other in found)
    asked = {"by": True, "direction": direction, "tolerance": 5, "exact": True}
    for row in found[0]:
        [match] = nearest(row[:3], quotes, **asked)
        assert row[5] == match[2], "the time is that of the nearest"


def test_what_is_kept_is_the_last_of_each_key(tmp_path: Path) -> None:
    """Without a tolerance, a stream without end retains only the last row of each key."""
    draw = random.Random(5)
    query, feed = Query(joined(partitions=1), tmp_path, draw), Feed(draw, symbols=2)
    for number in range(1, FAN_OUT**3 + 2):
        new = feed.batch(number, 3, 40)
        query.watermark = micros(feed.watermark)
        query.process([new[0]], [new[1]])
    assert query.emitted == expected(feed, by=True, direction="backward", tolerance=None, exact=True)
    merged = (tmp_path / "sparkext").glob(f"*/right/0-{FAN_OUT**3 - 1}/*.segment")
    kept = sum(read_metadata(LocalLocation(path))["info"].rows for path in merged)
    after = [quote for quote in feed.quotes if quote[1] is not None and quote[2] > START + timedelta(seconds=70)]
    assert 0 < kept <= 2 + len(after) < len(feed.quotes) / 4, (kept, len(after))


@pytest.mark.parametrize("by", [True, False])
def test_runs_are_merged_before_the_watermark_has_passed_a_row(by: bool, tmp_path: Path) -> None:
    draw = random.Random(7)
    query, trades, quotes = Query(joined(by), tmp_path, draw), Rows(), Rows()
    for number in range(FAN_OUT**2 + 1):
        at = START + timedelta(seconds=number)
        trades.append((number, "a", at))
        quotes.append((number, "a", at, 1.0))
        query.process([trades[-1:]], [quotes[-1:]])
    assert not query.emitted
    query.watermark = micros(at)
    query.process([], [])
    assert query.emitted == Counter((*trade, *quote) for trade, quote in zip(trades, quotes, strict=True))


def test_a_query_that_is_another(tmp_path: Path) -> None:
    """The state records its operator: it is refused for the same columns and keys, if rows of equal time may differ."""
    draw = random.Random(6)
    query, feed = Query(joined(), tmp_path, draw), Feed(draw)
    run(query, feed, 4, again=False)
    query.join = replace(query.join, made_by="an as-of join of another kind", token="another")
    with pytest.raises(StateError, match="belongs to another operator"):
        query.attempt([], [])
