package org.apache.spark.sql.sparkext

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.util.Try

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.PythonUtils

/** The Python that runs the pipelines: its executable, and its version as "3.11", which workers insist on. */
case class WorkerPython(executable: String, version: String)

object WorkerPython {
  // A package may be found without those that it needs; finding those takes no time, importing them would.
  private val Probe =
    """import sys, sparkext
      |from importlib.util import find_spec
      |missing = [name for name in ("numba", "numpy", "pandas", "pyarrow") if find_spec(name) is None]
      |if missing: raise ImportError("sparkext needs " + ", ".join(missing))
      |print("%d.%d" % sys.version_info[:2], sparkext.__version__)""".stripMargin
  private val TimeoutSeconds = 60L
  private val asked = new ConcurrentHashMap[String, Either[String, WorkerPython]]()

  /** The session's Python, or what is wrong with it. Asked once; what is wrong may be mended, and is asked again. */
  def of(settings: Settings): Either[String, WorkerPython] = {
    val executable = Seq(
      Option(settings.python).filter(_.nonEmpty),
      Option(SparkEnv.get).flatMap(_.conf.getOption("spark.pyspark.python")),
      sys.env.get("PYSPARK_PYTHON")).flatten.headOption.getOrElse("python3")
    val answer = asked.computeIfAbsent(executable, ask)
    if (answer.isLeft) asked.remove(executable)
    answer
  }

  private def ask(executable: String): Either[String, WorkerPython] = Try {
    val builder = new ProcessBuilder(executable, "-c", Probe).redirectErrorStream(true)
    val path = Seq(PythonUtils.sparkPythonPath, sys.env.getOrElse("PYTHONPATH", ""))
    builder.environment().put("PYTHONPATH", PythonUtils.mergePythonPaths(path: _*))
    val process = builder.start()
    process.getOutputStream.close()
    val said = scala.io.Source.fromInputStream(process.getInputStream, "UTF-8").mkString.trim
    if (!process.waitFor(TimeoutSeconds, TimeUnit.SECONDS)) process.destroyForcibly()
    process.exitValue() -> said
  }.toEither.left.map(error => s"$executable does not start: ${error.getMessage}").flatMap {
    case (0, said) => understood(executable, said.linesIterator.toSeq.lastOption.getOrElse(""))
    case (_, said) => Left(s"$executable cannot run sparkext: ${said.linesIterator.toSeq.lastOption.getOrElse("")}")
  }

  private def understood(executable: String, said: String): Either[String, WorkerPython] = said.split(' ') match {
    case Array(version, Settings.PackageVersion) => Right(WorkerPython(executable, version))
    case Array(_, other) => Left(s"$executable has sparkext $other, this jar belongs to ${Settings.PackageVersion}")
    case _ => Left(s"$executable answered '$said'")
  }
}
