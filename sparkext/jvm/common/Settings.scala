package org.apache.spark.sql.sparkext

import java.util.{Locale, Properties}

import scala.jdk.CollectionConverters._

import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.internal.SQLConf

/** The session's `spark.sparkext.*` keys, as the shim needs them.
  *
  * Names and defaults come from Python's registry (`sparkext/config.py`), which the build of the jar writes into it: there
  * is one list of keys. What only workers need travels to them unparsed.
  */
class Settings(conf: SQLConf) {
  import Settings._

  val mode: String = {
    val value = text("spark.sparkext.mode")
    val known = value.toLowerCase(Locale.ROOT)
    if (!Modes.contains(known)) refuse("spark.sparkext.mode", value, s"one of ${Modes.mkString(", ")}")
    known
  }
  val explainFallback: Boolean = {
    val value = text("spark.sparkext.explainFallback")
    value.toLowerCase(Locale.ROOT) match {
      case "true" => true
      case "false" => false
      case _ => refuse("spark.sparkext.explainFallback", value, "true or false")
    }
  }
  val maxBuildBytes: Long = bytes("spark.sparkext.buildSide.maxBytes", text("spark.sparkext.buildSide.maxBytes"))
  val algorithm: String = Settings.algorithm(text("spark.sparkext.algorithm"))
  val python: String = text("spark.sparkext.python")

  /** Every key that is set, for the workers. */
  def forWorkers: Map[String, String] = conf.getAllConfs.filter { case (key, _) => key.startsWith(Prefix) }

  private def text(key: String): String = conf.getConfString(key, Defaults(key)).trim
}

object Settings {
  private val Prefix = "spark.sparkext."
  private val Modes = Seq("auto", "hint", "off")
  private val Algorithms = Seq("auto", "hash", "sort_merge")

  private val Defaults: Map[String, String] = {
    val properties = new Properties()
    val stream = classOf[Settings].getResourceAsStream("/io/sparkext/settings.properties")
    try properties.load(stream)
    finally stream.close()
    properties.asScala.toMap
  }

  def algorithm(value: String): String =
    if (Algorithms.contains(value)) value
    else refuse("spark.sparkext.algorithm", value, s"one of ${Algorithms.mkString(", ")}")

  def bytes(key: String, value: String): Long = {
    val size =
      try JavaUtils.byteStringAsBytes(value)
      catch {
        case _: NumberFormatException => 0L
      }
    if (size >= 1) size else refuse(key, value, "a byte size of at least 1, such as 512m or 4g")
  }

  private def refuse(key: String, value: String, expected: String): Nothing =
    throw new IllegalArgumentException(s"$key: got '$value', expected $expected")

  /** The version of the package that this jar belongs to. */
  val PackageVersion: String = Defaults("version")
}
