"""Continuous queries: the trading query, recursion beside none, keys and cores, and how time grows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.fit import power_law
from bench.harness import Bench, Case, WrongAnswerError, measure, record, same, step, verify
from bench.spark_session import spark_session
from bench.text_table import text_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkext.cql.graph import Graph

Columns = Mapping[str, Sequence[pa.Array]]

NOTES = """\
All answers are checked: orders against a loop written by hand, quotas against one, the rest against each other.
Left out: compilation, which takes numba 5 to 30 seconds for a graph, once on a machine."""

NOTES_TRADING = """\
Offers, one a microsecond, for a thousand stocks, of which each is bought at most once: from rows in memory to orders.
In one process: the engine, from Arrow columns; a loop in Python over lists, with dicts for stock. In Spark: tables in
Parquet to a count of orders, one core; applyInPandas runs the same loop in one group.
Left out: compilation, and for Spark the start of the session. Not compared: Flink, which has no recursion; a process
function would be another program."""

NOTES_RECURSIVE = """\
The same operators on the same rows: recursive, or with what was bought as one more stream of rows. The engine alone,
one core."""

NOTES_KEYS = """\
100,000 people, of whom each has a quota, ask a number of times each: tables in Parquet to a count of what is
granted."""

NOTES_GROWTH = """\
The engine alone, one core: seconds by rows, by queries of the graph, and by the rows that a window holds."""

TRADING = """
REGISTER STREAM market (id string, price double);
REGISTER STREAM initial_resource (val double);
REGISTER STREAM stock_events (id string, num int);
REGISTER QUERY resource_stream ISTREAM(SELECT * FROM initial_resource [Now] UNION ALL
    SELECT resource.val - buy_event.price * buy_event.num AS val FROM resource, buy_event [Now])<Now>;
REGISTER QUERY resource SELECT * FROM resource_stream [Rows 1];
REGISTER QUERY stock_stream ISTREAM(SELECT * FROM stock_events [Now] UNION ALL
    SELECT stock.id, stock.num + buy_event.num AS num FROM stock, buy_event [Now] WHERE stock.id = buy_event.id)<Now>;
REGISTER QUERY stock SELECT * FROM stock_stream [Partition By id Rows 1];
REGISTER QUERY buy_event ISTREAM(SELECT market.id, 1000 AS num, market.price FROM market [Now], stock, resource
    WHERE stock.id = market.id AND stock.num = 0 AND market.price < 500 AND resource.val > market.price * 1000);
"""
QUOTAS = """
REGISTER STREAM asked (who int, n int);
REGISTER STREAM granted (who int, n int);
REGISTER QUERY left_stream ISTREAM(SELECT who, n FROM granted [Now] UNION ALL
    SELECT l.who, l.n - t.n AS n FROM quota l, taken [Now] t WHERE l.who = t.who)<Now>;
REGISTER QUERY quota SELECT * FROM left_stream [Partition By who Rows 1];
REGISTER QUERY taken ISTREAM(SELECT a.who, a.n FROM asked [Now] a, quota q WHERE a.who = q.who AND q.n >= a.n);
"""
_STOCKS, _CASH = 1000, 300_000_000.0


def cases() -> list[Case]:
    """The paper's query, and what it costs."""
    return [
        Case("cql.trading", "orders that reduce the cash of the next", _run_trading, scaled=False, threads=1),
        Case("cql.recursive", "recursion beside the same without", _run_recursive, scaled=False, threads=1),
        Case("cql.keys", "quotas of 100,000 people, one core and two", _run_keys, scaled=False, named=True),
        Case("cql.growth", "rows, queries, windows", _run_growth, scaled=False, threads=1),
    ]


# --- engines in this process ---


def _graph(text: str) -> Graph:
    from sparkext.cql.binder import bind
    from sparkext.cql.graph import graph_of
    from sparkext.cql.parser import parse

    return graph_of(bind(parse(text)))


def _emitted(graph: Graph, outputs: Sequence[str], times: Any, streams: Any, columns: Columns) -> list[Any]:
    """Return what an engine emits of all rows."""
    from sparkext.cql.code import code_of
    from sparkext.cql.engine import FOR_EVER, Engine, Given
    from sparkext.kernels.jit import frozen

    needed = graph.needed(outputs)
    engine = Engine(needed, code_of(needed, outputs), words=1 << 27, limit=1000)
    return [*engine.run(Given(frozen(times), frozen(streams), columns), FOR_EVER)]


