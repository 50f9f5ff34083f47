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
            "For these reasons a join is not planned as a pipeline. `EXPLAIN` shows them as `DeclinedPipelinedJoin:"
            " <reason>` above Spark's own join."
        ),
        {
            "not hinted, and spark.sparkext.mode is hint": (
                "In `hint` mode only hinted joins are planned, and the plan has no note at other joins. Hint the join,"
                " or set `spark.sparkext.mode` to `auto`."
            ),
            "…: got '…', expected …": (
                "The value of a `spark.sparkext.*` option is invalid. The value that is used instead follows: `off` for"
                " `mode`, so that no join is planned. Other reasons end with the problems of options that may have"
                " caused them, and a pipeline shows such problems as its `options=`. In a hint an invalid value is an"
                " error. Correct the value: see [options](options.md)."
            ),
            "at most spark.sparkext.morsel.maxRows, which is …": (
                "The valid range of `spark.sparkext.morsel.minRows`. If the value is larger, `maxRows` is used instead."
                " Lower `minRows`, or raise `maxRows`."
            ),
            "a value only when the application starts": (
                "The session sets an option that affects other sessions. The application's value is used. Set the"
                " option when the application starts: see [options](options.md)."
            ),
            "not hinted, and … replaces Spark's operators in this session: the cost model covers only Spark's own"
            " operators": (
                "An engine such as Comet replaces Spark's operators by native ones, which may be faster than a"
                " pipeline. `auto` cannot compare the costs, so it plans only hinted joins. Hint the join, or switch"
                " the engine off in the session (`spark.comet.enabled=false`). The plan has no notes, because the"
                " engine would not replace the operators above a note: `sparkext.declined` and the log show the"
                " reasons."
            ),
            "the build side takes … bytes by Spark's estimate, spark.sparkext.buildSide.maxBytes is …, and the join is"
            " not partitioned: …": (
                "By default a join with such a build side is [partitioned](scale.md). The text after the colon states"
                " why this join is not. Raise the limit if the disks of the nodes have enough space, filter the build"
                " side, or hint the join: then only the actual size counts."
            ),
            "spark.sparkext.partitioned is never": (
                "The option, or the hint of the join, forbids partitioned joins. Set it to `auto`."
            ),
            "an as-of join cannot be partitioned": (
                "Never shown: if the right side of an as-of join is too large, [another reason](#as-of-joins) is shown."
            ),
            "… does not serve files that workers write": (
                "Partitioned joins need Spark's own shuffle manager, which serves the files that workers write. Remove"
                " `spark.shuffle.manager` from the application's settings."
            ),
            "a shuffle of files that workers write does not work with …": (
                "`spark.shuffle.push.enabled` and `spark.shuffle.useOldFetchProtocol` change how Spark reads map"
                " outputs. Unset the option when the application starts."
            ),
            "no Spark environment": (
                "No application is running whose shuffle could be used. Run the query in a running application."
            ),
            "the reason is unknown": (
                "A bug in sparkext, as nothing prevents the join from being partitioned: please report it."
            ),
            "Spark broadcasts all of its build sides, and a pipeline would have to send the rows to Python": (
                "Spark's broadcast joins of such small tables are hard to beat, unless workers read the files of the"
                " probe side. A hint overrules this."
            ),
            "dynamic partition pruning of the probe side needs Spark's own join": (
                "While the query runs, Spark drops partitions of the probe side by the rows of a build side. A hint"
                " overrules this."
            ),
            "by the estimates a pipeline is not clearly cheaper than Spark's own joins"
            " (… s against … s; a hint overrules this)": (
                "`auto` mode requires at most 0.7 of the cost of Spark's joins, and a saving of at least a quarter of a"
                " second. Both numbers are seconds of the cost model; only their ratio is meaningful. Hint the join if"
                " you know better, or give Spark statistics (`ANALYZE TABLE`)."
            ),
            "spark.io.encryption.enabled is true, and workers map build sides from files that are not encrypted": (
                "Build sides would be stored on local disks without encryption. Turn off the encryption of local files,"
                " or use the transforms in a session without the extension: there each worker holds its own copy in"
                " memory."
            ),
            "Spark has broadcast one side of it already": (
                "Adaptive execution planned the join again after it had broadcast one side. The rows of that side are"
                " not available to other operators. Hint the join, so that it is a pipeline from the beginning, or"
                " lower `spark.sql.autoBroadcastJoinThreshold`."
            ),
            "not a join: …": "Never shown for a join: it is the planner's reason for all other operators.",
            "a streaming join": (
                "A build side has to be finite, so no join of a stream is planned. For two streams use"
                " [`stream_join`](streams.md), otherwise Spark's own join."
            ),
            "a function of the current file, such as input_file_name(), is used above it": (
                "The function returns the file that Spark's task is currently reading. Above a pipeline the task reads"
                " no file. Compute the function below the join, or use the columns of `_metadata`."
            ),
            "NOT IN, which Spark looks up in a hash table": (
                "NOT IN treats null values in its own way. If there are no nulls, write NOT EXISTS or a left anti join."
            ),
            "a hint in the query requests Spark's …": (
                "The join has another join hint (BROADCAST, MERGE, SHUFFLE_HASH, …), which takes precedence. Remove"
                " that hint."
            ),
            "a full outer join without an equality has to be partitioned, which is not possible: …": (
                "An unmatched row of either side must be emitted only once. Without a key, only the units of a join"
                " matrix ensure this. The text after the colon states why the join cannot be partitioned."
            ),
            "column … of type … cannot be passed between Spark and Python": (
                "Month intervals, structs with two fields of the same name, and other types that Spark does not"
                " exchange with Python as Arrow. Drop or cast the column before the join."
            ),
            "a key that is not deterministic: … = …": (
                "The key may have another value whenever it is computed. First write it to a column of a table, or"
                " cache it."
            ),
            "a subquery in a join key": "Workers do not run subqueries. Compute the value before the join.",
            "keys of different types: …": "Keys of different types cannot be looked up in one index. Cast one side.",
            "a key of type …: …": (
                "Nested types, month intervals, variants, and strings with a collation are not compared by their bytes."
                " Cast the key."
            ),
            "neither an equality nor a comparison between the two sides, nor a formula that workers compile…": (
                "The join has no value to look rows up by, and its condition is not a [formula](extension.md#formulas)."
                " The part that workers do not support, if there is one, follows the colon. Add an equality or a"
                " comparison of the two sides, or rewrite that part."
            ),
            "a condition in addition to the keys of … join, which only Spark evaluates: …": (
                "In outer, semi, anti and existence joins the condition decides which pairs match, so workers have to"
                " evaluate it. The part that they do not support follows the colon: rewrite it. Inner joins support any"
                " condition in addition to their keys, because Spark filters their result."
            ),
            "a condition that may fail and would be tested on different pairs than in Spark: …": (
                "Workers would test the conditions in another order than Spark, so another pair could fail. Put"
                " conditions that may fail last, or write them so that they cannot fail (`try_add`, `try_cast`)."
            ),
            "a join of type …": "Only inner, left, right, full, semi, anti and existence joins are planned.",
            "a condition that is not deterministic: …": (
                "Its value depends on the pairs for which Spark evaluates it. Compute it before the join, or filter"
                " after the join."
            ),
            "a subquery in a join condition": (
                "Workers do not run subqueries. Compute the value before the join, or filter after the join."
            ),
            "a key computed from several tables: …": (
                "The key needs columns of more than one of the tables that are joined before, so no single table can"
                " provide it. The joins below may still be a pipeline."
            ),
            "a key computed from a side of an earlier full join: …": (
                "Rows of that side may be missing when the key is computed. The joins below may still be a pipeline."
            ),
            "a key computed from the outer side of an earlier join: …": (
                "Rows of that side may be missing when the key is computed. The joins below may still be a pipeline."
            ),
            "a plan nested too deeply": (
                "The plan has more than a thousand levels, and planning traverses it for every join. Cache or write an"
                " intermediate result."
            ),
            "a column nested too deeply": (
                "The column has more than 250 levels. Compute it in steps, with a cache or a table in between."
            ),
            "planning it failed: …": (
                "A bug in sparkext. The exception follows the colon. Please report it, with the warning that the driver"
                " logs once. Spark runs the join."
            ),
            "no Python to run a pipeline: …": (
                "One of the next six reasons follows the colon. Run `python -m sparkext doctor` with that Python for"
                " details."
            ),
            "… does not start: …": (
                "`spark.sparkext.python` (else `spark.sql.execution.pyspark.python`, `spark.pyspark.python`, or the"
                " environment's PYSPARK_PYTHON) names no executable on the driver. Correct it."
            ),
            "… cannot run sparkext: …": (
                "That Python lacks sparkext, numba, numpy, pandas or pyarrow: install it there. Or it has no folder for"
                " the cache of compiled kernels: set NUMBA_CACHE_DIR."
            ),
            "… has sparkext …, but this jar belongs to sparkext …": (
                "The jar and the package have different versions. Install the same version on the driver, on every node"
                " and in the session."
            ),
            "… printed '…' instead of its version": (
                "The last line that Python printed is not its version. Code that runs when Python starts or exits, such"
                " as `sitecustomize`, must not print to this line or after it."
            ),
            "… printed more than … bytes instead of its version": (
                "Code that runs when Python starts, such as `sitecustomize`, prints too much."
            ),
            "… does not answer within … s": (
                "Python hangs, or the disk with its packages does. The check is repeated ten minutes later at the"
                " earliest."
            ),
            "spark.executor.pyspark.memory leaves a worker … MiB of address space; a pipeline needs at least … MiB": (
                "The cores of an executor share this limit, and libraries and mapped files count towards it. Unset the"
                " option, or raise it."
            ),
            "workers would map a build side of … bytes (Spark's estimate), but spark.executor.pyspark.memory"
            " leaves a worker … MiB of address space": (
                "The same limit, for joins without a hint: unset the option, raise it, or hint the join."
            ),
        },
    ),
    Group(
        "As-of joins",
        (
            "Spark rewrites declined as-of joins as other joins, so the plan has no notes: only `sparkext.declined(df)`"
            " and the log show the reasons. The reasons above for keys and columns apply as well. The transform"
            " [`asof_join`](transforms.md#asof_join) runs most of these joins, through `mapInArrow`."
        ),
        {
            "the right side takes … bytes by Spark's estimate, but spark.sparkext.buildSide.maxBytes is …": (
                "Raise the limit, or hint either side: then only the actual size counts. If the number of rows is"
                " unknown (an RDD, a cache that is still empty), Spark's estimate is huge."
            ),
            "a condition of another form: …": "Only a comparison of one value of each side is supported.",
            "values of type …": (
                "Integers, dates, timestamps and decimals of up to 18 digits are supported, with the same type on both"
                " sides. Cast the values."
            ),
            "differences of integers that may wrap around, without spark.sql.ansi.enabled": (
                "Without this option, Spark treats distant integers as near if their difference wraps around. Set"
                " `spark.sql.ansi.enabled`."
            ),
            "a value that may fail: …": (
                "Spark computes the value only for rows with equal keys, a pipeline would compute it for all rows."
                " Compute it before the join."
            ),
            "a tolerance of … for …": (
                "Supported are integers for integers, decimals and dates, decimals for decimals, days for dates, and"
                " intervals of days and time for timestamps. In a time zone with daylight saving time, the interval has"
                " to be less than a day. Timestamps that are cast from dates or from other timestamps support no"
                " tolerance."
            ),
            "a tolerance that is not a constant: …": "The tolerance has to be a constant.",
            "a condition that is not an equality of the two sides: …": (
                "In addition to the nearest value, only equalities of the two sides are supported. Filter before or"
                " after the join."
            ),
        },
    ),
    Group(
        "Build sides that Spark makes",
        (
            "For these reasons workers do not derive a build side by a pipeline of its own: Spark runs it, and its rows"
            " are collected. `EXPLAIN FORMATTED` shows `rows from Spark (<reason>)`, except for the reasons with"
            " another note."
        ),
        {
            "its probe side: …": (
                "Workers do not read the files of the probe side from which the build side would be derived. The reason"
                " follows the colon: see [scans](#scans-that-spark-does)."
            ),
            "its build side …: …": (
                "Workers neither read nor derive one of the build sides from which this build side would be derived."
                " The reason follows the colon."
            ),
            "an aggregate in more than two steps": (
                "Spark plans distinct aggregates in this way. The plan does not show this reason, but `not a scan of"
                " files: …`."
            ),
            "by the estimates a build side is not clearly cheaper to derive in workers than with Spark's own joins"
            " (… s against … s; a hint overrules this)": (
                "`auto` mode requires at most 0.7 of the cost of Spark's joins, which includes sending their rows to"
                " the workers. On a cluster each node derives the whole build side, so its cost is multiplied by the"
                " number of nodes. Hint a join of the build side if you know better. `EXPLAIN` shows this reason as"
                " `DeclinedPipelinedJoin` at that join."
            ),
            "a column that is not deterministic: …": (
                "Spark has to compute this column and all rows below it. Write the rows to a table first, or cache"
                " them."
            ),
        },
    ),
    Group(
        "Groups that Spark makes",
        (
            "For these reasons Spark computes a partial aggregate itself. `EXPLAIN` shows `groups=by Spark (<reason>)`"
            " at the pipeline whose rows are grouped. Above a scan without joins it shows nothing."
        ),
        {
            "an aggregate that only Spark computes: …": (
                "Workers compute `count`, `sum`, `avg`, `min`, `max`, the variances and standard deviations, the"
                " bitwise aggregates, `bool_and` and `bool_or`, and `first`, `last` and `any_value`, the last three not"
                " with both FILTER and RESPECT NULLS (the default). If an aggregate has any other function, Spark"
                " computes all of its functions. Compute the other function in another query."
            ),
            "an expression that only Spark evaluates: …": (
                "A part of a group column or of an argument follows the colon. Workers do not evaluate it. Use"
                " [expressions that they support](extension.md#groups)."
            ),
            "a condition that only Spark evaluates: …": (
                "A part of a filter between the joins and the aggregate follows the colon. Workers do not evaluate it."
                " Use [expressions that they support](extension.md#groups)."
            ),
            "groups by a value of type …: …": (
                "Nested types, month intervals, variants, and strings with a collation are not compared by their bytes."
                " Cast the group column."
            ),
            "neither a join nor a scan of files: …": (
                "Only filters, computed columns and the expansion of grouping sets may be between the rows of the"
                " workers and the aggregate. This operator is something else."
            ),
            "a filter of expanded rows": (
                "A `HAVING` on `grouping(…)` alone filters the expanded rows of grouping sets before they are grouped."
                " Name the sets that you need with `GROUPING SETS` instead."
            ),
            "rows expanded to more than …": (
                "Every task receives each grouping set, and each of several `count(DISTINCT …)`. More than this number"
                " are not supported: name the sets that you need with `GROUPING SETS` instead of `CUBE`."
            ),
            "no column is read": "Spark counts the rows of files without workers. There is nothing to do.",
            "a streaming aggregate": "Spark aggregates streams.",
            "an aggregate without partial aggregation": "Some functions need all rows of a group at once.",
            "an expression nested too deeply": (
                "The expression has more than 250 levels. Compute parts of it in a subquery that Spark does not merge,"
                " or cache them."
            ),
            "no plan": "Never shown: Spark plans every aggregate.",
        },
    ),
    Group(
        "Partitions that run in waves",
        (
            "If `spark.sparkext.partitioned.stages` is `pipelined`, a partitioned join still runs in waves for these"
            " reasons. `EXPLAIN` shows `partitions=in waves (<reason>)` at the pipeline."
        ),
        {
            "Spark … has no pipelined shuffle": "Use Spark 4.3 or later.",
            "another shuffle belongs to the same job": (
                "Spark runs no job with both types of shuffle. An aggregate, a sort or a window above the join needs"
                " the other type, and so may operators below its probe side. Write the rows of the join first."
            ),
            "a limit reads only some partitions": (
                "All partitions of a join have to run at the same time, and a limit may read some of them only. Write"
                " the rows of the join first."
            ),
            "several joins are partitioned": (
                "A job has one pipelined shuffle at most: the tasks of a second one would wait for cores. Write the"
                " rows of one join first."
            ),
            "units of a join matrix have no buckets": (
                "A join without an equality has no buckets that could move: each pair of parts has its own unit."
            ),
            "all rows of a key must be emitted by the same partition": (
                "The rows of the join are grouped by its key without another shuffle, so all rows of a key have to be"
                " in one partition."
            ),
            "a full outer join emits unmatched build rows after all other rows": (
                "While buckets move, it is unknown which build rows have no match."
            ),
            "… belongs to the same job": (
                "This operator reads only some of the join's partitions, reads several in one task, adds tasks, or may"
                " contain a shuffle, as a cached table does. Write the rows of the join first."
            ),
            "Spark's pipelined shuffle does not follow …": (
                "Spark's pipelined shuffle neither authenticates its connections nor encrypts rows, even if other"
                " connections do."
            ),
            "… is set": (
                "All tasks of the job run at the same time. Executors that are added or removed meanwhile, and second"
                " copies of tasks, are not supported. Unset the option when the application starts."
            ),
            "the application has fewer than two cores": (
                "One core routes rows, another core joins them. Give the application at least two cores."
            ),
        },
    ),
    Group(
        "First rows that Spark chooses",
        (
            "For these reasons a pipeline emits all of its rows although Spark takes only the first ones (`ORDER BY`"
            " with `LIMIT`). `EXPLAIN` shows `top=by Spark (<reason>)` at the pipeline."
        ),
        {
            "ordered by a value that is computed above the joins: …": (
                "Workers order rows by the columns that they emit. Spark orders rows by expressions of these columns."
                " Order by a column if you can."
            ),
            "ordered by a value of type …: …": (
                "Nested types, month intervals, variants, and strings with a collation are not ordered by their bytes."
            ),
            "a column that may fail, or is not deterministic: …": (
                "The column is computed for all rows, as in Spark, because a row that is not among the first may raise"
                " the error, too. Use functions that cannot fail, such as `try_add`, or decimals with enough digits for"
                " the result."
            ),
            "a filter above the joins that only Spark evaluates": (
                "Only after this filter is it known which rows are the first. Use [expressions that workers"
                " support](extension.md#groups) in the filter."
            ),
            "more than … rows": "Workers hold at most this number of rows in memory. Use a smaller limit.",
        },
    ),
    Group(
        "Parts of conditions",
        "These texts follow the colon of a reason above, unless the SQL of the part follows it.",
        {
            "a condition nested too deeply": (
                "The condition has more than 200 levels, or more than 250 if Spark evaluates it. Compute parts of it"
                " before the join."
            ),
            "a list of more than … non-constant values": (
                "`IN` compares each of these values. The number of constants is not limited, because they are looked"
                " up."
            ),
            "a formula too large to compile": (
                "The formula has more than 200 operations. Compiling 200 operations takes about three seconds. Compute"
                " parts of it before the join."
            ),
        },
    ),
    Group(
        "Scans that Spark does",
        (
            "The join is a pipeline, but workers do not read the files of this side themselves. `EXPLAIN` shows"
            " `scan=rows from Spark (<reason>)` or `scan=columns from Spark (<reason>)` for the probe side, `EXPLAIN"
            " FORMATTED` for build sides as well."
        ),
        {
            "disabled by spark.sparkext.scan.fused": "The option is set to false. Set it to true.",
            "not a scan of files: …": (
                "Another operator is below the join: an aggregate, another join, a cache. Its rows cross into Python."
            ),
            "a column that Spark computes: …": (
                "The join needs a computed column (other than a widened integer). Compute it after the join if you can."
            ),
            "a filter nested too deeply": "The filter has more than 250 levels.",
            "a filter that only Spark evaluates: …": (
                "Workers evaluate comparisons, arithmetic, IN, IS NULL, CASE, COALESCE, LIKE, parts of strings and"
                " fields of dates. They evaluate no filter that may fail, such as one with a division by a column in"
                " ANSI mode."
            ),
            "metadata columns of files": "The query uses `_metadata`, which only Spark's reader provides.",
            "partitions chosen at run time": (
                "Spark chooses the partitions while the query runs, by dynamic partition pruning or by a subquery in a"
                " partition filter."
            ),
            "a scan in a single task": "Spark has planned a single partition, on which the plan above relies.",
            "column …, which is not in the files": "The column is neither in the files nor a partition column.",
            "splits that are not files: …": "The relation has its own type of scan.",
            "the files cannot be listed: …": "Spark's error follows the colon.",
            "not a Parquet scan: …": (
                "The files have another format, or belong to a table format that interprets Parquet files in its own"
                " way. Workers read the table formats Delta Lake and Iceberg."
            ),
            "a change data feed of Delta": "Workers do not read change data feeds. Read the table itself if you can.",
            "the query reads deleted rows": "Only Delta's own commands read deleted rows.",
            "deleted rows in a query that does not skip them": "Only Delta's own commands read files in this way.",
            "deleted rows that Delta does not skip: …": (
                "The files belong to a change data feed. Read the table itself if you can."
            ),
            "deleted rows cannot be read: …": (
                "A deletion vector or a file of deletions is damaged or missing, or its version is unknown. The error"
                " follows the colon."
            ),
            "more than … deleted rows": "The position of each deleted row is sent to workers. Compact the table.",
            "deletions by equality": (
                "Workers do not apply the equality deletes of Iceberg, which Flink writes. Compact the table"
                " (`rewrite_data_files`)."
            ),
            "files that Iceberg reads through …": (
                "Workers follow Hadoop's settings, as Iceberg's `HadoopFileIO` does. Use `HadoopFileIO` for the"
                " catalog."
            ),
            "files are encrypted": "Iceberg has encrypted the files, and workers do not decrypt them.",
            "metadata column … of Iceberg": (
                "The query uses `_file`, `_pos`, `_spec_id`, `_partition`, `_row_id` or another column that only"
                " Iceberg's reader provides."
            ),
            "a scan that is partitioned by keys": (
                "Spark joins the partitions of two tables without a shuffle, so it relies on these partitions."
            ),
            "corrupt or missing files must be ignored": (
                "`ignoreCorruptFiles` or `ignoreMissingFiles` is set, but workers do not ignore such files. Unset the"
                " option."
            ),
            "has no field ids": (
                "Columns are matched by their ids, and this file was written without ids. Rewrite the file."
            ),
            "lacks column …, which is NOT NULL": "The column is declared NOT NULL, and this file lacks it.",
            "spark.sql.parquet.int96TimestampConversion is true": (
                "Spark shifts timestamps that other engines have written, and workers do not. Unset the option if no"
                " file needs it."
            ),
            "files may be encrypted": (
                "`parquet.crypto.factory.class` is set, and workers do not decrypt files. Unset the option if no file"
                " is encrypted."
            ),
            "partition column … of type …": (
                "Workers receive partition values as text, which is not possible for floats, binary values, and types"
                " that they do not read from files."
            ),
            "column … of type …": (
                "Workers do not read nested columns, times, intervals, variants and collated strings."
            ),
            "column … has a default value for files without it": (
                "Workers do not fill in the default. Rewrite the files that lack the column."
            ),
            "is encrypted": "The path of the file precedes this text. Workers do not decrypt files.",
            "has several columns …": (
                "The names of these columns differ only in case, which the session ignores. Rename all but one."
            ),
            "has column … spelled in a different case": (
                "The names have letters beyond ASCII that differ in case. Java and Python convert the case of such"
                " letters differently. Rename the column."
            ),
            "column … is nested": "The column is nested in this file, unlike in the table. Rewrite the file.",
            "column … is of …": (
                "The column has another type in this file than in the table. Rewrite the file, or read it with its own"
                " type and cast the column afterwards."
            ),
            "column … is stored as …": (
                "Workers do not read this form: unsigned integers, fixed-length bytes, decimals stored as"
                " variable-length bytes or as more than 16 bytes, nanoseconds, or strings without their annotation."
                " Rewrite the file."
            ),
            "column … uses another calendar": (
                "Spark 2 or Hive has written the dates or timestamps. Spark converts them to another calendar (rebases"
                " them), and workers do not. Rewrite the file."
            ),
            "a footer cannot be read: …": "Parquet's error follows the colon.",
            "bucket …: …": "One of the next four reasons follows the last colon.",
            "fs.s3a.… is set": (
                "Workers do not follow this setting: a proxy, an assumed role, client-side encryption, or a similar"
                " setting."
            ),
            "the region of fs.s3a.endpoint is unknown": (
                "Set `fs.s3a.endpoint.region`. The endpoint itself has to be a host without a path."
            ),
            "credentials of …": "Workers do not support this credential provider.",
            "no credentials in its settings": "None of the credential providers has credentials.",
            "files that workers do not read: …:": (
                "Workers read only `file:`, and the schemes that Spark reads with its S3A connector."
            ),
            "a partitioned join": (
                "The rows are the result of a partitioned join, which is distributed over the nodes: no node has all of"
                " it."
            ),
            "a full outer join shuffles the rows": "The probe side of a full outer join is shuffled by its keys.",
            "workers read files": "Never shown: workers read the files.",
            "not whole groups": "Never shown: the reason of the scan is shown instead.",
        },
    ),
    Group(
        "Rows where there could be columns",
        (
            "Spark might have sent columns to Python. For these reasons it sends rows, one by one (`scan=rows from"
            " Spark`). These reasons are not shown: the plan shows the reason of the scan."
        ),
        {
            "no columns": "Only the number of rows of this side is needed.",
            "rows come from …": "The operator below produces rows.",
            "a filter that is not deterministic: …": (
                "Only Spark's own operator evaluates filters with `rand` and similar functions."
            ),
            "a filter with a subquery: …": "Only Spark's own operator evaluates filters with a subquery.",
        },
    ),
    Group(
        "Pipelines that fall back",
        (
            "Some problems are detected only while a query runs. Spark's own joins then run in place of the pipeline,"
            " over the rows of its sources. The log warns with the reason. The executed plan shows the reason at the"
            " operator (`fell back to Spark's own joins: <reason>`), with Spark's joins below it, and"
            " `sparkext.declined(df)` lists it."
        ),
        {
            "the build side of the join on … does not fit: its first … rows take … bytes, the limit is …": (
                "Raise `spark.sparkext.buildSide.maxBytes`, filter the build side, or put the hint on the other side."
            ),
            "the build side of the join on … does not pass through the driver: its rows exceed … (… bytes)": (
                "A build side that Spark computes passes through the driver. Raise `spark.driver.maxResultSize`, or"
                " filter the build side."
            ),
            "the build side of the join on … does not fit the driver's disk: …": (
                "The file of the build side cannot be written on the driver. Free space in `spark.local.dir` there, or"
                " filter the build side."
            ),
            "the … cannot be used: …": (
                "A worker built these rows before the join began, because a pipeline derives them, or because their"
                " files do not prove that they fit. They exceed the limit or the memory. The worker's"
                " [message](errors.md#buildsidetoolargeerror) follows the colon, with remedies."
            ),
        },
    ),
    Group(
        "Errors of the planned operator",
        "These errors fail the query, as Spark's own errors do.",
        {
            "the … was cancelled": "Another build side of the pipeline failed. Read the error of that build side.",
            "no Python to run the pipelined join: …": (
                "Python was found when the query was planned, but not when it ran."
            ),
            "…: unknown option '…', expected algorithm, maxBytes or partitioned": (
                "The hint has an unknown option. Use one of these three."
            ),
            "… expects names of relations, got …": (
                "The hint has a parameter that is neither a relation nor an option. Write, for example,"
                " `PIPELINED_JOIN(o, 'algorithm=hash')`."
            ),
            "workers reported … bytes, but … has …": (
                "A map output file has another length than the worker that wrote it has reported. Check the local"
                " disks; if they are in order, please report it."
            ),
            "build rows are lost, run the query again: …": (
                "An executor with rows of a build side was lost while the probe side streamed to partitions. Run the"
                " query again. With `spark.sparkext.partitioned.stages` set to `waves`, Spark itself would run the"
                " tasks again that wrote these rows."
            ),
            "only … of … partitions of a join have started, but all must run at the same time: the query reads only"
            " some. Set spark.sparkext.partitioned.stages to waves for this query": (
                "While the probe side streams to partitions, all of them have to run at the same time."
                " `toLocalIterator`, or `take` of an RDD, reads only some of them. Read the whole result with one"
                " action, or set the option."
            ),
            "workers cannot evaluate what Spark evaluates to …: …": "A bug in sparkext: please report it.",
            "workers emitted …, expected …": "A bug in sparkext: please report it.",
        },
    ),
)

