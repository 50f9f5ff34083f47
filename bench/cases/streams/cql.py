"""Continuous queries: the trading query, the cost of recursion, of delays and turns, keys and cores, and growth."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.cases.streams.trading import (
    OFFERS,
    TRADING,
    Orders,
    TradingRows,
    bought_shares,
    collected_orders,
    loop_orders,
    our_orders,
    pandas_orders,
    read_streams,
    require_busy,
    stateful_orders,
)
from bench.engines.spark_session import CROSSING, spark_session
from bench.harness import (
    Bench,
    Case,
    Contestant,
    Timing,
    WrongAnswerError,
    measure,
    record,
    same,
    step,
    verify,
)
from bench.report.fit import power_law
from bench.starts import Started, seconds_of, seconds_of_job
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkext.streaming.cql.language.graph import Graph

Columns = Mapping[str, Sequence[pa.Array]]

NOTES = """\
All answers are checked: orders and quotas against loops written by hand, the other answers against each other.
Left out: compilation. Numba takes 5 to 30 seconds for a graph, once per machine."""

NOTES_TRADING = """\
Rows: two million offers for a thousand stocks, and between them refills of stock and cash, one row per microsecond.
Because of the refills, the same share of offers is bought in each tenth of the input. All contestants except
transformWithState read all rows. All return the same orders as a loop in Python.
In this process: the engine reads Arrow columns, the loop reads Python lists. In Spark, on one core: from a CSV file for
each stream to the orders. applyInPandas runs the loop over one group. transformWithState runs the loop with cash and
stock in Spark's state, which it reads for each offer that is cheap enough. It reads as many rows as it processes in a
minute.
Without the start: the time minus that of the same job over the rows before the first offer.
Left out: compilation, and starting the session. flink.trading compares the same query with Flink."""

NOTES_RECURSIVE = """\
The same operators on the same rows: recursive, or with the orders as one more input stream. The engine alone, one
core."""

NOTES_DELAYS = """\
The trading query with the paper's delays, with one more delay where both cycles meet, or with the delays that
missing_delay="insert" adds. All emit the same orders, an ε earlier or later. The engine alone, one core."""

NOTES_KEYS = """\
100,000 people have a quota each and make requests. Measured: from tables in Parquet to the number of granted requests.
JVM and Python share the cores. Without the start: the time minus that of the query without requests."""

NOTES_TURNS = """\
The paper's averages on two levels: of sensors, in one or several queries, and of groups of sensors. Together: all
queries process one instant before any query processes the next (time splitting). In turn: each query processes a number
of rows before the next query runs, as a scheduler of heartbeats with that batch limit runs the same operators, without
the cost of the heartbeats. The engine alone, one core; all emit the same rows."""

NOTES_GROWTH = """\
How the seconds grow with the rows, with the queries of the graph, and with the rows in a window. The engine alone, one
core."""

QUOTAS = """
REGISTER STREAM asked (who int, n int);
REGISTER STREAM granted (who int, n int);
REGISTER QUERY left_stream ISTREAM(SELECT who, n FROM granted [Now] UNION ALL
    SELECT l.who, l.n - t.n AS n FROM quota l, taken [Now] t WHERE l.who = t.who)<Now>;
REGISTER QUERY quota SELECT * FROM left_stream [Partition By who Rows 1];
REGISTER QUERY taken ISTREAM(SELECT a.who, a.n FROM asked [Now] a, quota q WHERE a.who = q.who AND q.n >= a.n);
"""
_SECONDS = 60
"""Seconds of work that transformWithState is given."""


def cases() -> list[Case]:
    """Return the cases: the paper's trading query, and the costs of its features."""
    return [
        Case("cql.trading", "orders that reduce the cash of the next", _run_trading, scaled=False, threads=1),
        Case(
            "cql.recursive",
            "recursion, compared with the same without",
            _run_recursive,
            scaled=False,
            threads=1,
        ),
        Case(
            "cql.delays",
            "positions of the delays",
            _run_delays,
            scaled=False,
            threads=1,
            named=True,
        ),
        Case("cql.turns", "all queries at once, or in turns", _run_turns, scaled=False, threads=1, named=True),
        Case("cql.keys", "quotas of 100,000 people", _run_keys, scaled=False, threaded=(1, 2), named=True),
        Case("cql.growth", "rows, queries, windows", _run_growth, scaled=False, threads=1),
    ]


# --- engines in this process ---


def _graph(text: str, missing_delay: str = "error") -> Graph:
    from sparkext.streaming.cql.language.binder import bind
    from sparkext.streaming.cql.language.graph import build_graph
    from sparkext.streaming.cql.language.parser import parse

    return build_graph(bind(parse(text)), missing_delay)