def _rows_of(emitted: Sequence[Any], query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for part in emitted:
        if part.query == query:
            columns = [part.times.tolist(), *(column.to_pylist() for column in part.columns)]
            found += zip(*columns, strict=True)
    return found


# --- trading ---


class _Offers:
    """A number of offers, and what there is before them."""

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(1)
        self.count = count
        self.stocks = [f"stock {number}" for number in range(_STOCKS)]
        self.ids = pa.array(self.stocks).take(pa.array(draw.integers(0, _STOCKS, count)))
        self.prices = pa.array(450 + draw.random(count) * 100)
        before = 1 + _STOCKS
        self.times = np.concatenate([np.zeros(before, np.int64), np.arange(1, count + 1)])
        self.streams = np.concatenate([[1], np.full(_STOCKS, 2), np.zeros(count)]).astype(np.int8)
        ids = pa.concat_arrays([pa.array([""]), pa.array(self.stocks), self.ids])
        prices = pa.concat_arrays([pa.array(np.zeros(before)), self.prices])
        self.columns = {
            "market": [ids, prices],
            "initial_resource": [pa.array(np.full(before + count, _CASH))],
            "stock_events": [ids, pa.array(np.zeros(before + count, np.int32))],
        }


def _looped(times: Sequence[int], ids: Sequence[str], prices: Sequence[float], stocks: Sequence[str]) -> list[Any]:
    """What a hand-written loop buys."""
    cash, held, orders = _CASH, dict.fromkeys(stocks, 0), []
    for at, name, price in zip(times, ids, prices, strict=True):
        if price < 500 and held[name] == 0 and cash > price * 1000:
            held[name] += 1000
            cash -= price * 1000
            orders.append((at, name, 1000, price))
    return orders


def _run_trading(bench: Bench) -> None:
    offers = _Offers(bench.sized(2_000_000))
    graph = _graph(TRADING)
    rows = offers.times[1 + _STOCKS :].tolist(), offers.ids.to_pylist(), offers.prices.to_pylist()

    def engine() -> Any:
        emitted = _emitted(graph, ["buy_event"], offers.times, offers.streams, offers.columns)
        return _rows_of(emitted, "buy_event")

    loop = same("a loop in Python", lambda: _looped(*rows, offers.stocks))
    contestants = [same("sparkext, engine", engine, ours=True), loop]
    with spark_session(1, **{"spark.sql.shuffle.partitions": "1"}) as spark:
        frames = _written(spark, bench, offers)
        contestants += [
            same("sparkext in Spark", lambda: _bought(_ours(frames)), ours=True),
            same("applyInPandas", lambda: _bought(_pandas(frames, offers.stocks))),
        ]
        verify(contestants)
        timings = measure(bench, contestants)
    record(bench, timings, offers.count)
    print(
        text_table(
            ("", "offers a second"),
            [(one.contestant.name, f"{offers.count / one.median:,.0f}") for one in timings],
        )
    )
    print(NOTES_TRADING)


def _written(spark: SparkSession, bench: Bench, offers: _Offers) -> dict[str, DataFrame]:
    """Return the three streams as tables in files."""
    import pyarrow.parquet as pq

    folder = bench.folder("cql")
    folder.mkdir(parents=True, exist_ok=True)
    ts = pa.array(offers.times, pa.int64()).cast(pa.timestamp("us", "UTC"))
    parts = {"initial_resource": (0, 1), "stock_events": (1, 1 + _STOCKS), "market": (1 + _STOCKS, None)}
    names = {"initial_resource": ["val"], "stock_events": ["id", "num"], "market": ["id", "price"]}
    frames = {}
    for name, (start, stop) in parts.items():
        columns = [column.slice(start, None if stop is None else stop - start) for column in offers.columns[name]]
        table = pa.table([*columns, ts[start:stop]], names=[*names[name], "ts"])
        pq.write_table(table, folder / f"{name}.parquet")
        frames[name] = spark.read.parquet(str(folder / f"{name}.parquet"))
    return frames


def _ours(frames: Mapping[str, DataFrame]) -> DataFrame:
    from sparkext.streams import cql

    return cql(TRADING).output("buy_event", time="ts", **frames)


def _pandas(frames: Mapping[str, DataFrame], stocks: Sequence[str]) -> DataFrame:
    """The loop, in one group of all offers."""
    import pandas as pd
    from pyspark.sql import functions as F

    def bought(offers: pd.DataFrame) -> pd.DataFrame:
        offers = offers.sort_values("ts")
        orders = _looped(offers["ts"].tolist(), offers["id"].tolist(), offers["price"].tolist(), stocks)
        found = pd.DataFrame(orders, columns=["ts", "id", "num", "price"])
        return found[["id", "num", "price", "ts"]]

    grouped = frames["market"].groupBy(F.lit(0).alias("all"))
    return grouped.applyInPandas(bought, "id string, num int, price double, ts timestamp")


def _bought(frame: DataFrame) -> list[Any]:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    rows = frame.collect()
    found = []
    for name, num, price, ts in rows:
        found.append(((ts.astimezone(timezone.utc) - epoch) // timedelta(microseconds=1), name, num, price))
    return found


# --- with and without recursion ---


def _run_recursive(bench: Bench) -> None:
    offers = _Offers(bench.sized(2_000_000))
    recursive = _graph(TRADING)
    again = TRADING.replace("buy_event [Now]", "bought [Now] buy_event")
    flat = _graph(f"REGISTER STREAM bought (id string, num int, price double); {again}")
    given = offers.times, offers.streams, offers.columns
    orders = _rows_of(_emitted(recursive, ["buy_event"], *given), "buy_event")
    times, streams, columns = _with_orders(offers, orders)

    def with_cycle() -> Any:
        return _rows_of(_emitted(recursive, ["buy_event"], *given), "buy_event")

    def without() -> Any:
        return _rows_of(_emitted(flat, ["buy_event"], times, streams, columns), "buy_event")

    contestants = [same("recursive", with_cycle, ours=True), same("what was bought as a stream", without)]
    verify(contestants)
    timings = measure(bench, contestants)
    record(bench, timings, offers.count)
    medians = [timing.median for timing in timings]
    rows = [(timing.contestant.name, f"{offers.count / timing.median:,.0f}") for timing in timings]
    print(text_table(("", "offers a second"), rows))
    if medians:  # or the data is tiny
        print(f"recursive: {medians[0] / medians[1]:.2f} times the time")
    print(NOTES_RECURSIVE)


def _with_orders(offers: _Offers, orders: Sequence[tuple[Any, ...]]) -> tuple[Any, Any, Columns]:
    """Return all rows with those of a fourth stream among them, the first of the graph's: what was bought, and when."""
    at = np.array([order[0] for order in orders], np.int64)
    places = np.searchsorted(offers.times, at, side="right")
    times = np.insert(offers.times, places, at)
    streams = np.insert(offers.streams + 1, places, 0)
    source = np.insert(np.arange(offers.times.size), places, 0)
    columns: dict[str, Any] = {
        name: [column.take(pa.array(source)) for column in arrays] for name, arrays in offers.columns.items()
    }
    of = np.full(times.size, -1)
    of[streams == 0] = np.arange(len(orders))
    numbers = pa.array(of, mask=of < 0)
    kinds = ((1, pa.string()), (2, pa.int32()), (3, pa.float64()))
    bought = [pa.array([order[k] for order in orders], kind) for k, kind in kinds]
    columns["bought"] = [column.take(numbers) for column in bought]
    return times, streams.astype(np.int8), columns


# --- keys ---


def _run_keys(bench: Bench) -> None:
    import pyarrow.parquet as pq

    people, asks = bench.sized(100_000), bench.sized(4_000_000)
    draw = np.random.default_rng(2)
    who, wanted = draw.integers(0, people, asks).astype(np.int32), draw.integers(1, 10, asks).astype(np.int32)
    quota = draw.integers(0, 200, people).astype(np.int32)
    ts = pa.array(np.arange(1, asks + 1), pa.int64()).cast(pa.timestamp("us", "UTC"))
    zero = pa.array(np.zeros(people, np.int64)).cast(pa.timestamp("us", "UTC"))
    folder = bench.folder("cql")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"who": who, "n": wanted, "ts": ts}), folder / "asked.parquet")
    pq.write_table(
        pa.table({"who": np.arange(people, dtype=np.int32), "n": quota, "ts": zero}), folder / "granted.parquet"
    )
    expected = _granted(who.tolist(), wanted.tolist(), quota.tolist())
    rows, medians = [], []
    for cores in (1, 2):
        with spark_session(cores, **{"spark.sql.shuffle.partitions": str(cores)}) as spark, step(f"{cores} cores"):
            seconds = [*_quotas(spark, folder, expected, 1 if bench.tiny else 4)]
        medians.append(statistics.median(seconds[1:] or seconds))
        bench.record(part=f"{cores} cores", contestant="sparkext", rows_per_second=asks / medians[-1])
        rows.append((str(cores), f"{asks / medians[-1]:,.0f}"))
    print(text_table(("cores", "rows a second"), rows))
    print(f"two cores: {medians[0] / medians[1]:.2f} times as fast\n{NOTES_KEYS}")


