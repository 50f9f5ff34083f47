package org.apache.spark.sql.sparkext.python

import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.util.Try

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.api.python.PythonUtils
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.protocol.{Reason, Shared}

/** The Python that runs the pipelines: its executable, and its version, like "3.11", which workers require. */
case class WorkerPython(executable: String, version: String)

object WorkerPython {

  /** Names the Python of all sessions. No session may change it, because checking another Python would start it on the
    * driver.
    */
  val Key = "spark.sparkext.python"

  // A package may be found without its dependencies. Finding those costs no time, importing them would. The check of
  // the code cache imports them only if the package's own folder is read-only.
  private val Probe =
    """import sys, sparkext
      |from importlib.util import find_spec
      |missing = [name for name in ("numba", "numpy", "pandas", "pyarrow") if find_spec(name) is None]
      |if missing: raise ImportError("sparkext needs " + ", ".join(missing))
      |from sparkext.kernels.runtime.code_cache import check_code_cache
      |check_code_cache()
      |print("%d.%d" % sys.version_info[:2], sparkext.__version__)""".stripMargin
  private val TimeoutMillis = 60000L
  private val PollMillis = 20L
  private val MostBytes = 64 << 10
  private val RetryMillis = 600000L
  private val answers = new PythonAnswers(TimeoutMillis, RetryMillis)

  /** Makes Spark refuse to set the key in a running session, like its own static settings. */
  def refuseAtRunTime(): Unit = SQLConf.registerStaticConfigKey(Key)

  /** The application's settings, without changes by sessions. Empty if the application has ended: plans may outlive it.
    */
  private[sparkext] def applications: SparkConf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf(false))

  /** The application's Python, or the problem with it. */
  def found: Either[String, WorkerPython] = {
    val conf = applications
    // The second is the key that Spark's own runner would prefer. A session's value of it applies to the session's
    // functions only.
    val named = Seq(Key, "spark.sql.execution.pyspark.python", "spark.pyspark.python").map(conf.getOption)
    val executable = (named :+ sys.env.get("PYSPARK_PYTHON")).flatten.find(_.trim.nonEmpty).getOrElse("python3").trim
    answers.of(executable)
  }

  private[sparkext] def ask(executable: String, timeoutMillis: Long): Either[String, WorkerPython] =
    Try(start(executable)).toEither.left.map(error =>
      Reason("PYTHON_NOT_STARTED", executable, error.getMessage)).flatMap {
      process =>
        try answer(executable, process, timeoutMillis)
        finally (process.descendants().toArray :+ process.toHandle).foreach {
            case running: ProcessHandle => running.destroyForcibly()
          }
    }

  private def start(executable: String): Process = {
    val builder = new ProcessBuilder(executable, "-c", Probe).redirectErrorStream(true)
    val path = Seq(PythonUtils.sparkPythonPath, sys.env.getOrElse("PYTHONPATH", ""))
    builder.environment().put("PYTHONPATH", PythonUtils.mergePythonPaths(path: _*))
    val process = builder.start()
    process.getOutputStream.close()
    process
  }

  /** Waits for the process to end, and interprets its output. No read blocks, because child processes may keep the
    * stream open forever.
    */
  private def answer(executable: String, process: Process, timeoutMillis: Long): Either[String, WorkerPython] = {
    val output = process.getInputStream
    val said = new ByteArrayOutputStream
    def take(): Unit = said.write(output.readNBytes(math.min(output.available, MostBytes + 1 - said.size)))
    val start = System.nanoTime
    def isLate = System.nanoTime - start > MILLISECONDS.toNanos(timeoutMillis)
    while (!process.waitFor(PollMillis, TimeUnit.MILLISECONDS) && said.size <= MostBytes && !isLate) take()
    if (said.size > MostBytes) Left(Reason("PYTHON_OUTPUT_TOO_LONG", executable, MostBytes))
    else if (process.isAlive) Left(Reason("PYTHON_TIMEOUT", executable, timeoutMillis / 1000.0))
    else {
      take()
      val last = said.toString(UTF_8).trim.linesIterator.toSeq.lastOption.getOrElse("")
      if (process.exitValue == 0) understood(executable, last)
      else Left(Reason("PYTHON_WITHOUT_SPARKEXT", executable, last))
    }
  }

  private def understood(executable: String, said: String): Either[String, WorkerPython] = said.split(' ') match {
    case Array(version, Shared.PackageVersion) => Right(WorkerPython(executable, version))
    case Array(_, other) =>
      Left(Reason("PYTHON_OTHER_VERSION", executable, other, Shared.PackageVersion))
    case _ => Left(Reason("PYTHON_OUTPUT", executable, said))
  }
}

/** The answers of Python installations. An installation that works is checked once. One that fails may be repaired, so
  * the next plan checks it again. If the check timed out, it is repeated only after `retryMillis`: otherwise every plan
  * would wait for the timeout.
  */
private[sparkext] class PythonAnswers(timeoutMillis: Long, retryMillis: Long) {
  private case class Answer(found: Either[String, WorkerPython], asked: Long, answered: Long) {
    def holds: Boolean =
      found.isRight || (answered - asked >= MILLISECONDS.toNanos(
        timeoutMillis) && System.nanoTime - answered < MILLISECONDS.toNanos(retryMillis))
  }

  private val answers = new ConcurrentHashMap[String, Answer]()

  def of(executable: String): Either[String, WorkerPython] =
    answers.compute(executable, (_, known) => if (known != null && known.holds) known else ask(executable)).found

  private def ask(executable: String): Answer = {
    val asked = System.nanoTime
    val found = WorkerPython.ask(executable, timeoutMillis)
    Answer(found, asked, System.nanoTime)
  }
}
