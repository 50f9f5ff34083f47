package org.apache.spark.sql.sparkext

import org.apache.spark.SparkEnv
import org.apache.spark.internal.config.Python.PYTHON_DAEMON_MODULE

/** A Python runner whose workers are a pipeline's own: no setting for the functions of a session changes them, and they change
  * nothing for these.
  */
trait PipelineWorkers extends PythonRunner {

  /** The Python that was asked whether it can run pipelines. Spark's runner would take `spark.sql.execution.pyspark.python`. */
  override val pythonExec: String = funcs.head.funcs.head.pythonExec

  private val forkedFrom =
    SparkEnv.get.conf.get(PYTHON_DAEMON_MODULE).getOrElse(PipelineWorkers.Daemon)

  /** What workers are forked from. Spark reads one setting for all of them, and other Pythons need not have this package.
    *
    * The name is the one that the compiler has given to a private value of `BasePythonRunner`, so that its inner classes reach
    * it. Were it another one day, workers would be forked from Spark's own daemon, and load what they need themselves.
    */
  def org$apache$spark$api$python$BasePythonRunner$$daemonModule: String = forkedFrom
}

object PipelineWorkers {
  private val Daemon = "sparkext.daemon"
}