def _granted(who: Sequence[int], wanted: Sequence[int], quota: list[int]) -> tuple[int, int]:
    rows = total = 0
    for person, n in zip(who, wanted, strict=True):
        if quota[person] >= n:
            quota[person] -= n
            rows, total = rows + 1, total + n
    return rows, total


def _quotas(spark: SparkSession, folder: Any, expected: tuple[int, int], runs: int) -> Iterator[float]:
    from pyspark.sql import functions as F

    from sparkext.streams import cql

    tables = {name: spark.read.parquet(str(folder / f"{name}.parquet")) for name in ("asked", "granted")}
    for _ in range(runs):
        began = time.perf_counter()
        found = cql(QUOTAS).output("taken", time="ts", **tables).agg(F.count("*"), F.sum("n")).first()
        yield time.perf_counter() - began
        if found is None or (found[0], found[1]) != expected:
            raise WrongAnswerError(f"{found}, and not {expected}")


# --- growth ---


def _run_growth(bench: Bench) -> None:
    rows = []
    for what, sizes, run in (
        ("rows", (250_000, 500_000, 1_000_000, 2_000_000), _average_of_rows),
        ("queries", (1, 2, 4, 8), _averages),
        ("rows in a window", (100, 1_000, 10_000, 100_000), _window_of),
    ):
        seconds = []
        for size in sizes:
            work = run(bench, size)
            work()
            with step(f"{what}: {size:,}"):
                seconds.append(min(_taken(work) for _ in range(1 if bench.tiny else 3)))
        law = power_law(sizes, seconds)
        bench.record(part=what, contestant="sparkext", exponent=law.exponent)
        rows.append(
            (what, f"{sizes[0]:,} to {sizes[-1]:,}", " ".join(f"{one:.2f}" for one in seconds), f"{law.exponent:.2f}")
        )
    print(text_table(("", "", "seconds", "exponent"), rows))
    print(NOTES_GROWTH)


