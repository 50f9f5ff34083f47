"""The figures of partitioned joins, table formats and object stores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median

from bench.cases.memory import large_build_job
from bench.report.result_files import Key
from docs.tools.figures import forms
from docs.tools.figures.archive import Archive, MissingResultError
from docs.tools.figures.batch import outcome
from docs.tools.figures.grid import Block, Grid, not_measured, table_of

_OURS = {"sparkext": "sparkext, planned"}
_SPARKS = {
    "Spark, default": "Spark, default plan",
    "Spark, hinted": r"Spark, (\w+) hint",
}


def _exchange(name: str, factor: float = 1.0) -> Key:
    return Key(f"exchange.{name}", "", factor, 2)


JOINS = Grid(
    {
        "lineitem ⋈ orders, scale factor 1, a count and sums": _exchange("aggregate"),
        "the same, scale factor 3": _exchange("aggregate", 3.0),
        "the same, scale factor 10": _exchange("aggregate", 10.0),
        "scale factor 3, to a sink that drops all rows": _exchange("join", 3.0),
        "scale factor 10, to a sink that drops all rows": _exchange("join", 10.0),
    },
    {**_OURS, **_SPARKS},
)
TRANSFORM = Grid(
    {"lineitem ⋈ orders, scale factor 1, a count and sums": _exchange("transform")},
    {"sparkext, transform": "sparkext, transform", **_SPARKS},
)
SENT = Grid(
    {"lineitem with 14 columns, scale factor 3, sent and aggregated": _exchange("lineitem", 3.0)},
    {
        "sparkext": "sparkext, planned",
        "the same, not sent": "sparkext, not sent",
        "Spark": "Spark, REPARTITION hint",
        "Spark, not sent": "Spark, not sent",
    },
)
HOT = Grid(
    {
        "Zipf keys on both sides, one of which has half of all pairs": _exchange("zipf"),
        "a full outer join of the same": _exchange("outer"),
    },
    {
        **_OURS,
        "Spark, default": "Spark, default plan",
        "Spark, skew join set to split": "Spark, skew join told to split",
    },
)


def _longest(archive: Archive) -> str:
    names = {**HOT.columns}

    def line(label: str, case: str) -> list[str]:
        lines = {one["contestant"]: one for one in archive.lines(case) if one.get("part") == "longest task"}
        return [label, *(forms.seconds(median(lines[name]["task_seconds"])) for name in names.values())]

    cases = {"Zipf keys": "exchange.zipf", "full outer": "exchange.outer"}
    return table_of(["longest task", *names], [partial(line, *case) for case in cases.items()])


def _queries(archive: Archive) -> str:
    """Return sentences that compare plans in which every join is partitioned with Spark's own plans, by query."""
    try:
        tables = archive.tables("exchange.queries", 3.0)
    except MissingResultError as error:
        return not_measured([error])
    sentences = []
    for name, shown in (("Spark, default plan", "Spark's default plan"), ("no broadcasts", "Spark without broadcasts")):
        ratios = {}
        for query, table in tables.items():
            medians = {timed.contestant: median(timed.seconds) for timed in table}
            ratios[query] = medians[name] / medians["partitioned"]
        slower = [f"{query} {forms.factor(ratio)}" for query, ratio in ratios.items() if ratio < 1]
        said = f"slower in {', '.join(slower)}" if slower else "slower in none"
        sentences.append(
            f"Beside {shown}, {len(ratios)} queries: {forms.factor(min(ratios.values()))} to"
            f" {forms.factor(max(ratios.values()))} as fast, {said}; geometric mean"
            f" {forms.factor(forms.mean([*ratios.values()]))}."
        )
    return "\n".join(sentences)


def _costs(archive: Archive) -> str:
    def line(condition: str) -> list[str]:
        lines = {one["run"]: one for one in archive.lines("exchange.costs") if one["part"] == condition}
        taken = (lines[run][name] for run in ("first", "second") for name in ("planned", "took"))
        return [condition, *(forms.seconds(one) for one in taken)]

    conditions = ("none", "of numbers", "of texts", "of longer texts")
    header = ["condition", "first run, planned", "first run", "second run, planned", "second run"]
    return table_of(header, [partial(line, condition) for condition in conditions])


