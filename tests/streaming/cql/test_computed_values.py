"""String and time functions of continuous queries give the values of Spark's functions."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from sparkext.streaming.cql.language.computed import SIGNATURES
from sparkext.streams import cql

START = datetime(2026, 1, 31, 23, 30)
CALLS = (
    *("upper(id)", "lower(id)", "trim(id)", "ltrim(id)", "rtrim(id)", "reverse(id)", "initcap(id)"),
    *("concat(id, '-', other)", "substring(id, 2)", "substr(id, -3, 2)", "left(id, k)", "right(id, 2)"),
    *("lpad(id, 6, '*')", "rpad(id, 6)", "replace(id, 'a', NULL)", "regexp_replace(id, '[ab]+', 'x')"),
    *("regexp_extract(id, '(b)(c?)', 2)", "regexp_extract(id, '(b)')", "split_part(id, ' ', -1)", "length(id)"),
    *("instr(id, other)", "startswith(id, 'a')", "endswith(id, other)", "contains(id, 'b')", "id LIKE 'a%'"),
    *("id NOT LIKE other", "id RLIKE '^a'", "id NOT RLIKE 'b'", "year(ts)", "quarter(born)", "month(born)", "day(ts)"),
    *("dayofweek(ts)", "dayofyear(born)", "hour(ts)", "minute(ts)", "second(ts)", "date_trunc('hour', ts)"),
    "upper(concat(left(id, 1), lower(other)))",
)


def test_every_function_is_sparks(spark: SparkSession) -> None:
    texts = ["abc", "", None, "a%b", " Ab c ", "äß", "bcb ab", "a_b", "B"]
    rows = [
        (
            text,
            texts[place * 5 % 9],
            place % 4 or None,
            START.date(),
            START + timedelta(minutes=13 * place, seconds=place),
        )
        for place, text in enumerate(texts * 4)
    ]
    frame = spark.createDataFrame(rows, "id string, other string, k int, born date, ts timestamp")
    named = ", ".join(f"{call} AS c{place}" for place, call in enumerate(CALLS))
    queries = cql(f"""
        REGISTER STREAM s (id string, other string, k int, born date, ts timestamp);
        REGISTER QUERY q ISTREAM(SELECT {named} FROM s [Now]);
    """)
    found = queries.output("q", s=frame.withColumn("time", frame["ts"]), time="time")
    expected = frame.selectExpr(*(f"{call} AS c{place}" for place, call in enumerate(CALLS)), "ts AS time")
    assert [field.dataType for field in found.schema] == [field.dataType for field in expected.schema]
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))
    assert {
        name for name in SIGNATURES if any(f"{name}(" in call or f" {name.upper()} " in call for call in CALLS)
    } == {*SIGNATURES}


def test_groups_and_conditions_of_what_is_computed(spark: SparkSession) -> None:
    names = ["ann", "Anna", "bob", None, "ANN", "Bob"] * 5
    rows = [(name, START + timedelta(seconds=place)) for place, name in enumerate(names)]
    frame = spark.createDataFrame(rows, "name string, ts timestamp")
    queries = cql("""
        REGISTER STREAM s (name string);
        REGISTER QUERY seen SELECT upper(name) AS who, count(*) AS times FROM s [Range Unbounded]
            WHERE length(name) = 3 GROUP BY upper(name);
        REGISTER QUERY q ISTREAM(SELECT * FROM seen WHERE times > 9);
    """)
    assert "computed  length(name), upper(name) of s" in queries.describe()
    assert "key       s.upper(name)" in queries.describe()
    found = queries.output("q", s=frame, time="ts").collect()
    assert [tuple(row) for row in found] == [
        ("ANN", 10, START + timedelta(seconds=28)),
        ("BOB", 10, START + timedelta(seconds=29)),
    ]