def _taken(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _level(count: int, queries: int, window: int) -> Callable[[], object]:
    """The paper's two levels: averages by sensor and by group of them, some of each."""
    text = "REGISTER STREAM readings (sensor int, part int, level double);"
    outputs = []
    for number in range(queries):
        low = f"SELECT sensor, part, avg(level) AS level FROM readings [Range {window} us] GROUP BY sensor, part"
        text += f"REGISTER QUERY low{number} {low} HAVING sensor % {queries} = {number};"
        text += f"REGISTER QUERY high{number} ISTREAM(SELECT part, avg(level) AS level FROM low{number} GROUP BY part);"
        outputs.append(f"high{number}")
    graph, draw = _graph(text), np.random.default_rng(3)
    sensors = draw.integers(0, 1000, count).astype(np.int32)
    columns = {"readings": [pa.array(sensors), pa.array((sensors % 10).astype(np.int32)), pa.array(draw.random(count))]}
    times, streams = np.arange(count, dtype=np.int64), np.zeros(count, np.int8)
    return lambda: sum(one.times.size for one in _emitted(graph, outputs, times, streams, columns))


def _average_of_rows(bench: Bench, count: int) -> Callable[[], object]:
    return _level(bench.sized(count), 1, 1000)


def _averages(bench: Bench, queries: int) -> Callable[[], object]:
    return _level(bench.sized(250_000), queries, 1000)


def _window_of(bench: Bench, window: int) -> Callable[[], object]:
    return _level(bench.sized(500_000), 1, window)
