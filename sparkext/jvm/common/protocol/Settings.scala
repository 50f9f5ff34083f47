package org.apache.spark.sql.sparkext

import java.util.{Locale, Properties}

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.SparkContext
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.internal.SQLConf

/** The session's `spark.sparkext.*` keys, as the shim needs them.
  *
  * Names, defaults and what is expected come from Python's registry (`sparkext/config.py`), which the build of the jar
  * writes into it: there is one list of keys. What only workers need travels to them as text.
  */
class Settings(conf: SQLConf) {
  import Settings._

  val mode: String = read("spark.sparkext.mode")(Some(_).filter(Set("auto", "hint", "off")))
  val explainFallback: Boolean = read("spark.sparkext.explainFallback")(_.toLowerCase(Locale.ROOT).toBooleanOption)
  val fusesScans: Boolean = read("spark.sparkext.scan.fused")(_.toLowerCase(Locale.ROOT).toBooleanOption)
  /** Whether every supported join is taken, whatever hints and estimates say: for tests. */
  val force: Boolean = read("spark.sparkext.debug.force")(_.toLowerCase(Locale.ROOT).toBooleanOption)
  val maxBuildBytes: Long = bytes(text(MaxBuildBytes))
  val algorithm: String = algorithmNamed(text(Algorithm))
  /** Into how many parts a full outer join's probe side is shuffled. A part streams through its task: few large ones do. */
  val parts: Int = math.min(conf.numShufflePartitions, PartsPerSlot * SparkContext.getActive.map(_.defaultParallelism).getOrElse(1))

  val morselRows: Long = read("spark.sparkext.morsel.maxRows")(_.toLongOption.filter(_ >= 1))

  // Only workers need these. A bad one is refused all the same before any job runs.
  private val minRows = read("spark.sparkext.morsel.minRows")(_.toLongOption.filter(_ >= 1))
  read("spark.sparkext.morsel.maxBytes")(bytesFrom(1, 1L << 30))
  read("spark.sparkext.memory.maxBytes")(bytesFrom(0, Long.MaxValue))
  read("spark.sparkext.delivery")(Some(_).filter(Deliveries))
  read("spark.sparkext.threads")(Some(_).filter(Set("cooperative", "independent")))
  read("spark.sparkext.memory.fraction")(_.toDoubleOption.filter(share => share > 0 && share <= 1))
  read("spark.sparkext.indexCache.maxBytes")(bytesFrom(0, Long.MaxValue))
  read("spark.sparkext.report.decisions")(_.toLongOption.filter(_ >= 0))
  read("spark.sparkext.progress")(_.toLowerCase(Locale.ROOT).toBooleanOption)
  read("spark.sparkext.debug.hashMask") { value =>
    val mask = if (value.toLowerCase(Locale.ROOT).startsWith("0x")) Try(BigInt(value.drop(2), 16)) else Try(BigInt(value))
    mask.toOption.filter(number => number >= 0 && number.bitLength <= 64)
  }
  if (conf.contains("spark.sparkext.morsel.minRows") && minRows > morselRows) {
    refuse("spark.sparkext.morsel.minRows", minRows.toString, s"at most spark.sparkext.morsel.maxRows, which is $morselRows")
  }

  /** Every key that is set, for the workers. */
  def forWorkers: Map[String, String] = conf.getAllConfs.filter { case (key, _) => key.startsWith(Prefix) }

  private def text(key: String): String = conf.getConfString(key, Registry(key)).trim

  private def read[T](key: String)(parse: String => Option[T]): T = parsed(key, text(key))(parse)
}

object Settings {
  private val Deliveries = Set("adaptive", "morsel", "block", "tuple", "materialize", "materialize_parallel")

  private def bytesFrom(least: Long, most: Long)(text: String): Option[Long] =
    Try(JavaUtils.byteStringAsBytes(text)).toOption.filter(size => size >= least && size <= most)

  private val PartsPerSlot = 4
  private val Prefix = "spark.sparkext."
  private val Expected = ".expected"
  private val MaxBuildBytes = "spark.sparkext.buildSide.maxBytes"
  private val Algorithm = "spark.sparkext.algorithm"

  private val Registry: Map[String, String] = {
    val properties = new Properties()
    val stream = classOf[Settings].getResourceAsStream("/io/sparkext/settings.properties")
    try properties.load(stream)
    finally stream.close()
    properties.asScala.toMap
  }

  /** A build side's limit as the key or a hint writes it. */
  def bytes(value: String): Long =
    parsed(MaxBuildBytes, value)(bytesFrom(1, Long.MaxValue))

  /** An algorithm as the key or a hint writes it. */
  def algorithmNamed(value: String): String =
    parsed(Algorithm, value)(Some(_).filter(Set("auto", "hash", "sort_merge")))

  private def parsed[T](key: String, value: String)(parse: String => Option[T]): T =
    parse(value).getOrElse(refuse(key, value, Registry(key + Expected)))

  private def refuse(key: String, value: String, expected: String): Nothing =
    throw new RefusedException(s"$key: got '$value', expected $expected")

  /** The version of the package that this jar belongs to. */
  val PackageVersion: String = Registry("version")

  /** Bytes of address space that a worker takes at least. */
  val LeastAddressSpace: Long = Registry("addressSpace.least").toLong
}
