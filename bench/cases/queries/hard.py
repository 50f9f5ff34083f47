"""Joins that are hard for the usual plans: graphs whose degrees follow a power law, skewed keys, text keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.data.chains import Chain, Paths, engines
from bench.data.generated import SEED, Columns, power_law_edges, written
from bench.data.keys import padded, spread
from bench.engines.spark_session import spark_session
from bench.engines.views import Views
from bench.harness import Bench, Case, Contestant, measure, report, same, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = """\
Measured: from listing the Parquet files and requesting the plan until the single result row, a count and sums over all
joined rows, is there. Every contestant has this sink. Cold: build sides are read and indexed again. Cached: the indexes
of the last run are reused.
Spark's contestants are its default plan, with adaptive execution, and one plan for each hint, on all build sides. All
contestants read the same files, which are in the page cache, with the same number of threads.
Left out: starting Spark and the workers, compilation, generating data. Processor time is not shown, because other
processes, the JVM and the workers, do the work."""

HINTS = ("BROADCAST", "SHUFFLE_HASH", "MERGE")


@dataclass(frozen=True)
class Workload:
    """A chain of joins, and the function that generates its tables."""

    title: str
    chain: Chain
    tables: Callable[[Bench], Mapping[str, Columns]]


def graph(bench: Bench) -> Mapping[str, Columns]:
    """Return the edges twice, so that paths of two edges are a join. Degrees fall with the square root of the rank."""
    edges = bench.sized(2_000_000)
    source, target = power_law_edges(edges, bench.sized(250_000), 0.5)
    number = np.arange(edges, dtype=np.int64)
    return {
        "hop1": {"from1": source, "to1": target, "edge1": number % 1000},
        "hop2": {"from2": source, "to2": target, "edge2": number % 777},
    }


def skewed(bench: Bench) -> Mapping[str, Columns]:
    """Return sales whose items and shops follow Zipf's law: one item has 7% of all sales."""
    generator = np.random.default_rng(SEED)
    sales, items, shops = bench.sized(6_000_000), bench.sized(1_000_000), bench.sized(100_000)
    return {
        "sales": {
            "sale_item": spread(_zipf(generator, sales, items)),
            "sale_shop": spread(_zipf(generator, sales, shops)),
            "amount": generator.integers(1, 100, sales),
        },
        "items": {
            "item": spread(generator.permutation(items)),
            "price": generator.integers(1, 1000, items),
        },
        "shops": {
            "shop": spread(generator.permutation(shops)),
            "region": generator.integers(0, 50, shops),
        },
    }


def text_keys(bench: Bench) -> Mapping[str, Columns]:
    """Return orders of customers and products, all identified by texts of 17 or 23 characters."""
    generator = np.random.default_rng(SEED)
    rows, customers, products = bench.sized(4_000_000), bench.sized(600_000), bench.sized(200_000)
    return {
        "bought": {
            "buyer": _text("customer", generator.integers(0, customers, rows)),
            "ware": _text("product/number", generator.integers(0, products, rows)),
            "pieces": generator.integers(1, 10, rows),
        },
        "customers": {
            "customer": _text("customer", generator.permutation(customers)),
            "age": generator.integers(18, 99, customers),
        },
        "products": {
            "product": _text("product/number", generator.permutation(products)),
            "weight": generator.integers(1, 5000, products),
        },
    }


def _zipf(generator: np.random.Generator, rows: int, distinct: int) -> np.ndarray:
    shares = np.cumsum(1 / np.arange(1, distinct + 1))
    return np.searchsorted(shares / shares[-1], generator.random(rows)).clip(max=distinct - 1)


def _text(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(prefix), padded(numbers, 8), "#")


WORKLOADS = {
    "graph": Workload(
        "paths of two edges: 2 M edges, degrees by a power law, many to many",
        Chain("hop1", [("hop2", "to1", "from2")], ["edge1", "edge2"]),
        graph,
    ),
    "skew": Workload(
        "6 M sales, 1 M items, 100 K shops: keys by Zipf's law, over 64 bits",
        Chain("sales", [("items", "sale_item", "item"), ("shops", "sale_shop", "shop")], ["amount", "price", "region"]),
        skewed,
    ),
    "strings": Workload(
        "4 M orders, 600 K customers, 200 K products: keys that are text",
        Chain(
            "bought",
            [("customers", "buyer", "customer"), ("products", "ware", "product")],
            ["pieces", "age", "weight"],
        ),
        text_keys,
    ),
}


def cases() -> list[Case]:
    """Return one case for each workload."""
    return [
        Case(f"hard.{name}", workload.title, partial(_run, workload), scaled=False)
        for name, workload in WORKLOADS.items()
    ]


def _run(workload: Workload, bench: Bench) -> None:
    from sparkext import configure

    chain = workload.chain
    paths = written(bench, bench.case, lambda: workload.tables(bench))
    with spark_session(bench.threads, configure, **{"spark.sparkext.mode": "hint"}) as spark:
        contestants = [
            *spark_contestants(spark, chain, paths),
            *(same(name, run) for name, run in engines(chain, paths, bench.threads).items()),
        ]
        answer = verify(contestants)
        rows = spark.read.parquet(str(paths[chain.probe])).count()
        print(f"{rows:,} rows probe; all agree on {answer}")
        report(bench, measure(bench, contestants), rows, cpu=False)


def spark_contestants(spark: SparkSession, chain: Chain, paths: Paths, group: str = "") -> list[Contestant]:
    """Return this package, cold and with cached indexes, Spark's default plan, and a plan for each hint.

    With a `group`, only the fastest hinted plan is timed.
    """
    views = Views.of_files(spark, paths)
    ours = chain.sql("PIPELINED_JOIN")
    views.assert_pipelined(ours)
    return [
        same("sparkext, cold", partial(views.row, ours, cold=True), ours=True),
        same("sparkext, indexes cached", partial(views.row, ours), ours=True),
        same("Spark, default plan", partial(views.row, chain.sql())),
        *(same(f"Spark, {hint.lower()} hints", partial(views.row, chain.sql(hint)), group=group) for hint in HINTS),
    ]
