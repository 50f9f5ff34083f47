"""Every Python and SQL example of the README and of the pages runs; those of one page run in sequence.

An example with streams is fed three batches, and has to emit rows. An example after `<!-- skip: next -->` does not run.
A text block after `<!-- output -->` is the output of the previous example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from tests.extension.page_streams import SETTINGS, is_of_streams, page_streams, run_queries
from tests.support.sessions import configured

ROOT = Path(__file__).parents[2]
_SKIP = "<!-- skip: next -->"
_TABLES = {
    "lineitem": "id AS l_orderkey; id % 3 AS l_suppkey; id % 5 AS l_partkey; id * 2 AS l_quantity; id % 2 AS l_tax; "
    "concat('line ', id) AS l_comment",
    "orders": "id AS o_orderkey; date_add(date'1995-01-01', cast(id AS int)) AS o_orderdate; "
    "concat('line ', id) AS o_comment",
    "supplier": "id AS s_suppkey; concat('supplier ', id) AS s_name",
    "part": "id AS p_partkey; concat('part ', id) AS p_name",
    "visits": "id % 3 AS item; id AS day",
    "prices": "id % 3 AS item; id AS first_day; id + 5 AS last_day; id AS price",
    "a": "id AS start; id + 3 AS stop",
    "b": "2 * id AS start; 2 * id + 1 AS stop",
    "dots": "cast(id AS double) AS x; cast(id % 4 AS double) AS y",
    "lines": "cast(id AS double) AS u; 1.0D AS v; 3.0D AS c",
    "trades": "concat('s', id % 2) AS symbol; timestamp_seconds(10 * id) AS time; id AS amount",
    "quotes": "concat('s', id % 2) AS symbol; timestamp_seconds(10 * id - 1) AS time; id AS bid",
    "points": "cast(id AS double) AS x; cast(id % 4 AS double) AS y",
    "circles": "cast(id AS double) AS cx; 1.0D AS cy; 0.5D + id AS radius",
}
_ROWS = 20


PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if re.search(r"^```(python|sql)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.fixture
def tables(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    """Yield small tables for the examples, as DataFrames and as views, in a session with the default mode."""
    mode = spark.conf.get("spark.sparkext.mode")
    spark.conf.set("spark.sparkext.mode", "auto")
    found = {name: spark.range(_ROWS).selectExpr(*columns.split("; ")) for name, columns in _TABLES.items()}
    for name, frame in found.items():
        frame.createOrReplaceTempView(name)
    yield found
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)
    spark.conf.set("spark.sparkext.mode", str(mode))


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(
    page: str, spark: SparkSession, tables: dict[str, DataFrame], tmp_path: Path
) -> None:
    printed = StringIO()

    def run(example: Example) -> None:
        nonlocal printed
        if "ASOF JOIN" in example.parsed and spark.version < "4.3":
            return
        with redirect_stdout(StringIO()) as printed:
            if _reads_streams(example):
                rows = _run_on_streams(example, streams, tmp_path / f"checkpoints {example.line}")
                assert rows and all(rows.values()), f"{page}, line {example.line} emitted {rows}"
            else:
                _run(example)

    def compare(example: Example) -> None:
        if document.text[: example.start].endswith("<!-- output -->\n"):
            assert _stripped(printed.getvalue()) == _stripped(example.parsed), f"{page}, line {example.line}"

    parsers = [CodeBlockParser("python", run), CodeBlockParser("sql", run), CodeBlockParser("text", compare)]
    document = Document.parse(str(ROOT / page), *parsers, SkipParser())
    opened = len(re.findall(rf"^```(?:python|sql|text)\b|^{_SKIP}", document.text, re.MULTILINE))
    assert len(list(document)) == opened, "blocks of another form"
    if "scan_parquet(spark, f" in document.text:
        for name in ("lineitem", "orders"):
            tables[name].write.parquet(f"{tmp_path}/{name}")
    streaming = "\n".join(example.parsed for example in document if _reads_streams(example))
    streams = page_streams(spark, streaming, tmp_path)
    document.namespace.update({"spark": spark, "folder": str(tmp_path), **tables})
    for example in document:
        example.evaluate()


def _reads_streams(example: Example) -> bool:
    return example.region.lexemes.get("arguments") == "python" and is_of_streams(example.parsed)


def _run(example: Example) -> None:
    if example.region.lexemes["arguments"] == "python":
        PythonEvaluator()(example)
    else:
        for statement in filter(str.strip, example.parsed.split(";")):
            example.namespace["spark"].sql(statement).collect()


def _run_on_streams(example: Example, streams: dict[str, DataFrame], checkpoints: Path) -> dict[str, int]:
    """Run an example and its streaming queries; return the number of rows that each has emitted.

    `streams` are the streams of the page. An example may replace one for later examples, as by one with a watermark.
    """
    names = example.namespace
    names.update(streams)
    spark: SparkSession = names["spark"]
    before = dict(names)
    settings = {**SETTINGS, "spark.sql.streaming.checkpointLocation": str(checkpoints)}
    with configured(spark, settings):
        try:
            _run(example)
            new = {
                name: value for name, value in names.items() if name not in streams and before.get(name) is not value
            }
            streams.update({name: names[name] for name in streams})
            return run_queries(spark, new, checkpoints)
        finally:
            for query in spark.streams.active:
                query.stop()


def _stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_pages_have_examples() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/transforms.md", "docs/extension.md"} <= set(PAGES)
    skipping = [page for page in PAGES if _SKIP in (ROOT / page).read_text(encoding="utf-8")]
    assert skipping == ["docs/clusters.md"], "only an example that needs a remote service"
