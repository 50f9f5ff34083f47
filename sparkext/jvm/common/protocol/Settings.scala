package org.apache.spark.sql.sparkext

import org.apache.spark.SparkContext
import org.apache.spark.sql.internal.SQLConf

/** The session's `spark.sparkext.*` keys, as the shim needs them. What only workers need travels to them as text; a bad value
  * of any key is refused before any job runs.
  */
class Settings(conf: SQLConf) {
  import Settings._

  ConfigKey.All.foreach(key => key.check(text(key)))

  val mode: String = word("mode")
  val explainFallback: Boolean = flag("explainFallback")
  val fusesScans: Boolean = flag("scan.fused")

  /** Whether every supported join is taken, whatever hints and estimates say: for tests. */
  val force: Boolean = flag("debug.force")

  /** Where groups are finished: `auto`, or for tests `parts`, by Spark, or `whole`, by workers wherever they can. */
  val groups: String = word("debug.groups")

  /** Which slots the lines of a partitioned join go to: `planned`, or for tests others. */
  val slots: String = word("debug.slots")
  val maxBuildBytes: Long = number(MaxBuildBytes)
  val algorithm: String = word(Algorithm)
  val partitioned: String = word(Partitioned)

  /** When slots run: in `waves`, or `pipelined`. */
  val stages: String = word("partitioned.stages")
  val morselRows: Long = number(MaxRows)

  /** Into how many parts a full outer join's probe side is shuffled. A part streams through its task: few large ones do. */
  val parts: Int = math.min(conf.numShufflePartitions, PartsPerSlot * SparkContext.getActive.map(_.defaultParallelism).getOrElse(1))

  /** Into how many partitions Spark shuffles rows. */
  val partitions: Int = conf.numShufflePartitions

  if (conf.contains(Prefix + MinRows) && number(MinRows) > morselRows) {
    key(MinRows).refuse(number(MinRows).toString, s"at most spark.sparkext.morsel.maxRows, which is $morselRows")
  }

  /** Every key that is set, for the workers. */
  def forWorkers: Map[String, String] = conf.getAllConfs.filter { case (key, _) => key.startsWith(Prefix) }

  private def text(key: ConfigKey): String = conf.getConfString(key.name, key.default).trim

  private def word(name: String): String = key(name).word(text(key(name)))
  private def flag(name: String): Boolean = key(name).flag(text(key(name)))
  private def number(name: String): Long = key(name).number(text(key(name))).toLong
}

object Settings {
  private val PartsPerSlot = 4
  private val Prefix = "spark.sparkext."
  private val MaxBuildBytes = "buildSide.maxBytes"
  private val Algorithm = "algorithm"
  private val Partitioned = "partitioned"
  private val MaxRows = "morsel.maxRows"
  private val MinRows = "morsel.minRows"

  private def key(name: String): ConfigKey = ConfigKey(Prefix + name)

  /** A build side's limit as the key or a hint writes it. */
  def bytes(value: String): Long = key(MaxBuildBytes).number(value).toLong

  /** An algorithm as the key or a hint writes it. */
  def algorithmNamed(value: String): String = key(Algorithm).word(value)

  /** When a join is partitioned, as the key or a hint writes it. */
  def partitionedWhen(value: String): String = key(Partitioned).word(value)
}
