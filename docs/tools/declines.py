"""Why a join, or a scan, is left to Spark: every reason in the extension's sources, with what it means and what to do.

The reasons themselves are found in the sources (`scala_texts`); here stands what there is to say of each. A text in the
sources that is neither a reason here nor one of `OTHER_TEXTS` is an error, and so is a reason that no source has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from docs.tools.scala_texts import sentences

SOURCES = Path(__file__).parents[2] / "sparkext" / "jvm"


@dataclass(frozen=True)
class Group:
    """Reasons that are told in one place: each with what it means, and what to do about it."""

    title: str
    about: str
    reasons: Mapping[str, str]


GROUPS = (
    Group(
        "Joins",
        (
            "What keeps a join from being planned as a pipeline. `EXPLAIN` shows it as `DeclinedPipelinedJoin:"
            " <reason>` above Spark's own join."
        ),
        {
            "not hinted, and spark.sparkext.mode is hint": (
                "In hint mode only hinted joins are planned, and the others carry no note."
            ),
            "the build side takes … bytes by Spark's estimate, and spark.sparkext.buildSide.maxBytes is …": (
                "Raise the limit if the nodes' disks hold that much, filter the build side, or hint the join: then"
                " only the real size counts."
            ),
            "Spark broadcasts every build side of it, and rows would have to cross into Python": (
                "A broadcast join of tables this small is hard to beat where workers do not read the probe side's"
                " files. A hint takes the join all the same."
            ),
            "dynamic partition pruning of the probe side needs Spark's own join": (
                "Spark prunes partitions of the probe side by the rows of a build side while the query runs. A hint"
                " takes the join all the same."
            ),
            "by the estimates it is not clearly cheaper than Spark's own joins"
            " (… s against … s; a hint overrules this)": (
                "`auto` mode wants 0.7 of Spark's cost at most, and a quarter of a second saved; both numbers are"
                " seconds of the cost model, whose ratio alone matters. Hint the join if you know better, or give"
                " Spark statistics (`ANALYZE TABLE`)."
            ),
            "spark.io.encryption.enabled is true, and workers map build sides from files that are not encrypted": (
                "Switch the encryption of local files off; or use the transforms in a session without the"
                " extension, where each worker then holds a copy of its own."
            ),
            "Spark has broadcast one side of it already": (
                "Adaptive execution asked again after it had broadcast a side, which gives its rows to nobody else."
                " Hint the join, or lower `spark.sql.autoBroadcastJoinThreshold`."
            ),
            "not a join: …": "Never shown for a join; the planner's word for everything else.",
            "a streaming join": "Build sides must end. Use Spark's own join.",
            "a function of the file that is read, such as input_file_name(), stands above it": (
                "It tells of the file that Spark's task reads just then, and above a pipeline none is read. Compute it"
                " below the join, or use the columns of `_metadata`."
            ),
            "NOT IN, which Spark looks up in a hash table": (
                "NOT IN with values that may be null has a meaning of its own. Where there are no nulls, write NOT"
                " EXISTS or a left anti join."
            ),
            "the query asks for Spark's …": (
                "Another join hint (BROADCAST, MERGE, SHUFFLE_HASH, …) stands at this join. It is obeyed: remove it."
            ),
            "a full outer join without an equality": (
                "An unmatched row of either side may come out only once, for which rows are shuffled by their keys."
            ),
            "a full outer join with a condition beside its keys": (
                "Filter the sides before the join, if the condition is about one of them."
            ),
            "column … of type … does not travel between Spark and Python": (
                "Intervals of months, structs with two fields of one name, and other types without an Arrow form on"
                " this way: drop or cast the column before the join."
            ),
            "a key that is not deterministic: … = …": "Write it to a column of a table, or cache it, first.",
            "a subquery in a join key": "Compute it before the join.",
            "keys of different types: …": "Cast one side.",
            "a key of type …: …": (
                "Nested types, intervals of months, variants, and strings with a collation are compared by other"
                " rules than their bytes. Cast the key."
            ),
            "neither an equality nor a comparison between the two sides, nor a formula that workers compile…": (
                "There is nothing to look rows up by, and the condition is no [formula](extension.md#formulas). The"
                " part that is not covered follows after a colon."
            ),
            "a condition beside the keys of … join that only Spark evaluates: …": (
                "For outer, semi, anti and existence joins the condition decides which pairs match, so workers have"
                " to test it; the part that they do not know follows. Inner joins take any condition: Spark filters"
                " their result."
            ),
            "a condition that may fail, which Spark tests on other pairs: …": (
                "Conditions before it would be tested after it, or those after it before, so that another pair could"
                " fail than in Spark. Put conditions that may fail last, or write them so that they cannot (`try_add`,"
                " `try_cast`)."
            ),
            "a join of type …": (
                "Spark has join types besides inner, left, right, full, semi, anti and existence; these are not"
                " planned."
            ),
            "a condition that is not deterministic: …": (
                "Spark evaluates it once per pair that it tries itself. Compute it before the join, or filter after it."
            ),
            "a subquery in a join condition": "Compute it before the join, or filter after it.",
            "a key computed from several tables: …": (
                "The key of a join needs columns of more than one of the tables before it, and no single one can"
                " compute it. The joins below may still be a pipeline."
            ),
            "a key computed from a side of an earlier full join: …": (
                "Rows of that side may be missing when the key is computed. The joins below may still be a pipeline."
            ),
            "a key computed from the outer side of an earlier join: …": (
                "The same: the key would be computed from rows that may be missing."
            ),
            "a plan nested too deeply": "More than a thousand levels, which planning looks at for every join again.",
            "a column nested too deeply": "More than 250 levels: compute it in steps, with a cache or a table between.",
            "planning it failed: …": (
                "A fault in sparkext, with what was thrown: report it, with the warning that the driver's log has once."
                " The join is Spark's own."
            ),
            "no Python to run it: …": (
                "Followed by one of the six below. `python -m sparkext doctor`, run by that Python, says more."
            ),
            "… does not start: …": (
                "`spark.sparkext.python` (or `spark.pyspark.python`, or PYSPARK_PYTHON) names no executable on the"
                " driver."
            ),
            "… cannot run sparkext: …": (
                "That Python lacks sparkext, numba, numpy, pandas or pyarrow: install it there."
            ),
            "… has sparkext …, this jar belongs to …": (
                "Jar and package are of different versions: install the same on the driver, on every node and in"
                " the session."
            ),
            "… answered '…'": (
                "Something printed to the Python's output while it started: look at its `sitecustomize`."
            ),
            "… says more than … bytes instead of its version": "The same.",
            "… does not answer within … s": "It hangs, or its packages lie on a disk that does.",
            "spark.executor.pyspark.memory leaves a worker … MiB of address space, of which a pipeline takes at"
            " least … MiB": (
                "The cores of an executor share that setting, and libraries and mapped files count: unset it, or"
                " raise it."
            ),
            "the build side takes … bytes by Spark's estimate, which workers map, and spark.executor.pyspark.memory"
            " leaves a worker … MiB of address space": "The same, of joins without a hint.",
        },
    ),
    Group(
        "As-of joins",
        (
            "Left to Spark, which rewrites them as other joins; only `sparkext.declined(df)` and the log can tell,"
            " and reasons of keys and columns above apply as well. The transform"
            " [`asof_join`](transforms.md#asof_join) takes most of these through `mapInArrow` instead."
        ),
        {
            "the right side takes … bytes by Spark's estimate, and spark.sparkext.buildSide.maxBytes is …": (
                "Raise the limit, or hint either side: then only the real size counts. The estimate of rows whose"
                " number is not known (an RDD, a cache that is still empty) is huge."
            ),
            "a condition like …": "Covered is a comparison of one value of each side.",
            "values of type …": (
                "Integers, dates, timestamps and decimals of up to 18 digits are covered, the same on both sides."
            ),
            "differences of integers that may wrap around, without spark.sql.ansi.enabled": (
                "There Spark takes far values for near ones. Set `spark.sql.ansi.enabled`."
            ),
            "a value that may fail: …": (
                "Spark computes it for rows with equal keys, and this would for all rows: compute it before the join."
            ),
            "a tolerance of … for …": (
                "Covered are days for dates, and intervals for timestamps: of less than a day in zones with summer"
                " time, and not for values that are converted from local times or days."
            ),
            "a tolerance like …": "It has to be a constant.",
            "a condition that is no equality of the two sides: …": (
                "Beside the nearness only equalities are covered: filter before or after."
            ),
        },
    ),
    Group(
        "Parts of conditions",
        "What follows the colon of a reason above, where it is not the SQL of the part itself.",
        {
            "a condition nested too deeply": "More than 50 levels; 250 where Spark evaluates it.",
            "a list of more than … values that are no constants": (
                "`IN` compares with each of these. Constants are looked up, and may be as many as Spark bears."
            ),
            "a formula too large to compile": ("More than 200 operations, which take some three seconds to compile."),
        },
    ),
    Group(
        "Scans that Spark does",
        (
            "The join is a pipeline, but workers do not read the files of this side themselves: `EXPLAIN` shows"
            " `scan=rows from Spark (<reason>)` or `scan=columns from Spark (<reason>)`."
        ),
        {
            "kept from workers by spark.sparkext.scan.fused": "It is set to false.",
            "not a scan of files: …": (
                "There is something else below the join: an aggregate, another join, a cache. Rows of it cross into"
                " Python."
            ),
            "a column that Spark computes: …": (
                "A computed column that a join needs, but for integers that widen. Compute it after the join if you"
                " can."
            ),
            "a filter nested too deeply": "More than 250 levels.",
            "a filter that only Spark evaluates: …": (
                "Workers know comparisons of columns and literals (not of floats), IN, IS NULL, LIKE with `%`, AND,"
                " OR and NOT."
            ),
            "metadata columns of files": "`_metadata` is asked for.",
            "partitions that are chosen while the query runs": (
                "Dynamic partition pruning, or a subquery in a partition filter."
            ),
            "a scan in a single task": "Spark promised the plan above a single partition.",
            "column …, which is not in the files": "Neither in the files nor a partition.",
            "splits that are not files: …": "The relation's scan is a kind of its own.",
            "the files cannot be listed: …": "With what Spark said.",
            "not a Parquet scan: …": (
                "Another format, or a table format that gives Parquet files a meaning of its own."
            ),
            "corrupt or missing files are to be ignored": "`ignoreCorruptFiles` or `ignoreMissingFiles` is set.",
            "columns are matched by field id": "`spark.sql.parquet.fieldId.read.enabled` is set.",
            "spark.sql.parquet.int96TimestampConversion is true": "Timestamps of other engines are to be shifted.",
            "files may be encrypted": "`parquet.crypto.factory.class` is set.",
            "partition column … of type …": "Floats and binary values do not travel as text.",
            "column … of type …": "Nested columns, intervals, variants and collated strings.",
            "column … has a default for files that lack it": "Workers do not fill it in.",
            "is encrypted": "The file's path stands before it.",
            "has several columns …": "The names differ in case only, and the session does not.",
            "has column … in other letters": (
                "Names beyond ASCII that differ in case: Java and Python fold them differently."
            ),
            "column … is nested": "In this file.",
            "column … is of …": "The file has another type than the table: rewrite it, or cast after reading.",
            "column … is stored as …": (
                "Unsigned integers, bytes of fixed length, decimals stored as bytes of any length or of more than 16,"
                " nanoseconds, or a string without its annotation."
            ),
            "column … is of another calendar": "Dates or timestamps of Spark 2 or Hive that Spark rebases.",
            "a footer cannot be read: …": "With what Parquet said.",
            "bucket …: …": "Followed by one of those below.",
            "fs.s3a.… is set": (
                "A proxy, a role to assume, client-side encryption, or another setting that workers do not follow."
            ),
            "fs.s3a.endpoint is none whose region is known": "Set `fs.s3a.endpoint.region`.",
            "credentials of …": "A credential provider that workers do not know.",
            "no credentials in its settings": "No provider gives any.",
            "files that workers do not read: …:": (
                "The scheme is neither `file:` nor one that Spark's S3A connector reads."
            ),
            "a full outer join shuffles the rows": "The probe side of a full outer join is shuffled by its keys.",
            "workers read files": "Never shown: the scan is fused.",
        },
    ),
    Group(
        "Rows where there could be columns",
        (
            "Why rows cross into Python one by one (`scan=rows from Spark`) where Spark might have given columns."
            " These are not shown: the reason in the plan is that of the scan."
        ),
        {
            "no columns": "A side of which nothing is asked but how many rows it has.",
            "rows come from …": "The operator below gives rows.",
            "a filter that is not deterministic: …": "`rand` and the like.",
            "a filter with a subquery: …": "",
        },
    ),
    Group(
        "Pipelines that fall back",
        (
            "What is found out only while a query runs. Spark's own joins run in place of the pipeline then, over the"
            " rows of its sources. The log warns with the reason, the plan that has run shows it at the operator (`fell"
            " back to Spark's own joins: <reason>`) with the joins below it, and `sparkext.declined(df)` lists it."
        ),
        {
            "the build side of the join on … does not fit: its first … rows take … bytes, the limit is …": (
                "Raise `spark.sparkext.buildSide.maxBytes`, filter the build side, or put the hint on the other side."
            ),
            "the build side of the join on … does not pass the driver: its rows take more than …, … bytes": (
                "A build side that Spark computes passes the driver: raise `spark.driver.maxResultSize`."
            ),
            "the build side of the join on … does not fit the driver's disk: …": (
                "Its file cannot be written on the driver: make room in `spark.local.dir` there."
            ),
            "the build side of the join on … cannot be used: …": (
                "A worker that read it ahead of the join, because of the sizes that its files state, found that it"
                " does not fit the limit or the memory. The rest is what it [says](errors.md#buildsidetoolargeerror)."
            ),
        },
    ),
    Group(
        "Errors of the planned operator",
        "These end the query, as Spark's own errors.",
        {
            "the build side of the join on … was cancelled": (
                "Because another build side of the pipeline failed; that error is the one to read."
            ),
            "no Python to run the pipelined join: …": (
                "The Python was there when the query was planned, and is not now."
            ),
            "…: got '…', expected …": (
                "A `spark.sparkext.*` key holds what its type or range forbids. See [options](options.md)."
            ),
            "at most spark.sparkext.morsel.maxRows, which is …": (
                "What is expected of `spark.sparkext.morsel.minRows`."
            ),
            "…: unknown option '…', expected algorithm or maxBytes": "In a hint.",
            "… names relations, got …": "In a hint: `PIPELINED_JOIN(o, 'algorithm=hash')`.",
            "workers cannot compute what Spark finds …: …": "A fault in sparkext: report it.",
            "workers emitted …, declared are …": "A fault in sparkext: report it.",
        },
    ),
)

OTHER_TEXTS = {
    "AsOf.scala": {"Spark's own as-of join instead of a pipelined one: …"},
    "AheadBuilder.scala": {"build side of the join on …"},
    "BuildSidePreparation.scala": {"build side of the join on …"},
    "ChainLayout.scala": {"… … …", "… as of … ~ …"},
    "ColumnarParts.scala": {"columns of a build side"},
    "ColumnsToArrow.scala": {"columns of … are not copied to …"},
    "ConfigKey.scala": {"bit mask", "byte size"},
    "FusedScan.scala": {"partition column …: no value of …", "fused …", " filter …"},
    "Guarded.scala": {"planning pipelined joins failed (…), and Spark plans without: please report this", "… …"},
    "JoinChain.scala": {"… …"},
    "JoinStage.scala": {"an …", "a …"},
    "PipelineMetrics.scala": None,
    "PipelineRuns.scala": {"… …"},
    "PipelineDescription.scala": {
        ", built ahead as it may take more",
        "…, …, algorithm …, build side: child … of … bytes at most…, scan: …",
        "as a pipeline, or by Spark's own joins if a build side turns out not to fit",
        "… … scan=………",
        "Join …: …",
    },
    "PipelineInputs.scala": {"… from Spark (…)"},
    "PipelinedJoinExec.scala": {
        "fell back to Spark's own joins: …",
        "Spark's own joins run instead of a pipelined one: …. …",
        "To run the pipeline raise spark.sparkext.buildSide.maxBytes, filter the build side, or put the hint on the"
        " other side",
    },
    "RuntimeFallback.scala": {"… of child … of the pipeline", "Child … of the pipeline", "no columns chosen: …"},
    "PipelinedJoinStrategy.scala": {"Spark's own join instead of a pipelined one: …; at …"},
    "RowInPlace.scala": {"rows of a batch do not change", "there are no more rows"},
    "PythonBatches.scala": {
        "FileReadError: cannot read ['\"](.*)['\"]: (no such file)?",
        r"ConditionError: the condition of join (\d+) fails on (\{.*?\})",
    },
    "Trees.scala": {"… of more than … parts"},
    "WorkerCondition.scala": {"… … …"},
}
"""Texts that are no reasons, by file: parts of plans, names of metrics and jobs, lines of the log. None: all of it."""


def told() -> dict[str, set[str]]:
    """Return the texts of the sources that may be reasons, by file."""
    found = {}
    for path in sorted(SOURCES.rglob("*.scala")):
        others = OTHER_TEXTS.get(path.name, set())
        found[path.name] = set() if others is None else set(sentences(path)) - others
    return found


def page() -> str:
    """Return the reasons as Markdown. Raises `ValueError` if they are not those of the sources."""
    explained = {reason for group in GROUPS for reason in group.reasons}
    sources = set().union(*told().values())
    if sources != explained:
        unexplained, stale = sorted(sources - explained), sorted(explained - sources)
        raise ValueError(f"docs/tools/declines.py: not explained {unexplained}, not in the sources {stale}")
    return "\n\n".join(_section(group) for group in GROUPS)


def _section(group: Group) -> str:
    rows = [f"| `{reason}` | {meaning} |" for reason, meaning in group.reasons.items()]
    return "\n".join(
        [f"## {group.title}", "", group.about, "", "| reason | what it means, what to do |", "| --- | --- |", *rows]
    )
