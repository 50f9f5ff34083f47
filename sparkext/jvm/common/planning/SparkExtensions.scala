package io.sparkext

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.sparkext.planning.{
  CoalesceProbeSides,
  ColumnarRules,
  PipelinedJoinStrategy,
  PlanAsOfJoins,
  ResolvePipelinedJoinHint,
  TopRows
}
import org.apache.spark.sql.sparkext.python.WorkerPython

/** The entry point: `spark.sql.extensions=io.sparkext.SparkExtensions`.
  *
  * Every rule, in the order in which Spark runs them for a query. Spark plans a subquery, and the input of a write,
  * with the same rules.
  *
  *   1. [[ResolvePipelinedJoinHint]], while Spark resolves hints: `df.hint("pipelined_join")` and
  *      `PIPELINED_JOIN(a, b)`.
  *   1. [[PlanAsOfJoins]], after analysis and before the optimizer: replaces supported as-of joins, which Spark would
  *      rewrite.
  *   1. [[PipelinedJoinStrategy]], before Spark's own strategies: plans chains of joins, and aggregates above them, as
  *      one operator, or notes the reason at the join.
  *
  * Without adaptive execution, [[ColumnarRules]] follow, on the whole plan, when Spark inserts conversions between rows
  * and columns:
  *
  *   1. [[TopRows]], before the conversions: a pipeline emits the first rows of each task only.
  *   1. [[OwnBuilds]]: a pipeline that produces another one's build side waits until its rows are requested.
  *   1. [[StreamedExchanges]]: the probe side of a partitioned join streams to its partitions (Spark 4.3).
  *   1. [[RowsInPlace]]: writers read the rows of a pipeline without a copy.
  *
  * With adaptive execution, these rules follow:
  *
  *   1. [[TopRows]], on the whole plan, before its stages are created.
  *   1. [[CoalesceProbeSides]], on each stage before it runs: merges small partitions of each side of a pipeline.
  *   1. [[ColumnarRules]] as above, on each stage. [[TopRows]] changes only pipelines that emit all rows.
  *
  * After some stages have run, Spark plans the rest of the query again. It begins with [[PipelinedJoinStrategy]]; the
  * stages that have run are leaves of the plan.
  */
class SparkExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    WorkerPython.refuseAtRunTime()
    extensions.injectHintResolutionRule(_ => ResolvePipelinedJoinHint)
    extensions.injectPlanNormalizationRule(new PlanAsOfJoins(_))
    extensions.injectPlannerStrategy(new PipelinedJoinStrategy(_))
    extensions.injectColumnar(_ => ColumnarRules)
    extensions.injectQueryStagePrepRule(_ => TopRows)
    extensions.injectQueryStageOptimizerRule(new CoalesceProbeSides(_))
  }
}
