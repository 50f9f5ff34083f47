"""Continuous queries: the trading query, recursion beside none, keys and cores, and how time grows."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.fit import power_law
from bench.harness import Bench, Case, measure, record, same, step, verify
from bench.spark_session import CROSSING, spark_session
from bench.starts import Started, seconds_of
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
Parquet to orders, one core; applyInPandas runs the same loop in one group. transformWithState: the loop with cash and
stock in Spark's states, which it asks for each offer that is cheap enough; a hundredth of the offers.
Left out: compilation, and for Spark the start of the session. Beside Flink: flink.trading."""

NOTES_RECURSIVE = """\
The same operators on the same rows: recursive, or with what was bought as one more stream of rows. The engine alone,
one core."""

NOTES_DELAYS = """\
The trading query with its delays where the paper has them, with one more where both circles meet, or as
missing_delay="insert" puts them. All give the same orders: an ε earlier or later, which nobody sees. The engine alone,
one core."""

NOTES_KEYS = """\
100,000 people, of whom each has a quota, ask a number of times each: tables in Parquet to a count of what is
granted. JVM and Python share the cores. Without the start: less the time of a query for which nobody asks."""

NOTES_TURNS = """\
The paper's averages on two levels: of sensors, in one query or several, each a stream, and of the groups of them all.
Together: all queries at one instant before any is at the next (time splitting). In turn: each goes on for as many rows
before the next follows, which is how a scheduler of heartbeats with that batch limit runs the same operators, but for
what heartbeats cost. The engine alone, one core; the same rows from all."""

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
_FEWER = 100
"""Of how many offers transformWithState gets one."""


def cases() -> list[Case]:
    """The paper's query, and what it costs."""
    return [
        Case("cql.trading", "orders that reduce the cash of the next", _run_trading, scaled=False, threads=1),
        Case("cql.recursive", "recursion beside the same without", _run_recursive, scaled=False, threads=1),
        Case("cql.delays", "where a delay breaks the circles", _run_delays, scaled=False, threads=1, named=True),
        Case("cql.turns", "all queries at once, or in turns", _run_turns, scaled=False, threads=1, named=True),
        Case("cql.keys", "quotas of 100,000 people", _run_keys, scaled=False, threaded=(1, 2), named=True),
        Case("cql.growth", "rows, queries, windows", _run_growth, scaled=False, threads=1),
    ]


# --- engines in this process ---


def _graph(text: str, missing_delay: str = "error") -> Graph:
    from sparkext.cql.binder import bind
    from sparkext.cql.graph import graph_of
    from sparkext.cql.parser import parse

    return graph_of(bind(parse(text)), missing_delay)


def _emitted(
    graph: Graph,
    outputs: Sequence[str],
    times: Any,
    streams: Any,
    columns: Columns,
    batch: int | None = None,
) -> list[Any]:
    """Return what an engine emits of all rows. `batch`: rows in turn, 0: all queries at once, None: as it is."""
    from sparkext.cql.code import code_of
    from sparkext.cql.engine import FOR_EVER, ROWS_IN_TURN, Engine, Given
    from sparkext.kernels.jit import frozen

    needed = graph.needed(outputs)
    code = code_of(needed, outputs, together=batch == 0)
    engine = Engine(needed, code, words=1 << 27, limit=1000, batch=batch or ROWS_IN_TURN)
    return [*engine.run(Given(frozen(times), frozen(streams), columns), FOR_EVER)]


