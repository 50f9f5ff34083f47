"""Every Python and SQL example of the README and of the pages runs; those of one page run in sequence.

An example with streams is fed three batches, and has to emit rows. An example after a comment `<!-- not run: why -->`
does not run. A text block after `<!-- output -->` is the output of the previous example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.extension.page_streams import SETTINGS, is_of_streams, page_streams, run_queries
from tests.support.sessions import configured

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?:<!-- (not run: [^\n]+|output) -->\n)?```(python|sql|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
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


class Block(NamedTuple):
    """A block of code or text: the text of the comment before it, its language, and its lines."""

    note: str
    language: str
    code: str


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]


PAGES = {
    page: blocks(page)
    for page in ("README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").glob("*.md"))))
    if any(block.language != "text" for block in blocks(page))
}


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
    if "scan_parquet(spark, f" in (ROOT / page).read_text(encoding="utf-8"):
        for name in ("lineitem", "orders"):
            tables[name].write.parquet(f"{tmp_path}/{name}")
    streaming = "\n".join(
        block.code for block in PAGES[page] if block.language == "python" and is_of_streams(block.code)
    )
    streams = page_streams(spark, streaming, tmp_path)
    names: dict[str, Any] = {"spark": spark, "folder": str(tmp_path), **tables}
    said = ""
    for number, block in enumerate(PAGES[page], 1):
        place = f"{page}, block {number}"
        if block.language == "text":
            assert block.note != "output" or _stripped(said) == _stripped(block.code), place
        elif not block.note and ("ASOF JOIN" not in block.code or spark.version >= "4.3"):
            with redirect_stdout(StringIO()) as printed:
                if block.language == "python" and is_of_streams(block.code):
                    names.update(streams)
                    rows = _run_on_streams(block, place, names, streams, tmp_path / f"checkpoints {number}")
                    assert rows and all(rows.values()), f"{place} emitted {rows}"
                else:
                    _run(block, place, names)
            said = printed.getvalue()


def _run(block: Block, place: str, names: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile(block.code, place, "exec"), names)
    else:
        for statement in filter(str.strip, block.code.split(";")):
            names["spark"].sql(statement).collect()


def _run_on_streams(
    block: Block, place: str, names: dict[str, Any], streams: dict[str, DataFrame], checkpoints: Path
) -> dict[str, int]:
    """Run an example and its streaming queries; return the number of rows that each has emitted.

    `streams` are the streams of the page. An example may replace one for later examples, as by one with a watermark.
    """
    spark: SparkSession = names["spark"]
    before = dict(names)
    settings = {**SETTINGS, "spark.sql.streaming.checkpointLocation": str(checkpoints)}
    with configured(spark, settings):
        try:
            _run(block, place, names)
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


def test_examples_are_found() -> None:
    """The pattern would silently miss examples whose form has changed."""
    pages = {page: [block for block in found if block.language != "text"] for page, found in PAGES.items()}
    assert {"README.md", "docs/quickstart.md", "docs/transforms.md", "docs/extension.md"} <= set(pages)
    assert sum(map(len, pages.values())) >= 18
    for page in pages:
        opened = re.findall(r"^```(?:python|sql)\b", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert len(opened) == len(pages[page]), page
    not_run = [(page, block.note) for page, found in pages.items() for block in found if block.note]
    assert not_run == [("docs/clusters.md", "not run: needs a Connect server")], "only what needs a remote service"
