"""Draws a query, its settings and its tables by the number of the case."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.fuzz.graphs import SHAPES, GraphMaker
from tests.fuzz.queries import QueryMaker
from tests.fuzz.sql import Query
from tests.fuzz.tables import Universe

CHAIN = "chain"
_GRAPHS = 0.65
"""Share of queries that are graphs of joins and aggregates. The others are chains of joins of every type."""


@dataclass(frozen=True)
class Case:
    """A query, the tables that it reads, and its settings; `shape` is the kind of query that was drawn."""

    name: str
    universe: Universe
    query: Query
    settings: dict[str, str]
    shape: str = CHAIN


def make_case(universe: Universe, number: int) -> Case:
    """Return query `number` of a universe."""
    name = f"{universe.name}:{number}"
    r = random.Random(f"query {name}")
    settings = _settings(r)
    # A generator of its own keeps the numbers of queries stable.
    aside = random.Random(f"partitioned {name}")
    settings["spark.sparkext.partitioned"] = aside.choice(("auto", "never", "always"))
    settings["spark.sparkext.debug.partitions"] = aside.choice(("planned", "random"))
    reckless = r.random() < (0.5 if universe.extreme else 0.1)
    if r.random() >= _GRAPHS:
        return Case(name, universe, QueryMaker(r, universe, reckless).query(), settings)
    shape = r.choices(list(SHAPES), list(SHAPES.values()))[0]
    settings |= _settings_of_graphs(r)
    return Case(name, universe, GraphMaker(r, universe, reckless, shape).query(), settings, shape)


def _settings(r: random.Random) -> dict[str, str]:
    """Return the settings of a query, which hold with and without the extension."""
    generated = r.random() < 0.15
    return {
        "spark.sql.ansi.enabled": r.choice(("true", "true", "false")),
        "spark.sql.adaptive.enabled": r.choice(("true", "false")),
        "spark.sql.autoBroadcastJoinThreshold": r.choice(("10485760", "-1")),
        "spark.sql.parquet.enableVectorizedReader": r.choice(("true", "true", "false")),
        # Compiling the code of a query costs more than running it on a few rows.
        "spark.sql.codegen.wholeStage": str(generated).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if generated else "NO_CODEGEN",
        "spark.sparkext.scan.fused": r.choice(("true",) * 5 + ("false",)),
        "spark.sparkext.algorithm": r.choice(("auto", "auto", "hash", "sort_merge")),
        "spark.sparkext.morsel.maxRows": r.choice(("131072", "131072", "7", "1")),
        "spark.sparkext.morsel.minRows": "1",
        "spark.sparkext.debug.hashMask": r.choice(("0xffffffffffffffff",) * 4 + ("0x0",)),
        "spark.sparkext.debug.groups": r.choice(("parts", "whole")),
    }


def _settings_of_graphs(r: random.Random) -> dict[str, str]:
    """Return further settings for graphs: the number of tasks before and after a shuffle, and limits of memory."""
    return {
        "spark.sql.shuffle.partitions": r.choice(("1", "2", "2", "3", "5")),
        "spark.sql.files.minPartitionNum": r.choice(("1", "2", "5")),
        "spark.sql.files.openCostInBytes": r.choice(("1", "4194304")),
        "spark.sparkext.memory.maxBytes": r.choice(("0", "0", "0", "1")),
    }
