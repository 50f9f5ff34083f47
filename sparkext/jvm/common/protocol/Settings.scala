package org.apache.spark.sql.sparkext.protocol

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.planning.{ColumnarEngine, Guarded, RefusedException}
import org.apache.spark.sql.sparkext.python.WorkerPython

/** The session's `spark.sparkext.*` keys, as planning needs them. Workers receive all keys that are set and can be
  * read, as text.
  *
  * A text that cannot be read fails no query: `problems` states the value that replaces it. Each problem is logged
  * once.
  */
class Settings(conf: SQLConf, application: SparkConf) {
  import Settings._

  def this(conf: SQLConf) = this(conf, WorkerPython.applications)

  private val set = conf.getAllConfs.filter { case (name, _) => name.startsWith(ConfigKey.Prefix) }

  /** Whether sessions may set the application's keys. */
  private val sessionsMaySet = application.getOption(DebugSessions.name).exists(DebugSessions.read(_).contains("true"))

  /** The text to which a key is set, and the problem with a session's text that is ignored. */
  private def texts(key: ConfigKey): (Option[String], Option[String]) = {
    val session = set.get(key.name)
    if (!key.ofApplication || sessionsMaySet) (session, None)
    else {
      val own = application.getOption(key.name)
      val ignored = session.filterNot(own.contains).map { text =>
        s"${key.problem(text, AtStart)}; ${own.getOrElse(key.default)} is used"
      }
      (own, ignored)
    }
  }

  /** Each key that is set, the value that is read, and its problem. */
  private val readings: Seq[(ConfigKey, Option[String], Option[String])] = ConfigKey.All.flatMap { key =>
    val (text, ignored) = texts(key)
    val read = text.map(key.read)
    val unreadable = read.flatMap(_.left.toOption).map(problem => s"$problem; ${key.replacement} is used")
    if (text.isEmpty && ignored.isEmpty) None
    else Some((key, read.map(_.getOrElse(key.replacement)), ignored.orElse(unreadable)))
  }

  private val values: Map[String, String] = readings.collect { case (key, Some(value), _) => key.name -> value }.toMap

  val mode: String = word("mode")
  val explainFallback: Boolean = flag("explainFallback")
  val fusesScans: Boolean = flag("scan.fused")

  /** Whether every supported join is accepted, whatever hints and estimates are: for tests. */
  val force: Boolean = flag("debug.force")

  /** Where groups are finished: `auto`; or for tests `parts`, by Spark, or `whole`, by workers whenever they can. */
  val groups: String = word("debug.groups")

  /** How the buckets of a partitioned join are assigned to partitions: `planned`, or for tests other modes. */
  val debugPartitions: String = word("debug.partitions")
  val maxBuildBytes: Long = number(MaxBuildBytes)
  val algorithm: String = word(Algorithm)
  val partitioned: String = word(Partitioned)

  /** When partitions of a join run: in `waves`, or `pipelined`. */
  val stages: String = word("partitioned.stages")
  val morselRows: Long = number(MaxRows)

  /** The number of partitions into which a full outer join's probe side is shuffled. A partition streams through its
    * task, so few large ones suffice.
    */
  val parts: Int = math.min(
    conf.numShufflePartitions,
    PartsPerPartition * SparkContext.getActive.map(_.defaultParallelism).getOrElse(1))

  /** The number of partitions into which Spark shuffles rows. */
  val partitions: Int = conf.numShufflePartitions

  private val tooManyRows: Option[String] =
    values.get(key(MinRows).name).filter(_ => number(MinRows) > morselRows).map { text =>
      val expected = s"at most spark.sparkext.morsel.maxRows, which is $morselRows"
      s"${key(MinRows).problem(text, expected)}; $morselRows is used"
    }

  /** The problems of the keys that are set, each with the value that is used instead. */
  val problems: Seq[String] = readings.flatMap(_._3) ++ tooManyRows

  (problems ++ set.keys.toSeq.sorted.flatMap(ConfigKey.unknown)).foreach(Guarded.warn)

  /** Why nothing is planned, if `mode` cannot be read and so counts as off. */
  val unreadableMode: Option[String] =
    readings.collectFirst { case (read, _, Some(problem)) if read == key("mode") => problem }

  /** The engine that replaces Spark's operators in this session. */
  val engine: Option[String] = ColumnarEngine.of(application, conf)

  /** Why joins without a hint are left to Spark, if they are. */
  val hintedOnly: Option[String] = mode match {
    case "hint" => Some(Reason("NOT_HINTED"))
    case "auto" => engine.map { engine =>
        Reason("NOT_HINTED_WITH_ENGINE", engine)
      }
    case _ => None
  }

  /** A reason for a declined join, with the problems of the keys that may have led to it. */
  def explained(reason: String): String = (reason +: problems).mkString("; ")

  /** Every key that is set and can be read, for the workers. */
  def forWorkers: Map[String, String] = if (tooManyRows.isEmpty) values else values - key(MinRows).name

  private def word(name: String): String = values.getOrElse(key(name).name, key(name).default)
  private def flag(name: String): Boolean = word(name).toBoolean
  private def number(name: String): Long = key(name).number(word(name)).get.toLong
}

object Settings {
  private val PartsPerPartition = 4
  private val AtStart = "a value only when the application starts"
  private val MaxBuildBytes = "buildSide.maxBytes"
  private val Algorithm = "algorithm"
  private val Partitioned = "partitioned"
  private val MaxRows = "morsel.maxRows"
  private val MinRows = "morsel.minRows"
  private val DebugSessions = key("debug.sessions")

  private def key(name: String): ConfigKey = ConfigKey(ConfigKey.Prefix + name)

  /** A build side's limit as a hint writes it. */
  def bytes(value: String): Long = {
    val limit = key(MaxBuildBytes)
    limit.number(hinted(limit, value)).get.toLong
  }

  /** An algorithm as a hint writes it. */
  def algorithmNamed(value: String): String = hinted(key(Algorithm), value)

  /** When a join is partitioned, as a hint writes it. */
  def partitionedWhen(value: String): String = hinted(key(Partitioned), value)

  private def hinted(key: ConfigKey, value: String): String =
    key.read(value).fold(problem => throw new RefusedException(problem), identity)
}
