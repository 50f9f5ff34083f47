"""NEXMark's joins of streams, compared with Spark's own: sellers (q3, q8), and winning bids (q4, q9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.cases.streams.joins import deliver, milliseconds_of, run_stream, streaming_session
from bench.data.nexmark_events import events
from bench.harness import Bench, Case, WrongAnswerError, step
from sparkext.wording import format_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = """\
Measured: the durations that Spark reports for all batches of a query except the first, from looking for new files until
the batch is committed. A batch is one file of each type of event. All result rows are compared with those of a batch
query.
q9 finds the highest bid of each auction while the auction is open, and q4 averages these bids by category. Both have
the same join.
Left out: starting Spark and the query, generating events, and the averages of q4."""

_EVENTS, _BATCHES = 2_000_000, 8
_WINDOW = "10 seconds"


@dataclass(frozen=True)
class Sides:
    """The streams of a query, or its tables."""

    people: DataFrame
    auctions: DataFrame
    bids: DataFrame


@dataclass(frozen=True)
class Query:
    """A join of two sides; `rows` transforms the joined rows of a batch, `together` combines them for all batches."""

    title: str
    sides: Callable[[Sides], tuple[DataFrame, DataFrame]]
    on: list[tuple[str, ...]]
    rows: Callable[[DataFrame], DataFrame]
    together: Callable[[pa.Table], pa.Table]


def cases() -> list[Case]:
    """Return one case for each query."""
    return [
        Case(f"nexmark.{name}", query.title, partial(_run, name), scaled=False, named=True)
        for name, query in QUERIES.items()
    ]


def _sellers(sides: Sides) -> tuple[DataFrame, DataFrame]:
    local = sides.people.where("state in ('OR', 'ID', 'CA')").selectExpr("id as person", "name", "city", "state")
    return sides.auctions.where("category = 10").select("id", "seller"), local


def _new_sellers(sides: Sides) -> tuple[DataFrame, DataFrame]:
    window = f"window(at, '{_WINDOW}').start"
    auctions = sides.auctions.selectExpr("seller", "reserve", f"{window} as opened")
    return auctions, sides.people.selectExpr("id as person", "name", f"{window} as joined")


def _open_bids(sides: Sides) -> tuple[DataFrame, DataFrame]:
    bids = sides.bids.selectExpr("auction", "price", "at as bid_at")
    return bids, sides.auctions.select("id", "category", "at", "expires")


def _highest(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.groupBy("id", "category").agg(F.max("price").alias("price"))


def _highest_of_all(rows: pa.Table) -> pa.Table:
    return rows.group_by(["id", "category"]).aggregate([("price", "max")]).rename_columns(["id", "category", "price"])


QUERIES = {
    "q3": Query(
        "who of three states sells in a category",
        _sellers,
        [("seller", "person")],
        lambda frame: frame.select("name", "city", "state", "id"),
        lambda rows: rows,
    ),
    "q8": Query(
        "who sells in the ten seconds in which they came",
        _new_sellers,
        [("seller", "person"), ("opened", "joined")],
        lambda frame: frame.select("person", "name", "reserve"),
        lambda rows: rows,
    ),
    "q9": Query(
        "the winning bids, and q4: their averages",
        _open_bids,
        [("auction", "id"), ("bid_at", ">=", "at"), ("bid_at", "<", "expires")],
        _highest,
        _highest_of_all,
    ),
}


def ours(left: DataFrame, right: DataFrame, on: list[Any]) -> DataFrame:
    """Join with `stream_join`."""
    from sparkext.streams import stream_join

    return stream_join(left, right, on=on)


def sparks(left: DataFrame, right: DataFrame, on: list[Any]) -> DataFrame:
    """Join streams or tables with `DataFrame.join`."""
    from pyspark.sql import functions as F

    terms = [f"{term[0]} {term[1] if len(term) == 3 else '='} {term[-1]}" for term in on]
    return left.join(right, F.expr(" and ".join(terms)))


def _run(name: str, bench: Bench) -> None:
    query, rows = QUERIES[name], []
    with streaming_session(bench) as spark, _written(bench) as folder:
        expected = query.together(_gathered(query, sparks(*query.sides(_tables(spark, folder)), query.on)))
        for contestant, join in (("sparkext", ours), ("spark", sparks)):
            with step(f"{name} by {contestant}"):
                batches, out = _play(spark, folder, query, join)
            if _sorted(query.together(out)) != _sorted(expected):
                raise WrongAnswerError(
                    f"{contestant} gives {out.num_rows} rows, a batch query {expected.num_rows}, or others"
                )
            bench.record(contestant=contestant, query=name, batch_seconds=batches, rows=expected.num_rows)
            seconds = sum(batches)
            rows.append((contestant, f"{seconds:.1f}", f"{_read(bench) / seconds:,.0f}", f"{expected.num_rows:,}"))
    print(format_table(("", "seconds", "events a second", "rows"), rows))


def _read(bench: Bench) -> int:
    """Return the number of events in the measured batches."""
    return bench.sized(_EVENTS) * (_BATCHES - 1) // _BATCHES


@contextmanager
def _written(bench: Bench) -> Iterator[Path]:
    """Write all events, in files that a stream reads in order; yield their folder."""
    count = bench.sized(_EVENTS)
    with TemporaryDirectory() as folder:
        with step(f"writing {count:,} events"):
            for kind, table in vars(events(count)).items():
                size = -(-table.num_rows // _BATCHES)
                for number in range(_BATCHES):
                    deliver(Path(folder) / kind, number, table.slice(number * size, size))
        yield Path(folder)


def _tables(spark: SparkSession, folder: Path) -> Sides:
    return Sides(*(spark.read.parquet(str(folder / kind)) for kind in Sides.__annotations__))


def _streams(spark: SparkSession, folder: Path) -> Sides:
    tables = vars(_tables(spark, folder))
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    return Sides(*(reader.schema(table.schema).parquet(str(folder / kind)) for kind, table in tables.items()))


def _play(
    spark: SparkSession, folder: Path, query: Query, join: Callable[[DataFrame, DataFrame, list[Any]], DataFrame]
) -> tuple[list[float], pa.Table]:
    """Run a query over all events; return the seconds of each batch except the first, and all result rows."""
    found: list[pa.Table] = []
    out = join(*query.sides(_streams(spark, folder)), query.on)
    progress = run_stream(out, lambda frame, batch: found.append(_gathered(query, frame)))
    return [milliseconds / 1000 for milliseconds in milliseconds_of(progress)[1:]], pa.concat_tables(found)


def _gathered(query: Query, frame: DataFrame) -> pa.Table:
    return query.rows(frame).toArrow()


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).to_pylist()
