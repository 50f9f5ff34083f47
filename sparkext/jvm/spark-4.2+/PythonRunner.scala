package org.apache.spark.sql.sparkext.shim

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.sparkext.protocol.SentColumns
import org.apache.spark.sql.sparkext.python.PythonRun

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