def _emitted(
    graph: Graph,
    outputs: Sequence[str],
    times: Any,
    streams: Any,
    columns: Columns,
    batch: int | None = None,
) -> list[Any]:
    """Return the output of an engine for all rows. `batch`: rows per turn of a query, 0: no turns, None: default."""
    from sparkext.kernels.runtime.jit import freeze
    from sparkext.streaming.cql.code.engine import FOR_EVER, ROWS_IN_TURN, Engine, InputRows
    from sparkext.streaming.cql.code.module_text import generate_module

    needed = graph.needed(outputs)
    code = generate_module(needed, outputs, together=batch == 0)
    engine = Engine(needed, code, words=1 << 27, limit=1000, batch=batch or ROWS_IN_TURN)
    return [*engine.run(InputRows(freeze(times), freeze(streams), columns), FOR_EVER)]


def _rows_of(emitted: Sequence[Any], query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for part in emitted:
        if part.query == query:
            columns = [part.times.tolist(), *(column.to_pylist() for column in part.columns)]
            found += zip(*columns, strict=True)
    return found


# --- trading ---


def _run_trading(bench: Bench) -> None:
    rows, orders = _busy_rows(bench)
    shares = bought_shares(rows, orders)
    graph, lists, columns = _graph(TRADING), rows.lists(), rows.columns()

    def engine() -> Orders:
        return Orders(_rows_of(_emitted(graph, ["buy_event"], rows.times, rows.streams, columns), "buy_event"))

    contestants = [
        same("sparkext, engine", engine, ours=True),
        same("a loop in Python", lambda: loop_orders(zip(*lists, strict=True))),
    ]
    in_spark = {"sparkext in Spark": our_orders, "applyInPandas": pandas_orders}
    with spark_session(1, **CROSSING, **{"spark.sql.shuffle.partitions": "1"}) as spark:
        frames = read_streams(spark, rows.write_streams(bench.folder("cql") / "trading"))
        start = read_streams(spark, rows.first(0).write_streams(bench.folder("cql") / "trading-start"))
        for name, run in in_spark.items():
            contestants.append(same(name, partial(_collected, run, frames), ours=run is our_orders))
            contestants.append(Contestant(f"{name}, start", *2 * [partial(_collected, run, start)], floor=True))
        _verify_orders(contestants, orders)
        timings = measure(bench, contestants)
        part, stateful = _stateful_timings(bench, spark, rows, start)
    record(bench, timings, len(rows), bought=shares)
    record(bench, stateful, len(part), part="transformWithState")
    if not bench.tiny:
        _print_rates([*((timing, len(rows)) for timing in timings), *((timing, len(part)) for timing in stateful)])
    print(f"bought: at least {min(shares):.0%} of the offers of each tenth")
    print(NOTES_TRADING)


def _collected(run: Callable[[Mapping[str, DataFrame]], DataFrame], frames: Mapping[str, DataFrame]) -> Orders:
    return collected_orders(run(frames))


def _stateful_timings(
    bench: Bench, spark: SparkSession, rows: TradingRows, start: Mapping[str, DataFrame]
) -> tuple[TradingRows, list[Timing]]:
    """Return as many of the first rows as `transformWithState` finishes in a minute, and its timings over them."""

    def seconds(part: TradingRows) -> float:
        frames = read_streams(spark, part.write_streams(bench.folder("cql") / "trading-part"))
        with step(f"transformWithState, {len(part):,} rows"):
            return seconds_of_job(partial(_collected, stateful_orders, frames), part.orders())

    starts = [seconds_of_job(partial(_collected, stateful_orders, start), []) for _ in range(1 if bench.tiny else 2)]
    part = rows.first(len(rows) // 100)
    taken = seconds(part)
    if not bench.tiny:
        part = rows.first(int(len(part) * _SECONDS / (taken - starts[-1])))
        taken = seconds(part)
    name = "transformWithState"
    contestants = [same(name, list), Contestant(f"{name}, start", list, list, floor=True)]
    return part, [Timing(one, [wall], [0.0]) for one, wall in zip(contestants, (taken, starts[-1]), strict=True)]


def _print_rates(timings: Sequence[tuple[Timing, int]]) -> None:
    """Print rows per second; for jobs in Spark, also without the start."""
    starts = {timing.contestant.name: timing.median for timing, _ in timings if timing.contestant.floor}
    table = []
    for timing, rows in timings:
        if not timing.contestant.floor:
            name, start = timing.contestant.name, starts.get(f"{timing.contestant.name}, start")
            alone = "" if start is None else f"{rows / (timing.median - start):,.0f}"
            table.append((name, f"{rows:,}", f"{rows / timing.median:,.0f}", alone))
    print(format_table(("", "rows", "rows a second", "without the start"), table))


# --- with and without recursion ---


def _run_recursive(bench: Bench) -> None:
    rows, orders = _busy_rows(bench)
    recursive = _graph(TRADING)
    again = TRADING.replace("buy_event [Now]", "bought [Now] buy_event")
    flat = _graph(f"REGISTER STREAM bought (id string, num int, price double); {again}")
    given = rows.times, rows.streams, rows.columns()
    times, streams, columns = _with_orders(*given, orders)

    def with_cycle() -> Orders:
        return Orders(_rows_of(_emitted(recursive, ["buy_event"], *given), "buy_event"))

    def without() -> Orders:
        return Orders(_rows_of(_emitted(flat, ["buy_event"], times, streams, columns), "buy_event"))

    contestants = [same("recursive", with_cycle, ours=True), same("what was bought as a stream", without)]
    _verify_orders(contestants, orders)
    timings = measure(bench, contestants)
    record(bench, timings, len(rows))
    if timings:  # none if the data is tiny
        _print_rates([(timing, len(rows)) for timing in timings])
        print(f"recursive: {timings[0].median / timings[1].median:.2f} times the time")
    print(NOTES_RECURSIVE)


def _busy_rows(bench: Bench) -> tuple[TradingRows, Orders]:
    """Return the rows of the trading query and the correct orders. Each tenth of the offers has purchases."""
    rows = TradingRows.generated(bench.sized(OFFERS))
    orders = rows.orders()
    require_busy(bought_shares(rows, orders))
    return rows, orders


def _verify_orders(contestants: Sequence[Contestant], orders: Orders) -> None:
    if verify(contestants) != orders:
        raise WrongAnswerError(f"all contestants give other orders than a loop in Python, {orders}")


def _with_orders(times: Any, streams: Any, columns: Columns, orders: Orders) -> tuple[Any, Any, Columns]:
    """Return all rows, with the orders inserted as rows of a fourth stream, which is the first stream of the graph."""
    at = np.array([order[0] for order in orders], np.int64)
    places = np.searchsorted(times, at, side="right")
    source = np.insert(np.arange(times.size), places, 0)
    times = np.insert(times, places, at)
    streams = np.insert(streams + 1, places, 0)
    columns = {name: [column.take(pa.array(source)) for column in arrays] for name, arrays in columns.items()}
    of = np.full(times.size, -1)
    of[streams == 0] = np.arange(len(orders))
    numbers = pa.array(of, mask=of < 0)
    kinds = ((1, pa.string()), (2, pa.int32()), (3, pa.float64()))
    bought = [pa.array([order[k] for order in orders], kind) for k, kind in kinds]
    columns["bought"] = [column.take(numbers) for column in bought]
    return times, streams.astype(np.int8), columns


# --- delays ---


def _run_delays(bench: Bench) -> None:
    rows, orders = _busy_rows(bench)
    given = rows.times, rows.streams, rows.columns()
    without = TRADING.replace(")<Now>;", ");")
    graphs = {
        "before cash and before stock": _graph(TRADING),
        "and behind orders": _graph(TRADING.replace("* 1000);", "* 1000)<Now>;")),
        "inserted": _graph(without, "insert"),
    }

    def run(graph: Graph) -> Orders:
        return Orders(_rows_of(_emitted(graph, ["buy_event"], *given), "buy_event"))

    contestants = [same(name, partial(run, graph), ours=name == "inserted") for name, graph in graphs.items()]
    _verify_orders(contestants, orders)
    timings = measure(bench, contestants)
    record(bench, timings, len(rows))
    if timings:  # none if the data is tiny
        _print_rates([(timing, len(rows)) for timing in timings])
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
            if timings:  # none if the data is tiny
                rows.append((str(queries), str(alike), *(f"{count / timing.median:,.0f}" for timing in timings)))
    if rows:
        print(format_table(("queries", "rows of a time", *names.values()), rows))
    print(NOTES_TURNS)


def _averages_in_turn(graph: Graph, given: tuple[Any, Any, Columns], batch: int) -> str:
    """Return a digest of the results."""
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
    """Return `count` rows; each timestamp has `alike` rows."""
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
            seconds.whole.append(seconds_of_job(partial(_quotas, rows, granted), expected))
            seconds.start.append(seconds_of_job(partial(_quotas, rows.where("false"), granted), (0, None)))
    rates = seconds.rates(asks)
    seconds.record(bench, "sparkext", asks)
    print(format_table(("rows a second", "without the start"), [tuple(f"{rate:,.0f}" for rate in rates)]))
    print(NOTES_KEYS)


def _granted(who: Sequence[int], wanted: Sequence[int], quota: list[int]) -> tuple[int, int]:
    rows = total = 0
    for person, n in zip(who, wanted, strict=True):
        if quota[person] >= n:
            quota[person] -= n
            rows, total = rows + 1, total + n
    return rows, total


def _quotas(asked: DataFrame, granted: DataFrame) -> tuple[Any, ...]:
    """Return the number of granted rows, and the sum of their `n`."""
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
                taken = [seconds_of(work) for _ in range(1 if bench.tiny else 3)]
            timed = {"rows": size, "size": size, "of": what, "seconds": taken}
            bench.record(part=f"{what}: {size:,}", contestant="sparkext", ours=True, **timed)
            seconds.append(min(taken))
        law = power_law(sizes, seconds)
        rows.append(
            (what, f"{sizes[0]:,} to {sizes[-1]:,}", " ".join(f"{one:.2f}" for one in seconds), f"{law.exponent:.2f}")
        )
    print(format_table(("", "", "seconds", "exponent"), rows))
    print(NOTES_GROWTH)


def _level(count: int, queries: int, window: int) -> Callable[[], object]:
    """Return a run of the paper's two levels, averages by sensor and by group, with `queries` queries of each."""
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
