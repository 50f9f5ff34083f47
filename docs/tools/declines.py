"""Reasons for which joins and scans are left to Spark, each with its meaning and remedy.

The reasons are extracted from the extension's sources (`scala_texts`), and explained here. A text in the sources that
is neither a reason here nor one of `OTHER_TEXTS` is an error, and so is a reason that no source contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from docs.tools.scala_texts import sentences

SOURCES = Path(__file__).parents[2] / "sparkext" / "jvm"


@dataclass(frozen=True)
class Group:
    """Reasons that are shown in the same place; `reasons` has the meaning and remedy of each."""

    title: str
    about: str
    reasons: Mapping[str, str]


GROUPS = (
    Group(
        "Joins",
        (
            "These reasons keep a join from being planned as a pipeline. `EXPLAIN` shows them as"
            " `DeclinedPipelinedJoin: <reason>` above Spark's own join."
        ),
        {
            "not hinted, and spark.sparkext.mode is hint": (
                "In hint mode only hinted joins are planned; the others get no note."
            ),
            "…: got '…', expected …": (
                "A `spark.sparkext.*` key cannot be read, and the value that is used instead follows: if `mode` cannot"
                " be read it is off, so that no join is planned. Other reasons end with the problems of keys that may"
                " have led to them; at a pipeline they are its `options=`. In a hint such a value is an error. See"
                " [options](options.md)."
            ),
            "at most spark.sparkext.morsel.maxRows, which is …": (
                "The expected range of `spark.sparkext.morsel.minRows`."
            ),
            "a value only when the application starts": (
                "The session sets a key that affects other sessions, see [options](options.md). The application's value"
                " is used."
            ),
            "not hinted, and … replaces Spark's operators in this session: costs are compared with Spark's own": (
                "An engine such as Comet runs the query natively, which may be faster than a pipeline: in its sessions"
                " `auto` plans only hinted joins. Hint the join, or switch the engine off in the session"
                " (`spark.comet.enabled=false`). There the plan has no notes, since the engine would not replace"
                " operators above them: `sparkext.declined` and the log show the reasons."
            ),
            "the build side takes … bytes by Spark's estimate, and spark.sparkext.buildSide.maxBytes is …: …": (
                "By default such a join is [partitioned](scale.md); what follows says why this one is not. Raise the"
                " limit if the nodes' disks have room, filter the build side, or hint the join: then only the real size"
                " counts."
            ),
            "spark.sparkext.partitioned is never": "Set it to `auto`.",
            "an as-of join cannot be partitioned": "Nor are its build sides too large often.",
            "… does not take files of workers": (
                "Partitioned joins need Spark's own shuffle manager, which hands out the files that workers write."
            ),
            "a shuffle of files that workers write does not work with …": "Both change how Spark reads map outputs.",
            "no Spark environment": "There is no application whose shuffle could be asked for.",
            "it is not partitioned": "Nothing keeps it from that; please report it.",
            "Spark broadcasts every build side of it, and rows would have to cross into Python": (
                "A broadcast join of tables this small is hard to beat unless workers read the probe side's"
                " files. A hint overrules this."
            ),
            "dynamic partition pruning of the probe side needs Spark's own join": (
                "Spark prunes partitions of the probe side by the rows of a build side while the query runs. A"
                " hint overrules this."
            ),
            "by the estimates it is not clearly cheaper than Spark's own joins"
            " (… s against … s; a hint overrules this)": (
                "`auto` mode requires at most 0.7 of Spark's cost and a saving of a quarter of a second. Both"
                " numbers are seconds of the cost model; only their ratio is meaningful. Hint the join if you"
                " know better, or give Spark statistics (`ANALYZE TABLE`)."
            ),
            "spark.io.encryption.enabled is true, and workers map build sides from files that are not encrypted": (
                "Turn off the encryption of local files, or use the transforms in a session without the"
                " extension, where each worker holds its own copy."
            ),
            "Spark has broadcast one side of it already": (
                "Adaptive execution planned the join again after it had broadcast one side, whose rows are then"
                " not available to others. Hint the join, or lower `spark.sql.autoBroadcastJoinThreshold`."
            ),
            "not a join: …": "Never shown for a join; the planner's reason for everything else.",
            "a streaming join": "Build sides must be finite. Use Spark's own join.",
            "a function of the current file, such as input_file_name(), is used above it": (
                "It refers to the file that Spark's task is currently reading, and above a pipeline no file is"
                " read. Compute it below the join, or use the columns of `_metadata`."
            ),
            "NOT IN, which Spark looks up in a hash table": (
                "NOT IN has different semantics for values that may be null. If there are no nulls, write NOT"
                " EXISTS or a left anti join."
            ),
            "the query asks for Spark's …": (
                "This join has another join hint (BROADCAST, MERGE, SHUFFLE_HASH, …), which takes precedence:"
                " remove it."
            ),
            "a full outer join without an equality has to be partitioned: …": (
                "An unmatched row of either side must be emitted only once, and where no key brings rows together,"
                " units of a join matrix see to that."
            ),
            "column … of type … cannot be passed between Spark and Python": (
                "Month intervals, structs with two fields of the same name, and other types that Spark does not"
                " exchange with Python as Arrow: drop or cast the column before the join."
            ),
            "a key that is not deterministic: … = …": "First write it to a column of a table, or cache it.",
            "a subquery in a join key": "Compute it before the join.",
            "keys of different types: …": "Cast one side.",
            "a key of type …: …": (
                "Nested types, month intervals, variants, and strings with a collation are not compared by"
                " their bytes. Cast the key."
            ),
            "neither an equality nor a comparison between the two sides, nor a formula that workers compile…": (
                "There is nothing to look rows up by, and the condition is not a"
                " [formula](extension.md#formulas). The unsupported part follows the colon."
            ),
            "a condition beside the keys of … join that only Spark evaluates: …": (
                "In outer, semi, anti and existence joins the condition decides which pairs match, so workers"
                " have to evaluate it; the part that they do not support follows. Inner joins take any"
                " condition: Spark filters their result."
            ),
            "a condition that may fail and would be tested on different pairs than in Spark: …": (
                "Conditions would be tested in a different order, so a different pair could fail than in Spark."
                " Put conditions that may fail last, or write them so that they cannot (`try_add`, `try_cast`)."
            ),
            "a join of type …": (
                "Join types other than inner, left, right, full, semi, anti and existence are not planned."
            ),
            "a condition that is not deterministic: …": (
                "Its value depends on which pairs Spark evaluates. Compute it before the join, or filter after it."
            ),
            "a subquery in a join condition": "Compute it before the join, or filter after it.",
            "a key computed from several tables: …": (
                "The key needs columns of more than one of the tables before it, so none of them can compute"
                " it. The joins below may still be a pipeline."
            ),
            "a key computed from a side of an earlier full join: …": (
                "Rows of that side may be missing when the key is computed. The joins below may still be a pipeline."
            ),
            "a key computed from the outer side of an earlier join: …": (
                "Rows of that side may be missing when the key is computed. The joins below may still be a pipeline."
            ),
            "a plan nested too deeply": "More than a thousand levels, which planning traverses for every join.",
            "a column nested too deeply": "More than 250 levels: compute it in steps, with a cache or table between.",
            "planning it failed: …": (
                "A bug in sparkext; the exception follows. Please report it, with the warning that the driver"
                " logs once. The join is left to Spark."
            ),
            "no Python to run it: …": (
                "Followed by one of the six below. `python -m sparkext doctor`, run by that Python, says more."
            ),
            "… does not start: …": (
                "`spark.sparkext.python` (or `spark.pyspark.python`, or PYSPARK_PYTHON) names no executable on the"
                " driver."
            ),
            "… cannot run sparkext: …": (
                "That Python lacks sparkext, numba, numpy, pandas or pyarrow: install it there. Or it has no folder to"
                " cache compiled kernels in: set NUMBA_CACHE_DIR."
            ),
            "… has sparkext …, this jar belongs to …": (
                "Jar and package have different versions: install the same one on the driver, on every node and"
                " in the session."
            ),
            "… answered '…'": (
                "Something printed to Python's standard output while it started: check its `sitecustomize`."
            ),
            "… printed more than … bytes instead of its version": "The same.",
            "… does not answer within … s": "It hangs, or the disk with its packages does.",
            "spark.executor.pyspark.memory leaves a worker … MiB of address space; a pipeline needs at least … MiB": (
                "The cores of an executor share that limit, and libraries and mapped files count towards it:"
                " unset it, or raise it."
            ),
            "workers would map a build side of … bytes (Spark's estimate), but spark.executor.pyspark.memory"
            " leaves a worker … MiB of address space": "The same, for joins without a hint.",
        },
    ),
    Group(
        "As-of joins",
        (
            "Spark rewrites declined as-of joins as other joins, so only `sparkext.declined(df)` and the"
            " log show the reason; the reasons above about keys and columns apply as well. The transform"
            " [`asof_join`](transforms.md#asof_join) runs most of these through `mapInArrow` instead."
        ),
        {
            "the right side takes … bytes by Spark's estimate, and spark.sparkext.buildSide.maxBytes is …": (
                "Raise the limit, or hint either side: then only the real size counts. If the number of rows is"
                " unknown (an RDD, a cache that is still empty), Spark's estimate is huge."
            ),
            "a condition like …": "Only a comparison of one value from each side is supported.",
            "values of type …": (
                "Integers, dates, timestamps and decimals of up to 18 digits are supported, with the same type"
                " on both sides."
            ),
            "differences of integers that may wrap around, without spark.sql.ansi.enabled": (
                "In this mode Spark treats far values as near. Set `spark.sql.ansi.enabled`."
            ),
            "a value that may fail: …": (
                "Spark computes it only for rows with equal keys, a pipeline would for all rows: compute it"
                " before the join."
            ),
            "a tolerance of … for …": (
                "Supported are days for dates, and intervals for timestamps: less than a day in zones with"
                " daylight saving time, and none for values converted from local times or days."
            ),
            "a tolerance like …": "It must be a constant.",
            "a condition that is not an equality of the two sides: …": (
                "Apart from the nearest value, only equalities are supported: filter before or after the join."
            ),
        },
    ),
    Group(
        "Build sides that Spark makes",
        (
            "These reasons keep workers from making a build side by a pipeline of its own: Spark runs it, and its rows"
            " are collected. `EXPLAIN FORMATTED` shows them as `rows from Spark (<reason>)`."
        ),
        {
            "probe side of it: …": "Workers do not read the files that it begins with, for the reason that follows.",
            "build side … of it: …": "Nor do they make one of its build sides.",
            "an aggregate of more than two parts": "So Spark plans distinct aggregates.",
            "by the estimates a build side is not clearly cheaper to make in workers than with Spark's own joins"
            " (… s against … s; a hint overrules this)": (
                "`auto` mode requires at most 0.7 of Spark's cost, that of bringing its rows to workers included. On a"
                " cluster each node makes the whole build side, which counts as often as there are nodes."
            ),
            "a column that is not deterministic: …": "It stays where it is, and so do all rows below it.",
        },
    ),
    Group(
        "Groups that Spark makes",
        (
            "Spark computes partial aggregates itself for these reasons. `EXPLAIN` shows them as"
            " `groups=by Spark (<reason>)` at the pipeline whose rows are grouped; above a scan alone it shows nothing."
        ),
        {
            "an aggregate that only Spark computes: …": (
                "Workers compute `count`, `sum`, `avg`, `min`, `max`, the variances and standard deviations, the"
                " aggregates of bits, `bool_and` and `bool_or`, and `first`, `last` and `any_value`, but not with both"
                " FILTER and RESPECT NULLS. With any other function beside them the whole aggregate is Spark's."
            ),
            "an expression that only Spark evaluates: …": (
                "A group column, or an argument, has a part that workers do not evaluate: it follows the colon."
            ),
            "a condition that only Spark evaluates: …": ("So has a filter between the joins and the aggregate."),
            "groups by a value of type …: …": (
                "Nested types, month intervals, variants, and strings with a collation are not compared by their bytes."
            ),
            "neither a join nor a scan of files: …": (
                "Between the rows that workers have and the aggregate may be filters, computed columns and the rows of"
                " grouping sets, and nothing else."
            ),
            "a filter of expanded rows": (
                "A `HAVING` on `grouping(…)` alone is tested before rows are grouped, on those of grouping sets."
            ),
            "rows expanded to more than …": (
                "Each grouping set, and each of several `count(DISTINCT …)`, is told to every task, but not so many:"
                " name the sets that you need with `GROUPING SETS` instead of `CUBE`."
            ),
            "no column is read": "Spark counts the rows of files without workers.",
            "a streaming aggregate": "Streams are aggregated by Spark.",
            "an aggregate that Spark does not compute in parts": ("Some functions need all rows of a group at once."),
            "an expression nested too deeply": "Compute parts of it in a subquery that is not merged, or cache them.",
            "no plan": "Never shown: Spark plans every aggregate.",
        },
    ),
    Group(
        "Slots that run in waves",
        (
            "With `spark.sparkext.partitioned.stages` set to `pipelined`, a partitioned join runs in waves all the same"
            " for these reasons. `EXPLAIN` shows them as `slots=in waves (<reason>)` at the pipeline."
        ),
        {
            "Spark … has no pipelined shuffle": "It has come with Spark 4.3.",
            "another shuffle belongs to the same job": (
                "Spark runs no job with both kinds of shuffle: an aggregate, a sort or a window above the join needs"
                " one, and so may what is below its probe side. Write the rows of the join first."
            ),
            "a limit asks for some partitions only": "All slots of a join have to run at a time.",
            "several joins are partitioned": "In one job there is one pipelined shuffle; others would wait for cores.",
            "units of a join matrix have no lines": "Nothing could be moved: each pair of parts has its unit.",
            "rows of one key have to come out of one slot": "Groups of the key are made in slots, without a shuffle.",
            "a full outer join emits build rows when all others have come": (
                "Which build rows nothing matches is not known while lines move."
            ),
            "… belongs to the same job": (
                "An operator that asks for some of the join's partitions, joins several into one task, adds tasks, or"
                " may hide a shuffle, such as a cached table."
            ),
            "Spark's pipelined shuffle does not follow …": (
                "It sends rows as they are, to whoever asks, whatever is set for other connections."
            ),
            "… is set": (
                "Executors that come and go, and second copies of tasks, are not for stages all of whose tasks run at a"
                " time."
            ),
            "it takes two cores": "One to route rows, one to join them.",
        },
    ),
    Group(
        "First rows that Spark chooses",
        (
            "For these reasons a pipeline emits all its rows although Spark takes only the first ones (`ORDER BY` with"
            " `LIMIT`). `EXPLAIN` shows them as `top=by Spark (<reason>)` at the pipeline."
        ),
        {
            "ordered by what is computed above the joins: …": (
                "Workers order by columns that they emit. What is computed of these, Spark orders by."
            ),
            "ordered by a value of type …: …": (
                "Nested types, month intervals, variants, and strings with a collation are not ordered by their bytes."
            ),
            "a column that may fail, or is not deterministic: …": (
                "It is computed of all rows, as in Spark: one that is not among the first may raise the error. With"
                " `try_add` and its relatives, or decimals with room for the result, nothing can fail."
            ),
            "a filter above the joins that only Spark evaluates": "Which rows are first is known only behind it.",
            "more than … rows": "Workers keep that many in memory at most.",
        },
    ),
    Group(
        "Parts of conditions",
        "These follow the colon of a reason above, unless it is the SQL of the part itself.",
        {
            "a condition nested too deeply": "More than 200 levels; 250 where Spark evaluates it.",
            "a list of more than … non-constant values": (
                "`IN` compares with each of them. Constants are looked up, so there may be as many as Spark allows."
            ),
            "a formula too large to compile": ("More than 200 operations, which take about three seconds to compile."),
        },
    ),
    Group(
        "Scans that Spark does",
        (
            "The join is a pipeline, but workers do not read the files of this side themselves: `EXPLAIN` shows"
            " `scan=rows from Spark (<reason>)` or `scan=columns from Spark (<reason>)`."
        ),
        {
            "disabled by spark.sparkext.scan.fused": "It is set to false.",
            "not a scan of files: …": (
                "There is something else below the join: an aggregate, another join, a cache. Its rows cross"
                " into Python."
            ),
            "a column that Spark computes: …": (
                "A join needs a computed column (other than a widened integer). Compute it after the join if you can."
            ),
            "a filter nested too deeply": "More than 250 levels.",
            "a filter that only Spark evaluates: …": (
                "Workers support comparisons, arithmetic, IN, IS NULL, CASE, COALESCE, LIKE, parts of strings and"
                " fields of dates; not what may fail, such as a division by a column in ANSI mode."
            ),
            "metadata columns of files": "`_metadata` is used.",
            "partitions chosen at run time": "Dynamic partition pruning, or a subquery in a partition filter.",
            "a scan in a single task": "Spark guarantees a single partition to the plan above.",
            "column …, which is not in the files": "It is neither in the files nor a partition column.",
            "splits that are not files: …": "The relation has its own kind of scan.",
            "the files cannot be listed: …": "Spark's error follows.",
            "not a Parquet scan: …": (
                "Another format, or a table format with its own interpretation of Parquet files: workers know those of"
                " Delta Lake and Iceberg."
            ),
            "a change data feed of Delta": "Read the table itself.",
            "deleted rows are asked for": "Only Delta's own commands do so.",
            "deleted rows that Delta has not planned to leave out": "Only Delta's own commands read such files.",
            "deleted rows that Delta uses in another way: …": "Files of a change data feed.",
            "deleted rows cannot be read: …": (
                "A deletion vector or a file of deletions is damaged or gone, or this version of the format is unknown:"
                " its error follows."
            ),
            "more than … deleted rows": "Workers are told of each. Compact the table.",
            "deletions by equality": (
                "Iceberg's equality deletes, as Flink writes them. Compact the table (`rewrite_data_files`)."
            ),
            "files that Iceberg reads through …": "Workers follow the settings of Hadoop, those of `HadoopFileIO`.",
            "files are encrypted": "By Iceberg.",
            "metadata column … of Iceberg": "`_file`, `_pos`, `_spec_id`, `_partition`, `_row_id` and the like.",
            "a scan that is partitioned by keys": "Spark joins the partitions of two tables without a shuffle.",
            "corrupt or missing files must be ignored": "`ignoreCorruptFiles` or `ignoreMissingFiles` is set.",
            "has no field ids": "Columns are matched by their ids, and this file was written without any.",
            "lacks column …, which it must have": "The column is declared as one without nulls.",
            "spark.sql.parquet.int96TimestampConversion is true": "Timestamps of other engines need to be shifted.",
            "files may be encrypted": "`parquet.crypto.factory.class` is set.",
            "partition column … of type …": "Floats and binary values cannot be passed as text.",
            "column … of type …": "Nested columns, intervals, variants and collated strings.",
            "column … has a default value for files without it": "Workers do not fill it in.",
            "is encrypted": "The file's path comes first.",
            "has several columns …": "The names differ only in case, which the session ignores.",
            "has column … spelled in a different case": (
                "Names beyond ASCII that differ in case: Java and Python fold them differently."
            ),
            "column … is nested": "In this file.",
            "column … is of …": "The file has another type than the table: rewrite it, or cast after reading.",
            "column … is stored as …": (
                "Unsigned integers, fixed-length bytes, decimals stored as variable-length bytes or as more"
                " than 16 bytes, nanoseconds, or strings without their annotation."
            ),
            "column … uses another calendar": "Dates or timestamps written by Spark 2 or Hive, which Spark rebases.",
            "a footer cannot be read: …": "Parquet's error follows.",
            "bucket …: …": "Followed by one of those below.",
            "fs.s3a.… is set": (
                "A proxy, a role to assume, client-side encryption, or another setting that workers do not follow."
            ),
            "the region of fs.s3a.endpoint is unknown": "Set `fs.s3a.endpoint.region`.",
            "credentials of …": "A credential provider that workers do not know.",
            "no credentials in its settings": "No provider returns any.",
            "files that workers do not read: …:": (
                "The scheme is neither `file:` nor one that Spark's S3A connector reads."
            ),
            "a partitioned join": "What it gives goes to other tasks, or to Spark: no node has all of it.",
            "a full outer join shuffles the rows": "The probe side of a full outer join is shuffled by its keys.",
            "workers read files": "Never shown: the scan is fused.",
            "not whole groups": "Never shown: what the scan says is.",
        },
    ),
    Group(
        "Rows where there could be columns",
        (
            "These are why rows cross into Python one by one (`scan=rows from Spark`) where Spark might"
            " have sent columns. They are not shown: the plan has the reason of the scan."
        ),
        {
            "no columns": "Only the number of rows of this side is needed.",
            "rows come from …": "The operator below produces rows.",
            "a filter that is not deterministic: …": "`rand` and the like.",
            "a filter with a subquery: …": "",
        },
    ),
    Group(
        "Pipelines that fall back",
        (
            "Some problems show up only while a query runs. Then Spark's own joins run in place of the"
            " pipeline, over the rows of its sources. The log warns with the reason, the executed plan"
            " shows it at the operator (`fell back to Spark's own joins: <reason>`) with the joins below"
            " it, and `sparkext.declined(df)` lists it."
        ),
        {
            "the build side of the join on … does not fit: its first … rows take … bytes, the limit is …": (
                "Raise `spark.sparkext.buildSide.maxBytes`, filter the build side, or put the hint on the other side."
            ),
            "the build side of the join on … does not pass through the driver: its rows exceed … (… bytes)": (
                "A build side that Spark computes passes through the driver: raise `spark.driver.maxResultSize`."
            ),
            "the build side of the join on … does not fit the driver's disk: …": (
                "Its file cannot be written on the driver: make room in `spark.local.dir` there."
            ),
            "the … cannot be used: …": (
                "A worker read it ahead of the join, because of the sizes that its files state, and found that"
                " it exceeds the limit or the memory. The worker's [message](errors.md#buildsidetoolargeerror)"
                " follows."
            ),
        },
    ),
    Group(
        "Errors of the planned operator",
        "These fail the query, as Spark's own errors.",
        {
            "the … was cancelled": ("Another build side of the pipeline failed; read that error instead."),
            "no Python to run the pipelined join: …": (
                "Python was there when the query was planned, and no longer is."
            ),
            "…: unknown option '…', expected algorithm, maxBytes or partitioned": "In a hint.",
            "… names relations, got …": "In a hint: `PIPELINED_JOIN(o, 'algorithm=hash')`.",
            "workers told of … bytes, and … has …": "A map output is not as long as the worker that wrote it has said.",
            "build rows are lost, run the query again: …": (
                "An executor was lost that had rows of a build side, while the probe side streamed to slots. In waves"
                " Spark would run the tasks again that wrote them."
            ),
            "… of … slots of a join run, which all have to: something asks for some of its partitions only. Set"
            " spark.sparkext.partitioned.stages to waves for it": (
                "While the probe side streams to slots, all of them have to run at a time: not so with"
                " `toLocalIterator`, or `take` of an RDD."
            ),
            "workers cannot evaluate what Spark evaluates to …: …": "A bug in sparkext: please report it.",
            "workers emitted …, expected …": "A bug in sparkext: please report it.",
        },
    ),
)

OTHER_TEXTS = {
    "BroughtBlocks.scala": {"no block of a shuffle: …: …", "no segment of a file: …"},
    "Exchange.scala": {
        "… …",
        "… … of ……",
        ", streamed by … … to … …",
        "units of a matrix of …",
        "joins on different keys are partitioned one after the other",
    },
    "MapFiles.scala": {"more than one account of a file"},
    "AsOf.scala": {"Spark's own as-of join instead of a pipelined one: …"},
    "BuildSidePublisher.scala": {"build side of the join on …"},
    "OwnBuilds.scala": {"build sides"},
    "OwnPipelines.scala": {"build side"},
    "PipelinedBuild.scala": {"made by a pipeline of its own…", ", of whole groups", "not a pipeline: …"},
    "ChainLayout.scala": {"… … …", "… as of … ~ …"},
    "ColumnarParts.scala": {"columns of a build side"},
    "ColumnsToArrow.scala": {"columns of … are not copied to …"},
    "ConfigKey.scala": {
        "bit mask",
        "byte size",
        "…: unknown key, did you mean …?",
        "…: unknown key, available: …",
    },
    "Settings.scala": {"…; … is used"},
    "DeltaTable.scala": {"version …", "… rows in a deletion vector of …"},
    "Foreign.scala": {"… of … arguments", "….… of … arguments"},
    "FusedScan.scala": {
        "partition column …: no value of …",
        "fused …",
        " filter …",
        " of …",
        " without … deleted rows",
    },
    "IcebergTable.scala": {"not a Parquet scan: … files of Iceberg", "snapshot …", "… of … is …"},
    "Guarded.scala": {"planning pipelined joins failed (…), so Spark plans without them: please report this", "… …"},
    "JoinChain.scala": {"… …"},
    "JoinStage.scala": {"an …", "a …"},
    "Groups.scala": {"… of …"},
    "TopRows.scala": {"… by …", "… … …"},
    "PipelineMetrics.scala": None,
    "PipelineRuns.scala": {"… …"},
    "PipelineDescription.scala": {
        ", built ahead as it may take more",
        "…, …, algorithm …, build side: child …, at most ……, scan: …",
        "as a pipeline, or by Spark's own joins if a build side turns out not to fit",
        "… … scan=……",
        "in waves (…)",
        "Join …: …",
    },
    "PipelineInputs.scala": {"sent to slots", "… from Spark (…)", "build side", "workers make the rows"},
    "PipelinedJoinExec.scala": {
        "build side of the join on …",
        "build side of the partitioned join on …",
        "probe side of partitioned joins",
        "slots of partitioned joins",
        "rows that workers make",
        "fell back to Spark's own joins: …",
        "Spark's own joins run instead of a pipelined one: …. …",
        "To run the pipeline raise spark.sparkext.buildSide.maxBytes, filter the build side, or put the hint on the"
        " other side",
    },
    "RuntimeFallback.scala": {"… of child … of the pipeline", "Child … of the pipeline", "no columns chosen: …"},
    "PipelinedJoinStrategy.scala": {"Spark's own join instead of a pipelined one: …; at …"},
    "WholeGroupsExec.scala": {"… ……"},
    "RowInPlace.scala": {"rows of a batch do not change", "there are no more rows"},
    "PythonBatches.scala": {
        "CellError: cells at bytes (\\d+) to \\d+ of ['\"](.*)['\"] cannot be read: (.*)",
        "FileReadError: cannot read ['\"](.*)['\"]: (no such file)?",
        r"ConditionError: ((?:build side \d+: )*)(.*) (?:fails on (\{.*\})|overflows in a group)",
        r"the condition of join (\d+)",
        r"expression (\d+) of the groups",
        r"column (\d+) of the result",
        "the filter",
        "the filter of the result",
        "a sum of integers",
    },
    "Trees.scala": {"… of more than … parts"},
}
"""Texts that are not reasons, by file: parts of plans, names of metrics and jobs, log lines. None: all texts."""


def told() -> dict[str, set[str]]:
    """Return the texts of the sources that may be reasons, by file."""
    found = {}
    for path in sorted(SOURCES.rglob("*.scala")):
        others = OTHER_TEXTS.get(path.name, set())
        found[path.name] = set() if others is None else set(sentences(path)) - others
    return found


def page() -> str:
    """Return the reasons as Markdown. Raises `ValueError` if they differ from the reasons in the sources."""
    explained = {reason for group in GROUPS for reason in group.reasons}
    sources = set().union(*told().values())
    if sources != explained:
        unexplained, stale = sorted(sources - explained), sorted(explained - sources)
        raise ValueError(f"docs/tools/declines.py: not explained {unexplained}, not in the sources {stale}")
    return "\n\n".join(_section(group) for group in GROUPS)


def _section(group: Group) -> str:
    rows = [f"| `{reason}` | {meaning} |" for reason, meaning in group.reasons.items()]
    return "\n".join(
        [f"## {group.title}", "", group.about, "", "| reason | meaning and remedy |", "| --- | --- |", *rows]
    )
