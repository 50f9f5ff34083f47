"""SQL that is not part of CQL: patterns that recognise it, and messages with the replacement in CQL.

A word that begins such SQL is not an alias, unless it follows AS or is quoted: `FROM a [Now] LEFT JOIN b [Now]` is an
error, not an inner join of a source called LEFT.
"""

from __future__ import annotations

import re

_SUBQUERY = (
    "subqueries are not supported: register the inner SELECT, with DISTINCT for IN and EXISTS, as a separate query,"
    " and join with it"
)
_KEYS = "ROLLUP, CUBE and GROUPING SETS are not supported: write a SELECT … GROUP BY for each, and UNION ALL"
_LIMIT = "use [Rows n] for the last n rows of a stream, and MIN and MAX for extremes"
_DURATIONS = "write durations in windows, such as [Range 5 minutes], or in delays, such as <5 minutes>"

KEYED = r"(?:rollup|cube)(?=\s*\()"
"""Pattern of the keywords that look like functions in GROUP BY."""

WORDS = {
    r"(?:left|right)(?=\s+semi\b)|semi": (
        "semi joins are not supported: write an inner JOIN with a query that is a SELECT DISTINCT of the keys"
    ),
    r"(?:left|right)(?=\s+anti\b)|anti": (
        "anti joins are not supported: write SELECT … EXCEPT ALL SELECT …, with the inner JOIN as the second SELECT"
    ),
    r"left|right|full|outer": (
        "outer joins are not supported: write the inner JOIN, and add the rows without a match by UNION ALL:"
        " SELECT … EXCEPT ALL SELECT …, with the inner JOIN as the second SELECT"
    ),
    r"cross": "CROSS JOIN is not supported: write a comma between the sources",
    r"natural|using": "NATURAL JOIN and USING are not supported: write JOIN … ON a.k = b.k",
    r"asof": (
        "as-of joins are not supported: join with the last row of each key, [Partition By k Rows 1], or call"
        " stream_asof_join"
    ),
    r"lateral": "LATERAL is not supported: explode arrays in the input DataFrame",
    r"order|(?:sort|cluster|distribute)(?=\s+by\b)": (
        "ORDER BY and SORT BY are not supported: a relation has no order, and streams are emitted in the order of time."
        " Sort the resulting DataFrame"
    ),
    r"limit|offset(?=\s+\d)|fetch(?=\s+(?:first|next)\b)": f"LIMIT, OFFSET and FETCH are not supported: {_LIMIT}",
    rf"with(?=\s+(?:rollup|cube)\b)|{KEYED}|sets(?=\s*\()": _KEYS,
    r"with": "WITH is not supported: register each of its SELECTs as a separate query",
    r"over|qualify|window(?=\s+\w+\s+as\b)": (
        "window functions are not supported: use GROUP BY and a window of the source, such as"
        " [Partition By k Rows 10] or [Range 1 hour]"
    ),
    r"within(?=\s+group\b)": "WITHIN GROUP is not supported: the aggregates are COUNT, SUM, AVG, MIN and MAX",
    r"within(?=\s*\(?\s*\d)": f"WITHIN is not supported: {_DURATIONS}",
    r"emit(?=\s+\w)": "EMIT is not supported: ISTREAM, DSTREAM or RSTREAM states which rows are emitted",
    r"filter(?=\s*\()": "FILTER is not supported: write SUM(CASE WHEN condition THEN x END)",
    r"(?:un)?pivot(?=\s*\()": "PIVOT and UNPIVOT are not supported: write SUM(CASE WHEN … END) for each column",
    r"tablesample": "TABLESAMPLE is not supported: sample the input DataFrame",
    r"minus": "MINUS is not supported: write EXCEPT",
    r"div": "DIV is not supported: write (a - a % b) / b, which is a double",
    r"ilike": "ILIKE is not supported: write lower(a) LIKE 'pattern'",
    r"regexp|similar(?=\s+to\b)": "REGEXP and SIMILAR TO are not supported: write a RLIKE 'pattern'",
    r"escape(?=\s*')": "ESCAPE is not supported: the escape character is \\",
}
"""Patterns of words, case-insensitive, with their messages; the first match counts."""

_CONTEXTS = (
    (r"", r"\(\s*(select|with|values)\b", _SUBQUERY),
    (r"(^|;)\s*", r"(select|with)\b", "a SELECT needs a name: write REGISTER QUERY name ISTREAM(SELECT …)"),
    (
        r"(^|;)\s*",
        r"create\b",
        "CREATE is not supported: write REGISTER STREAM name (…) or REGISTER QUERY name SELECT …",
    ),
    (r"\(\s*", r"select\b", _SUBQUERY),
    (
        r"(\bfrom|\bjoin|,)\s*(lateral\s+)?\w+\s*",
        r"\(",
        "functions in FROM are not supported: write a stream and its window, such as FROM s [Range 5 minutes]",
    ),
    (r"\btop\s*\(?\s*", r"\d", f"TOP is not supported: {_LIMIT}"),
    (r"\binterval\s*", r"['\d]", f"intervals are not supported: {_DURATIONS}"),
    (r"\bextract\s*\(\s*\w+\s*", r"from\b", "EXTRACT is not supported: write year(t), month(t), hour(t) and the like"),
    (r"\bcase\s*", r"", "CASE of a value is not supported: write CASE WHEN value = … THEN … END"),
    (r"\bgroup\s+by\s*", r"all\b", "GROUP BY ALL is not supported: write each formula"),
    (r"\bselect\s*", r"all\b", "SELECT ALL is not supported: leave ALL out"),
    (
        r"\b(union|except|intersect)\s*",
        r"distinct\b",
        "DISTINCT is not supported here: leave it out, rows are distinct unless ALL is written",
    ),
    (r"\bis\s*", r"distinct\b", "IS DISTINCT FROM is not supported: write NOT (a <=> b)"),
    (r"\bis\s+not\s*", r"distinct\b", "IS NOT DISTINCT FROM is not supported: write a <=> b"),
    (r"\bis(\s+not)?\s*", r"(true|false)\b", "IS TRUE and IS FALSE are not supported: write a <=> TRUE or a <=> FALSE"),
    (r"\bis(\s+not)?\s*", r"unknown\b", "IS UNKNOWN is not supported: write IS NULL"),
    (r"=\s*", r"=", "== is not supported: write ="),
    (r"", r"\|\|", "|| is not supported: write concat(a, b)"),
    (r"", r"::", ":: is not supported: write CAST(a AS type)"),
    (r"", r"!(?!=)", "! is not supported: write NOT"),
    (r"", r"[&|^~]", "bitwise operators are not supported: compute the column in the input DataFrame"),
    (r"", r"\[\s*['\d]", "arrays and maps are not supported: select the element in the input DataFrame"),
    (r"\w\.\w+\s*", r"\.", "structs are not supported: select the field in the input DataFrame"),
)
"""Patterns of the text before and at a position, with their messages; the first match counts."""

MESSAGES = (*WORDS.values(), *(message for _, _, message in _CONTEXTS))


def describe_unsupported_sql(text: str, position: int) -> str | None:
    """Return the message for unsupported SQL at a position, None if no such SQL begins there."""
    before, rest = text[:position], text[position:]
    for end, start, message in _CONTEXTS:
        if re.match(start, rest, re.IGNORECASE) and re.search(f"({end})$", before, re.IGNORECASE):
            return message
    return next((message for word, message in WORDS.items() if re.match(rf"({word})\b", rest, re.IGNORECASE)), None)
