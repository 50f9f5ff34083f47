"""String and time functions: the calls that become a computed column of a stream, and the calls that are refused."""

from __future__ import annotations

import pytest

from sparkext.streaming.cql.language.problems import CqlProblems
from sparkext.streaming.cql.language.types import BOOL, INT, STRING
from tests.streaming.cql.graphs import graph

STREAMS = """
    REGISTER STREAM s (id string, k int, at timestamp, born date);
    REGISTER STREAM t (id string);
"""


def columns(text: str, stream: str = "s") -> list[tuple[str, object]]:
    """Return the computed columns of a stream."""
    found = graph(STREAMS + text).streams[stream]
    return [(one.name, one.type) for one in found.columns[len(found.registered) :]]


def test_a_call_is_a_column_wherever_it_is_written_again() -> None:
    text = """
        REGISTER QUERY a ISTREAM(SELECT Upper(x.ID) AS u, length(id) + 1 AS n FROM s [Now] x WHERE id LIKE 'a%');
        REGISTER QUERY b ISTREAM(SELECT upper(s.id) AS u, count(*) AS n FROM s [Rows 5] GROUP BY upper(id));
    """
    assert columns(text) == [("like(id, 'a%')", BOOL), ("upper(id)", STRING), ("length(id)", INT)]
    assert columns(text, "t") == []
    queries = graph(STREAMS + text).queries
    assert [(one.name, one.type) for one in queries["a"].columns] == [("u", STRING), ("n", INT)]
    assert all(read.columns == graph(STREAMS + text).streams["s"].columns for read in queries["b"].plan.inputs)


def test_calls_of_calls_are_one_column() -> None:
    text = "REGISTER QUERY q ISTREAM(SELECT substr(concat(upper(id), '-', NULL), -2) AS x FROM s [Now]);"
    assert columns(text) == [("substr(concat(upper(id), '-', NULL), -2)", STRING)]


def test_calls_that_look_alike_are_two_columns() -> None:
    """Computed columns are identified by the exact spelling of the call."""
    text = """
        REGISTER STREAM odd (a string, `a, a` string);
        REGISTER QUERY q ISTREAM(SELECT concat(id, 'a', 'b') AS x, concat(id, 'a'', ''b') AS y FROM s [Now]);
        REGISTER QUERY r ISTREAM(SELECT concat(a, a) AS x, concat(`a, a`) AS y FROM odd [Now]);
    """
    assert [name for name, _ in columns(text)] == ["concat(id, 'a', 'b')", "concat(id, 'a'', ''b')"]
    assert [name for name, _ in columns(text, "odd")] == ["concat(a, a)", "concat(`a, a`)"]


def test_nobody_sees_what_is_computed() -> None:
    text = "REGISTER QUERY q ISTREAM(SELECT s.*, year(born) AS y FROM s [Now] WHERE NOT id RLIKE 'x');"
    assert [one.name for one in graph(STREAMS + text).queries["q"].columns] == ["id", "k", "at", "born", "y"]
    with pytest.raises(CqlProblems, match=r"there is no column year\(born\)"):
        graph(STREAMS + text + "REGISTER QUERY r ISTREAM(SELECT `year(born)` FROM s [Now])")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("upper(k)", "UPPER takes a text, not int"),
        ("upper(s.id, s.id)", "UPPER takes a text"),
        ("substring(id)", r"SUBSTRING takes a text, an int, \[an int\]"),
        ("concat()", "CONCAT takes texts"),
        ("hour(born)", "HOUR takes a timestamp, not date"),
        ("s.id LIKE k", "LIKE takes a text, a text, not int"),
        ("upper('a')", "UPPER of columns of 0 sources"),
        ("left(s.id, k + 1)", "LEFT is computed for input rows: expected columns, constants and such calls"),
        ("concat(s.id, u.id)", "CONCAT of columns of 2 sources"),
        ("upper(u.id)", "UPPER of columns of u, which is not a registered stream"),
        ("upper(nothing)", "there is no column nothing"),
        ("soundex(id)", "there is no function soundex, expected one of .* upper "),
    ],
)
def test_what_cannot_be_computed_is_told(call: str, problem: str) -> None:
    text = f"""
        REGISTER QUERY r ISTREAM(SELECT id FROM t [Now]);
        REGISTER QUERY q ISTREAM(SELECT {call} AS x FROM s [Now], r [Now] u);
    """
    with pytest.raises(CqlProblems, match=problem):
        graph(STREAMS + text)


def test_behind_groups_there_are_no_such_calls() -> None:
    text = "REGISTER QUERY q ISTREAM(SELECT id, upper(id) AS u, count(*) AS n FROM s [Rows 9] GROUP BY id)"
    with pytest.raises(CqlProblems, match="UPPER is not computed after GROUP BY: add the call to GROUP BY"):
        graph(STREAMS + text)


def test_what_other_queries_compute_is_not_there() -> None:
    text = """
        REGISTER QUERY a ISTREAM(SELECT lower(id) AS x FROM s [Now]);
        REGISTER QUERY b ISTREAM(SELECT upper(id) AS x, year(born) AS y FROM s [Now]);
    """
    whole = graph(STREAMS + text)
    assert [one.name for one in whole.streams["s"].computed] == ["lower(id)", "upper(id)", "year(born)"]
    part = whole.needed(["b"])
    assert [one.name for one in part.streams["s"].computed] == ["upper(id)", "year(born)"]
    assert [one.name for one in whole.needed(["a"]).streams["s"].computed] == ["lower(id)"]
    assert part.needed(["b"]) is part


def test_delays_that_were_inserted_stay_in_a_part() -> None:
    text = """
        REGISTER QUERY a ISTREAM(SELECT id FROM s [Now] UNION ALL SELECT id FROM a [Now] WHERE id > 'b');
        REGISTER QUERY b ISTREAM(SELECT id FROM t [Now]);
    """
    part = graph(STREAMS + text, "insert").needed(["a"])
    assert part.inserted == ("a",) and part.queries["a"].delay == 0 and list(part.queries) == ["a"]


def test_there_are_as_many_columns_as_bits() -> None:
    def program(registered: int, calls: int) -> str:
        columns = ", ".join(f"c{place} string" for place in range(registered))
        computed = ", ".join(f"upper(c{place}) AS u{place}" for place in range(calls))
        return f"REGISTER STREAM w ({columns}); REGISTER QUERY q ISTREAM(SELECT {computed} FROM w [Now]);"

    assert len(graph(program(60, 4)).streams["w"].columns) == 64
    with pytest.raises(CqlProblems, match="w has more than 64 columns, including computed columns"):
        graph(program(60, 5))
    with pytest.raises(CqlProblems, match="w has 65 columns: expected at most 64"):
        graph(program(65, 1))
    wide = ", ".join(f"id AS c{place}" for place in range(65))
    with pytest.raises(CqlProblems, match="65 columns: expected at most 64"):
        graph(STREAMS + f"REGISTER QUERY q ISTREAM(SELECT {wide} FROM s [Now])")