def _rows_of(emitted: Sequence[Any], query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for part in emitted:
        if part.query == query:
            columns = [part.times.tolist(), *(column.to_pylist() for column in part.columns)]
            found += zip(*columns, strict=True)
    return found


# --- trading ---


class Offers:
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
        self.values = np.concatenate([[_CASH], np.zeros(_STOCKS), self.prices])
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
    offers = Offers(bench.sized(2_000_000))
    graph = _graph(TRADING)
    rows = offers.times[1 + _STOCKS :].tolist(), offers.ids.to_pylist(), offers.prices.to_pylist()

    def engine() -> Any:
        emitted = _emitted(graph, ["buy_event"], offers.times, offers.streams, offers.columns)
        return _rows_of(emitted, "buy_event")

    loop = same("a loop in Python", lambda: _looped(*rows, offers.stocks))
    contestants = [same("sparkext, engine", engine, ours=True), loop]
    with spark_session(1, **CROSSING, **{"spark.sql.shuffle.partitions": "1"}) as spark:
        frames = tables_of(spark, bench, offers)
        contestants += [
            same("sparkext in Spark", lambda: bought_in(our_orders(frames)), ours=True),
            same("applyInPandas", lambda: bought_in(_pandas(frames, offers.stocks))),
        ]
        verify(contestants)
        timings = measure(bench, contestants)
        few = max(1, offers.count // _FEWER)
        orders = _looped(*(column[:few] for column in rows), offers.stocks)
        job = partial(_with_state, frames, int(offers.times[_STOCKS + few]))
        rate = few / [seconds_of(job, orders) for _ in range(2)][-1]
    record(bench, timings, offers.count)
    bench.record(contestant="transformWithState", rows=few, rows_per_second=rate)
    rates = [(one.contestant.name, f"{offers.count / one.median:,.0f}") for one in timings]
    print(text_table(("", "offers a second"), [*rates, ("transformWithState", f"{rate:,.0f}")]))
    print(NOTES_TRADING)


def _with_state(frames: Mapping[str, DataFrame], until: int) -> list[Any]:
    """The loop by `transformWithStateInPandas`: cash is a value state, and stock a map state."""
    import pandas as pd
    from pyspark.sql import functions as F
    from pyspark.sql.streaming import StatefulProcessor

    class Buying(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._cash = handle.getValueState("cash", "val double")
            self._stock = handle.getMapState("stock", "id string", "num int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            orders = []
            for row in pd.concat([*rows]).sort_values(["ts", "stream"]).itertuples(index=False):
                if row.stream == 0:
                    self._cash.update((row.value,))
                elif row.stream == 1:
                    self._stock.updateValue((row.id,), (0,))
                elif row.value < 500 and self._stock.getValue((row.id,))[0] == 0:
                    (cash,) = self._cash.get()
                    if cash > row.value * 1000:
                        self._stock.updateValue((row.id,), (1000,))
                        self._cash.update((cash - row.value * 1000,))
                        orders.append((row.id, 1000, row.value, row.ts))
            yield pd.DataFrame(orders, columns=["id", "num", "price", "ts"])

        def close(self) -> None:
            pass

    offered = frames["market"].where(F.unix_micros("ts") <= until)
    rows = frames["initial_resource"].select(F.lit(0).alias("stream"), F.lit("").alias("id"), F.col("val"), "ts")
    rows = rows.union(frames["stock_events"].select(F.lit(1), "id", F.lit(0.0), "ts"))
    rows = rows.union(offered.select(F.lit(2), "id", "price", "ts")).withColumnRenamed("val", "value")
    grouped = rows.withColumn("all", F.lit(0)).groupBy("all")
    return bought_in(
        grouped.transformWithStateInPandas(Buying(), "id string, num int, price double, ts timestamp", "Append", "None")
    )


def tables_of(spark: SparkSession, bench: Bench, offers: Offers) -> dict[str, DataFrame]:
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


def our_orders(frames: Mapping[str, DataFrame]) -> DataFrame:
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


def bought_in(frame: DataFrame) -> list[Any]:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    rows = frame.collect()
    found = []
    for name, num, price, ts in rows:
        found.append(((ts.astimezone(timezone.utc) - epoch) // timedelta(microseconds=1), name, num, price))
    return found


# --- with and without recursion ---


def _run_recursive(bench: Bench) -> None:
    offers = Offers(bench.sized(2_000_000))
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


def _with_orders(offers: Offers, orders: Sequence[tuple[Any, ...]]) -> tuple[Any, Any, Columns]:
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


# --- delays ---


def _run_delays(bench: Bench) -> None:
    offers = Offers(bench.sized(2_000_000))
    without = TRADING.replace(")<Now>;", ");")
    graphs = {
        "before cash and before stock": _graph(TRADING),
        "and behind orders": _graph(TRADING.replace("* 1000);", "* 1000)<Now>;")),
        "inserted": _graph(without, "insert"),
    }

    def orders(graph: Graph) -> Any:
        emitted = _emitted(graph, ["buy_event"], offers.times, offers.streams, offers.columns)
        return _rows_of(emitted, "buy_event")

    contestants = [same(name, partial(orders, graph), ours=name == "inserted") for name, graph in graphs.items()]
    verify(contestants)
    timings = measure(bench, contestants)
    record(bench, timings, offers.count)
    rates = [(timing.contestant.name, f"{offers.count / timing.median:,.0f}") for timing in timings]
    print(text_table(("delays", "offers a second"), rates))
    print(f"inserted: at {' and '.join(graphs['inserted'].inserted)}\n{NOTES_DELAYS}")


# --- turns ---


def _run_turns(bench: Bench) -> None:
    count = bench.sized(500_000)
    names = {0: "together", **{batch: f"{batch:,} in turn" for batch in (1, 10, 100, 1000, 10_000)}}
    rows = []
    for queries in (1, 2, 4):
        graph = _graph(_two_levels(queries))
        for alike in (1, 4):
            part, given = f"{queries} queries, {alike} rows of a time", _readings(count, alike)
            contestants = [
                same(name, partial(_averages_in_turn, graph, given, batch), ours=batch == 100)
                for batch, name in names.items()
            ]
            with step(part):
                verify(contestants)
                timings = measure(bench, contestants)
            record(bench, timings, count, part=part)
            if timings:  # or the data is tiny
                rows.append((str(queries), str(alike), *(f"{count / timing.median:,.0f}" for timing in timings)))
    if rows:
        print(text_table(("queries", "rows of a time", *names.values()), rows))
    print(NOTES_TURNS)


def _averages_in_turn(graph: Graph, given: tuple[Any, Any, Columns], batch: int) -> str:
    """Return what tells results from others."""
    parts = _emitted(graph, ["high"], *given, batch=batch)
    digest = hashlib.sha256()
    for columns in ([part.times for part in parts], *zip(*(part.columns for part in parts), strict=True)):
        digest.update(np.concatenate([np.asarray(one) for one in columns]).tobytes())
    return digest.hexdigest()


def _two_levels(queries: int) -> str:
    text = "REGISTER STREAM readings (sensor int, part int, level double);"
    low = "SELECT sensor, part, avg(level) AS level FROM readings [Range 1000 us]"
    for number in range(queries):
        where = f"WHERE sensor % {queries} = {number}"
        text += f"REGISTER QUERY low{number} ISTREAM({low} {where} GROUP BY sensor, part);"
    lows = " UNION ALL ".join(f"SELECT * FROM low{number} [Range 1000 us]" for number in range(queries))
    text += f"REGISTER QUERY lows {lows};"
    return text + "REGISTER QUERY high ISTREAM(SELECT part, avg(level) AS level FROM lows GROUP BY part);"


def _readings(count: int, alike: int) -> tuple[Any, Any, Columns]:
    """Return rows of which as many have the same timestamp."""
    draw = np.random.default_rng(3)
    sensors = draw.integers(0, 1000, count).astype(np.int32)
    columns = {"readings": [pa.array(sensors), pa.array((sensors % 10).astype(np.int32)), pa.array(draw.random(count))]}
    return np.arange(count, dtype=np.int64) // alike, np.zeros(count, np.int8), columns


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
    settings = {"spark.sql.shuffle.partitions": str(bench.threads)}
    seconds = Started()
    with spark_session(bench.threads, **CROSSING, **settings) as spark, step("quotas"):
        rows = spark.read.parquet(str(folder / "asked.parquet"))
        granted = spark.read.parquet(str(folder / "granted.parquet"))
        for _ in range(1 if bench.tiny else 1 + bench.runs):
            seconds.whole.append(seconds_of(partial(_quotas, rows, granted), expected))
            seconds.start.append(seconds_of(partial(_quotas, rows.where("false"), granted), (0, None)))
    rates = seconds.rates(asks)
    bench.record(contestant="sparkext", rows_per_second=rates[0], without_start=rates[1])
    print(text_table(("rows a second", "without the start"), [tuple(f"{rate:,.0f}" for rate in rates)]))
    print(NOTES_KEYS)


def _granted(who: Sequence[int], wanted: Sequence[int], quota: list[int]) -> tuple[int, int]:
    rows = total = 0
    for person, n in zip(who, wanted, strict=True):
        if quota[person] >= n:
            quota[person] -= n
            rows, total = rows + 1, total + n
    return rows, total


def _quotas(asked: DataFrame, granted: DataFrame) -> tuple[Any, ...]:
    """Return how many rows are granted, and how much in all."""
    from pyspark.sql import functions as F

    from sparkext.streams import cql

    taken = cql(QUOTAS).output("taken", time="ts", granted=granted, asked=asked)
    return tuple(taken.agg(F.count("*"), F.sum("n")).collect()[0])


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
    graph, given = _graph(text), _readings(count, 1)
    return lambda: sum(one.times.size for one in _emitted(graph, outputs, *given))


def _average_of_rows(bench: Bench, count: int) -> Callable[[], object]:
    return _level(bench.sized(count), 1, 1000)


def _averages(bench: Bench, queries: int) -> Callable[[], object]:
    return _level(bench.sized(250_000), queries, 1000)


def _window_of(bench: Bench, window: int) -> Callable[[], object]:
    return _level(bench.sized(500_000), 1, window)
