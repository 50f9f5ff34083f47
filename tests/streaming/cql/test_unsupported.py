"""SQL that CQL does not support is an error with its position and a replacement."""

from __future__ import annotations

import pytest

from sparkext.streaming.cql.language.problems import CqlProblems
from sparkext.streaming.cql.language.unsupported import MESSAGES
from tests.streaming.cql.graphs import graph

REGISTERED = (
    "REGISTER STREAM s (a int, b string, c double, t timestamp); REGISTER QUERY r SELECT a, c FROM s [Now];"
    "\nREGISTER QUERY q "
)
UNSUPPORTED = {
    "SELECT s.a FROM s [Now] ▶LEFT JOIN r ON s.a = r.a": "outer joins are not supported: write the inner JOIN",
    "SELECT x.a FROM s [Now] x ▶left outer join r ON x.a = r.a": "outer joins are not supported",
    "SELECT x.a FROM s [Now] AS x ▶RIGHT JOIN r ON x.a = r.a": "outer joins are not supported",
    "SELECT s.a FROM s [Now] ▶FULL OUTER JOIN r ON s.a = r.a": "outer joins are not supported",
    "SELECT s.a FROM s [Now] ▶LEFT -- all\n JOIN r ON s.a = r.a": "outer joins are not supported",
    "SELECT s.a FROM s [Now] ▶LEFT SEMI JOIN r ON s.a = r.a": "semi joins are not supported: write an inner JOIN",
    "SELECT s.a FROM s [Now] ▶SEMI JOIN r ON s.a = r.a": "semi joins are not supported",
    "SELECT s.a FROM s [Now] ▶LEFT ANTI JOIN r ON s.a = r.a": "anti joins are not supported: write SELECT … EXCEPT",
    "SELECT s.a FROM s [Now] ▶ANTI JOIN r ON s.a = r.a": "anti joins are not supported",
    "SELECT s.a FROM s [Now] ▶CROSS JOIN r": "CROSS JOIN is not supported: write a comma",
    "SELECT s.a FROM s [Now] ▶NATURAL JOIN r": "NATURAL JOIN and USING are not supported: write JOIN … ON a.k = b.k",
    "SELECT s.a FROM s [Now] JOIN r ▶USING (a)": "NATURAL JOIN and USING are not supported",
    "SELECT s.a FROM s [Now] ▶ASOF JOIN r ON s.a = r.a": "as-of joins are not supported: join with the last row",
    "SELECT a FROM s [Now] ▶LATERAL VIEW explode(b) x AS y": "LATERAL is not supported: explode arrays",
    "SELECT a FROM s [Now], LATERAL explode▶(b)": "functions in FROM are not supported",
    "SELECT a FROM TABLE▶(TUMBLE(TABLE s, DESCRIPTOR(t), 5))": "functions in FROM are not supported: write a stream",
    "SELECT a FROM r ▶ORDER BY a": "ORDER BY and SORT BY are not supported: a relation has no order",
    "SELECT a FROM r x ▶SORT BY a": "ORDER BY and SORT BY are not supported",
    "SELECT a FROM r ▶LIMIT 5": "LIMIT, OFFSET and FETCH are not supported: use [Rows n]",
    "SELECT a FROM r WHERE a > 1 ▶limit 5": "LIMIT, OFFSET and FETCH are not supported",
    "SELECT a FROM r ▶OFFSET 5": "LIMIT, OFFSET and FETCH are not supported",
    "SELECT a FROM r ▶FETCH FIRST 5 ROWS ONLY": "LIMIT, OFFSET and FETCH are not supported",
    "SELECT TOP ▶5 a FROM r": "TOP is not supported: use [Rows n]",
    "SELECT a FROM ▶(SELECT a FROM r) x": "subqueries are not supported: register the inner SELECT",
    "SELECT a FROM ▶(VALUES (1)) x": "subqueries are not supported",
    "SELECT a FROM r WHERE a IN (▶SELECT a FROM s [Now])": "subqueries are not supported",
    "SELECT a FROM r WHERE NOT EXISTS (▶SELECT a FROM s [Now])": "subqueries are not supported",
    "SELECT a FROM r WHERE a = (▶SELECT max(a) FROM s [Now])": "subqueries are not supported",
    "▶WITH x AS (SELECT a FROM r) SELECT a FROM x": "WITH is not supported: register each of its SELECTs as a separate",
    "ISTREAM(▶WITH x AS (SELECT a FROM r) SELECT a FROM x)": "WITH is not supported",
    "SELECT sum(a) ▶OVER (PARTITION BY b) AS x FROM s [Now]": "window functions are not supported: use GROUP BY and",
    "SELECT a FROM s [Now] ▶WINDOW w AS (PARTITION BY b)": "window functions are not supported",
    "SELECT a FROM s [Now] ▶QUALIFY a = 1": "window functions are not supported",
    "SELECT s.a FROM s [Now] JOIN r ▶WITHIN 5 MINUTES ON s.a = r.a": "WITHIN is not supported: write durations",
    "SELECT p(0.5) ▶WITHIN GROUP (ORDER BY a) FROM r": "WITHIN GROUP is not supported: the aggregates are COUNT",
    "SELECT a FROM s [Now] ▶EMIT CHANGES": "EMIT is not supported: ISTREAM, DSTREAM or RSTREAM states",
    "SELECT sum(a) ▶FILTER (WHERE a > 1) AS x FROM r": "FILTER is not supported: write SUM(CASE WHEN condition THEN x",
    "SELECT a FROM r ▶PIVOT (sum(a) FOR c IN (1))": "PIVOT and UNPIVOT are not supported: write SUM(CASE WHEN",
    "SELECT a FROM r ▶TABLESAMPLE (5 ROWS)": "TABLESAMPLE is not supported: sample the input DataFrame",
    "SELECT a FROM r GROUP BY ▶ROLLUP(a)": "ROLLUP, CUBE and GROUPING SETS are not supported: write a SELECT",
    "SELECT a FROM r GROUP BY a ▶WITH CUBE": "ROLLUP, CUBE and GROUPING SETS are not supported",
    "SELECT a FROM r GROUP BY GROUPING ▶SETS ((a), ())": "ROLLUP, CUBE and GROUPING SETS are not supported",
    "SELECT a FROM r GROUP BY ▶ALL": "GROUP BY ALL is not supported: write each formula",
    "SELECT ▶ALL a FROM r": "SELECT ALL is not supported: leave ALL out",
    "SELECT a FROM r ▶MINUS SELECT a FROM s [Now]": "MINUS is not supported: write EXCEPT",
    "SELECT a FROM r UNION ▶DISTINCT SELECT a FROM s [Now]": "DISTINCT is not supported here: leave it out",
    "SELECT a FROM r WHERE a IS ▶DISTINCT FROM 1": "IS DISTINCT FROM is not supported: write NOT (a <=> b)",
    "SELECT a FROM r WHERE a IS NOT ▶DISTINCT FROM 1": "IS NOT DISTINCT FROM is not supported: write a <=> b",
    "SELECT a FROM r WHERE (a = 1) IS NOT ▶TRUE": "IS TRUE and IS FALSE are not supported: write a <=> TRUE",
    "SELECT a FROM r WHERE (a = 1) IS ▶UNKNOWN": "IS UNKNOWN is not supported: write IS NULL",
    "SELECT a FROM s [Now] WHERE b ▶ILIKE 'x'": "ILIKE is not supported: write lower(a) LIKE 'pattern'",
    "SELECT a FROM s [Now] WHERE b ▶SIMILAR TO 'x'": "REGEXP and SIMILAR TO are not supported: write a RLIKE",
    "SELECT a FROM s [Now] WHERE b LIKE '!%' ▶ESCAPE '!'": "ESCAPE is not supported: the escape character is \\",
    "SELECT CASE ▶a WHEN 1 THEN 2 END AS x FROM r": "CASE of a value is not supported: write CASE WHEN value = …",
    "SELECT EXTRACT(year ▶FROM t) AS x FROM s [Now]": "EXTRACT is not supported: write year(t)",
    "SELECT a FROM s [Now] WHERE t > t - INTERVAL ▶'5' minute": "intervals are not supported: write durations",
    "SELECT a ▶DIV 2 AS x FROM r": "DIV is not supported: write (a - a % b) / b",
    "SELECT a FROM r WHERE a =▶= 1": "== is not supported: write =",
    "SELECT a FROM r WHERE ▶!(a = 1)": "! is not supported: write NOT",
    "SELECT a ▶& 1 AS x FROM r": "bitwise operators are not supported: compute the column in the input",
    "SELECT b ▶|| 'x' AS x FROM s [Now]": "|| is not supported: write concat(a, b)",
    "SELECT a▶::double AS x FROM r": ":: is not supported: write CAST(a AS type)",
    "SELECT a▶[0] AS x FROM r": "arrays and maps are not supported: select the element in the input",
    "SELECT r.a▶.x AS x FROM r": "structs are not supported: select the field in the input",
    "SELECT a FROM r; ▶SELECT 1": "a SELECT needs a name: write REGISTER QUERY name",
    "SELECT a FROM r; ▶CREATE STREAM x (a int)": "CREATE is not supported: write REGISTER STREAM",
}


