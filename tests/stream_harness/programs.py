"""Programs of continuous queries. There are few, because numba needs about ten seconds to compile each."""

from __future__ import annotations

from dataclasses import dataclass

from bench.cases.streams.cql import TRADING
from tests.stream_harness.functions import CHAIN, COUNT


@dataclass(frozen=True)
class Program:
    """A program's text, the columns of its streams, and the queries that are emitted.

    `by_key`: rows are partitioned by the first column of every output.
    """

    text: str
    streams: dict[str, tuple[tuple[str, str], ...]]
    outputs: tuple[str, ...]
    by_key: bool


QUOTAS = """
    REGISTER STREAM asked (who string, n int NOT NULL);
    REGISTER STREAM granted (n bigint, who string);
    REGISTER QUERY left_stream ISTREAM(SELECT who, n FROM granted [Now] UNION ALL
        SELECT l.who, l.n - t.n AS n FROM quota l, taken [Now] t WHERE l.who = t.who)<Now>;
    REGISTER QUERY quota SELECT * FROM left_stream [Partition By who Rows 1];
    REGISTER QUERY taken ISTREAM(SELECT a.who, a.n FROM asked [Now] a, quota q WHERE a.who = q.who AND q.n >= a.n);
    REGISTER QUERY busy SELECT who, count(*) AS times, sum(n) AS n FROM taken [Range 3 seconds] GROUP BY who;
    REGISTER QUERY calmed DSTREAM(SELECT who, times FROM busy WHERE times > 1);
"""
"""Each request is granted the remainder of a quota."""

WINDOWS = """
    REGISTER STREAM readings (k string, v bigint, x double, good boolean);
    REGISTER QUERY recent SELECT k, count(*) AS n, sum(v) AS v, max(x) AS x FROM readings [Range 4 seconds] GROUP BY k;
    REGISTER QUERY grown ISTREAM(SELECT k, n, v, x FROM recent WHERE n > 1);
    REGISTER QUERY gone DSTREAM(SELECT k, v FROM readings [Partition By k Rows 2] WHERE good);
    REGISTER QUERY shown RSTREAM[3 seconds](SELECT k, v FROM readings [Range 5 seconds] WHERE x >= 1.0);
"""

PAIRS = """
    REGISTER STREAM points (p bigint, price double);
    REGISTER STREAM spans (s bigint, low double, high double);
    REGISTER QUERY pairs ISTREAM(SELECT points.p, spans.s, points.price FROM points [Range 5 seconds],
        spans [Range 3 seconds] WHERE points.price >= spans.low AND points.price < spans.high);
    REGISTER QUERY few ISTREAM(SELECT DISTINCT price FROM pairs [Rows 3]);
"""

STEPS = f"""
    REGISTER STREAM steps (`{COUNT}` bigint, {CHAIN} bigint);
    REGISTER QUERY most ISTREAM(SELECT max({CHAIN}) AS {CHAIN}, sum(`{COUNT}`) AS n FROM steps [Range 5 seconds]);
"""
"""A program for results of `ordered`."""

PROGRAMS = {
    "trading": Program(
        TRADING,
        {
            "market": (("id", "string"), ("price", "double")),
            "initial_resource": (("val", "double"),),
            "stock_events": (("id", "string"), ("num", "int")),
        },
        ("buy_event",),
        by_key=False,
    ),
    "quotas": Program(
        QUOTAS,
        {"asked": (("who", "string"), ("n", "int")), "granted": (("n", "bigint"), ("who", "string"))},
        ("taken", "calmed"),
        by_key=True,
    ),
    "windows": Program(
        WINDOWS,
        {"readings": (("k", "string"), ("v", "bigint"), ("x", "double"), ("good", "boolean"))},
        ("grown", "gone", "shown"),
        by_key=True,
    ),
    "pairs": Program(
        PAIRS,
        {
            "points": (("p", "bigint"), ("price", "double")),
            "spans": (("s", "bigint"), ("low", "double"), ("high", "double")),
        },
        ("pairs", "few"),
        by_key=False,
    ),
    "steps": Program(STEPS, {"steps": ((COUNT, "bigint"), (CHAIN, "bigint"))}, ("most",), by_key=False),
}