OTHER_TEXTS = {
    "FetchedBlocks.scala": {"no block of a shuffle: …: …", "no segment of a file: …"},
    "Exchange.scala": {
        "… …",
        "… … of ……",
        ", streamed by … … to … …",
        "units of a matrix of …",
        "joins on different keys are partitioned one after the other",
    },
    "MapFiles.scala": {"more than one row about a file"},
    "AsOf.scala": {"Spark's own as-of join runs instead of a pipeline: …"},
    "BuildSidePublisher.scala": {"build side of the join on …"},
    "OwnBuilds.scala": {"build sides"},
    "OwnPipelines.scala": {"build side"},
    "PipelinedBuild.scala": {"derived by a separate pipeline…", ", of whole groups", "not a pipeline: …"},
    "ChainLayout.scala": {"… as of … ~ …"},
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
    "LibraryCalls.scala": {"… of … arguments", "….… of … arguments"},
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
    "JoinStage.scala": {"an …", "a …", "… … …"},
    "Groups.scala": {"… of …"},
    "TopRows.scala": {"… by …", "… … …"},
    "PipelineMetrics.scala": None,
    "PipelineRuns.scala": {"… …"},
    "PipelineDescription.scala": {
        ", built before the join because it may be larger",
        "…, …, algorithm …, build side: child …, at most ……, scan: …",
        "as a pipeline, or by Spark's own joins if a build side does not fit",
        "… … scan=……",
        "in waves (…)",
        "Join …: …",
    },
    "PipelineInputs.scala": {"sent to partitions", "… from Spark (…)", "build side", "workers derive the rows"},
    "PipelineExchange.scala": {
        "build side of the partitioned join on …",
        "probe side of partitioned joins",
        "partitions of partitioned joins",
    },
    "PipelineFallback.scala": {
        "fell back to Spark's own joins: …",
        "Spark's own joins run instead of a pipeline: …. …",
        "To run the pipeline, raise spark.sparkext.buildSide.maxBytes, filter the build side, or put the hint on the"
        " other side",
    },
    "PipelinedJoinExec.scala": {"build side of the join on …", "rows that workers derive"},
    "RuntimeFallback.scala": {"… of child … of the pipeline", "Child … of the pipeline", "no columns chosen: …"},
    "PipelinedJoinStrategy.scala": {"Spark's own join runs instead of a pipeline: …; at …"},
    "WholeGroupsExec.scala": {"… ……"},
    "PythonBatches.scala": {
        "BlockError: blocks at bytes (\\d+) to \\d+ of ['\"](.*)['\"] cannot be read: (.*)",
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