@pytest.mark.parametrize("marked", UNSUPPORTED)
def test_unsupported_sql_is_named_at_its_place(marked: str) -> None:
    text = REGISTERED + marked.replace("▶", "")
    before = (REGISTERED + marked.partition("▶")[0]).splitlines()
    with pytest.raises(CqlProblems) as raised:
        graph(text)
    (problem,) = raised.value.problems
    assert problem.startswith(f"line {len(before)}, column {len(before[-1]) + 1}: {UNSUPPORTED[marked]}")


def test_each_message_has_a_case() -> None:
    missing = [message for message in MESSAGES if not any(message.startswith(start) for start in UNSUPPORTED.values())]
    assert not missing


@pytest.mark.parametrize(
    "relation",
    [
        "SELECT DISTINCT CASE WHEN a IN (1, 2) THEN 1 ELSE 2 END AS x FROM r WHERE a NOT IN (3) AND a BETWEEN 1 AND 2",
        "SELECT a, count(DISTINCT c) AS n, sum(c) / 2 AS m FROM r GROUP BY a HAVING count(*) > 1",
        "SELECT x.a FROM s [Now] x INNER JOIN r AS y ON x.a = y.a JOIN s [Rows 1] z ON z.a = y.a",
        "SELECT a FROM r UNION ALL SELECT a FROM s [Now] EXCEPT SELECT 1 AS a FROM r INTERSECT ALL SELECT a FROM r",
        "SELECT left(b, 1) AS x, right(b, 1) AS y FROM s [Now] WHERE b LIKE 'a\\%' OR b RLIKE 'x|y'",
        "SELECT left.a AS order, left.c AS limit FROM r AS left",
        'SELECT "left".a `order` FROM r "left"',
    ],
)
def test_supported_sql_is_read(relation: str) -> None:
    assert "q" in graph(REGISTERED + relation).queries


def test_words_of_sql_may_name_streams_columns_and_queries() -> None:
    text = "REGISTER STREAM full (order int, limit int); REGISTER QUERY cross SELECT order, limit FROM full [Now]"
    assert [column.name for column in graph(text).queries["cross"].columns] == ["order", "limit"]
