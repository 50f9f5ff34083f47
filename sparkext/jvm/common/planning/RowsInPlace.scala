package org.apache.spark.sql.sparkext.planning

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.datasources.WriteFilesExec
import org.apache.spark.sql.execution.datasources.v2.{
  AppendDataExec,
  OverwriteByExpressionExec,
  OverwritePartitionsDynamicExec
}
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec

/** Lets a pipeline below a write emit rows that are read from the columns of its batches.
  *
  * Writers read the values of rows one by one. Spark's operators may treat any row as an `UnsafeRow`, so for them rows
  * are copied, at some ten nanoseconds per value. The writer of dynamic partitions and of buckets may sort its rows as
  * `UnsafeRow`s, so it needs copies, too.
  */
object RowsInPlace extends PhysicalRule("rows") {
  override protected def changed(plan: SparkPlan): SparkPlan = plan.transformUp {
    case writer @ (_: AppendDataExec | _: OverwriteByExpressionExec | _: OverwritePartitionsDynamicExec) =>
      inPlace(writer)
    case files: WriteFilesExec if files.partitionColumns.isEmpty && files.bucketSpec.isEmpty => inPlace(files)
  }

  private def inPlace(writer: SparkPlan): SparkPlan = writer.mapChildren {
    case pipeline: PipelinedJoinExec => pipeline.as(pipeline.copy(inPlace = true))
    case other => other
  }
}
