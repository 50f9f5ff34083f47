package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.datasources.WriteFilesExec
import org.apache.spark.sql.execution.datasources.v2.{AppendDataExec, OverwriteByExpressionExec, OverwritePartitionsDynamicExec}

/** Lets a pipeline that ends in a write hand out rows that lie in the columns of its batches.
  *
  * Writers ask rows for their values. Spark's operators may take any row for an `UnsafeRow`, so for them a copy is made: some
  * ten nanoseconds a value. The writer of dynamic partitions and of buckets may sort its rows as such.
  */
object RowsInPlace extends ColumnarRule {
  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan = Guarded("rows")(placed(plan)).getOrElse(plan)
  }

  private def placed(plan: SparkPlan): SparkPlan = plan.transformUp {
    case writer @ (_: AppendDataExec | _: OverwriteByExpressionExec | _: OverwritePartitionsDynamicExec) => inPlace(writer)
    case files: WriteFilesExec if files.partitionColumns.isEmpty && files.bucketSpec.isEmpty => inPlace(files)
  }

  private def inPlace(writer: SparkPlan): SparkPlan = writer.mapChildren {
    case pipeline: PipelinedJoinExec => pipeline.as(pipeline.copy(inPlace = true))
    case other => other
  }
}
