package org.apache.spark.sql.sparkext

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.execution.python.ArrowPythonRunner

/** Spark's runner of a function over iterators of Arrow batches. */
class PythonRunner(run: PythonRun)
    extends ArrowPythonRunner(
      Seq(run.function -> 0L),
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      Array(Array(0)),
      SentColumns.asRow(run.input),
      run.timeZone,
      false,
      run.conf,
      run.metrics,
      run.artifacts,
      None
    )