def _waves(archive: Archive) -> str:
    def line(error: float) -> list[str]:
        lines = [one for one in archive.lines("skew.waves") if one["error"] == error]
        ratios = [one["planned"] / one["again"] for one in lines]
        return [f"{error:g}", f"{min(ratios):.2f} to {max(ratios):.2f}"]

    header = ["σ of the costs' logarithms", "time as planned / time if partitions were planned again while they run"]
    return table_of(header, [partial(line, error) for error in (0.0, 0.25, 0.5, 1.0)])


def _pipelined(archive: Archive) -> str:
    def line(label: str, part: str) -> list[str]:
        found = [one for one in archive.lines("skew.pipelined") if one["part"] == part][-1]
        worked = (forms.seconds(found["worked"][way]) for way in ("hash", "planned"))
        skews = ", ".join(f"{value:.2f}" for value in found["skew"][:4])
        return [label, *worked, f"{found['ratio']:.2f}", f"{found['ideal']:.2f}", skews]

    parts = {
        "one executor 2 × rows, 2 × matches": "skew1",
        "one executor 3 ×, 3 ×": "skew2",
        "two executors 2 ×, 2 ×": "skew3",
    }
    header = ["", "by hash", "by the load balancer", "ratio", "ideal", "skew of the first intervals"]
    return table_of(header, [partial(line, *part) for part in parts.items()])


def _limits(archive: Archive) -> str:
    def line(label: str, case: str, contestant: str) -> list[str]:
        return [label, contestant, *outcome(archive, case, contestant)]

    cases = {
        "99 % of the build side is one key": "survival.hot-build",
        "scattered keys": "survival.large-build",
    }
    lines = [partial(line, *case, way) for case in cases.items() for way in large_build_job.WAYS]
    return table_of(["build side of 3 GiB, limit of 1.5 GiB", "", "outcome", "peak"], lines)


LAKES = Grid(
    {
        "as written": Key("lakes.three-joins", "none deleted", 1.0, 2),
        "1 % deleted": Key("lakes.three-joins", "hundredth deleted", 1.0, 2),
    },
    {
        f"{title}: {way}": f"{name}, {pattern}"
        for name, title in (("plain", "plain files"), ("iceberg", "Iceberg"), ("delta", "Delta"))
        for way, pattern in (
            ("sparkext, indexes rebuilt", "pipelined, cold"),
            ("sparkext, indexes cached", "pipelined, kept"),
            ("Spark, broadcast hints", "Spark's broadcast plan"),
            ("Spark, default plan", "Spark's default plan"),
        )
    },
    transposed=True,
    compared=False,
)
BUCKETS = Grid(
    {"time": Key("buckets.three-joins", "", 1.0, 2)},
    {
        "sparkext, indexes rebuilt": "pipelined, cold",
        "sparkext, indexes cached": "pipelined, kept",
        "Spark, broadcast hints": "Spark's broadcast plan",
        "Spark, default plan": "Spark's default plan",
    },
    transposed=True,
)


def _requests(archive: Archive) -> str:
    def line(label: str, contestant: str) -> list[str]:
        lines = archive.lines("buckets.three-joins")
        [found] = (one for one in lines if one["contestant"] == contestant)
        return [label, str(found["requests"]), f"{found['bytes'] / 1e6:.0f} MB"]

    return table_of(["", "requests", "read"], [partial(line, *column) for column in BUCKETS.columns.items()])


BLOCKS: Mapping[str, Block] = {
    "partitioned-joins": JOINS.render,
    "partitioned-transform": TRANSFORM.render,
    "sent": SENT.render,
    "hot-keys": HOT.render,
    "longest-tasks": _longest,
    "partitioned-queries": _queries,
    "pair-costs": _costs,
    "waves": _waves,
    "pipelined-shuffle": _pipelined,
    "large-builds": _limits,
    "lakes": LAKES.render,
    "buckets": BUCKETS.render,
    "requests": _requests,
}
