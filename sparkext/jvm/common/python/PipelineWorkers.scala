package org.apache.spark.sql.sparkext.python

import org.apache.spark.SparkEnv
import org.apache.spark.internal.config.Python.PYTHON_DAEMON_MODULE
import org.apache.spark.sql.sparkext.shim.PythonRunner

/** A Python runner with workers of its own. The settings of a session's Python functions do not affect these workers,
  * and these workers do not affect the functions.
  */
trait PipelineWorkers extends PythonRunner {

  /** The Python that was checked to run pipelines. Spark's runner would use `spark.sql.execution.pyspark.python`. */
  override val pythonExec: String = funcs.head.funcs.head.pythonExec

  private val forkedFrom =
    SparkEnv.get.conf.get(PYTHON_DAEMON_MODULE).getOrElse(PipelineWorkers.Daemon)

  /** The module that workers are forked from. Spark reads one setting for all workers, and other Python installations
    * need not have this package.
    *
    * The compiler gives this name to a private value of `BasePythonRunner`, so the inner classes of `BasePythonRunner`
    * call this method instead. If a Spark version changes the name, workers are forked from Spark's own daemon and load
    * their modules themselves.
    */
  def org$apache$spark$api$python$BasePythonRunner$$daemonModule: String = forkedFrom
}

object PipelineWorkers {
  private val Daemon = "sparkext.daemon"
}
