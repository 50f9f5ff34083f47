package org.apache.spark.sql.sparkext

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.internal.config.{PUSH_BASED_SHUFFLE_ENABLED, SHUFFLE_USE_OLD_FETCH_PROTOCOL}
import org.apache.spark.shuffle.sort.SortShuffleManager
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}

/** How the rows of a pipeline come to be where those are that they may meet: both sides of the joins numbered `builds`, which have
  * one key on the probe side, go to slots by its `lines`. The other build sides lie whole on every node, as ever.
  *
  * `keyed`: false where these joins have no equality. Then there is one line, and slots are units of a join matrix: each joins some
  * rows of the probe side with some of the build side. `keepsProbe`: whether probe rows whose key matches nothing are needed. `clusters`: the columns that come out, by number, that are
  * that key, where something above gains from rows of one key coming out of one slot: then no line is split. `streamed`: set by
  * [[StreamedExchanges]] where the probe side streams to slots that join it meanwhile.
  */
case class Exchange(
    builds: Seq[Int],
    keyed: Boolean,
    lines: Int,
    keepsProbe: Boolean,
    clusters: Seq[Int] = Nil,
    streamed: Option[Streamed] = None) {
  def described: String = {
    def plural(number: Int, thing: String) = if (number == 1) thing else s"${thing}s"
    val numbered = s"${plural(builds.length, "join")} ${builds.map(_ + 1).mkString(", ")}"
    val way = streamed
      .map(by => s", streamed by ${by.maps} ${plural(by.maps, "task")} to ${by.slots} ${plural(by.slots, "slot")}")
      .getOrElse("")
    if (keyed) s"$lines ${plural(lines, "line")} of $numbered$way" else s"units of a matrix of $numbered"
  }

  /** How many slots there will be is not known, but that it may be more than one: of one, Spark would take all rows to be together. */
  def partitioning(output: Seq[Attribute]): Partitioning =
    if (clusters.isEmpty) UnknownPartitioning(math.max(2, lines)) else SlotPartitioning(clusters.map(output), lines)

  /** With the groups of a chain's rows in the slots of their rows, if the key is part of what they are grouped by: `keys`, by `columns`
    * among the `output`. Rows without a key may be in any slot.
    */
  def grouped(chain: JoinChain, keys: Seq[Expression], columns: Seq[Attribute], output: Seq[Attribute]): Exchange = {
    val stages = builds.map(chain.stages)
    def isKey(number: Int)(expression: Expression) = {
      val equal = chain.atSources(stages.head.keys(number).probe) +: stages.filter(_.kind == "inner").map(_.keys(number).build)
      equal.exists(Exchange.unwidened(_).semanticEquals(Exchange.unwidened(expression)))
    }
    val found = stages.head.keys.indices.map { number =>
      keys.zip(columns).collectFirst { case (key, column) if isKey(number)(key) => output.indexWhere(_.exprId == column.exprId) }.getOrElse(-1)
    }
    if (keepsProbe || !keyed || found.contains(-1)) this else copy(clusters = found)
  }
}

object Exchange {

  /** Lines a slot, for lines that are too many for one to be moved; and what the format of map outputs bears. */
  private val LinesPerSlot = 4
  val MostLines = 4096

  /** Each line costs every task a cell: there are few of them where few bytes are expected. */
  private val FewLines = 64
  private val BytesPerLine = 1 << 20

  /** How many lines there are where Spark would make so many partitions of so many bytes, as it is estimated: a power of two. */
  def lines(partitions: Int, bytes: Double): Int = {
    val most = math.min(partitions.toLong * LinesPerSlot, MostLines.toLong)
    val wanted = math.max(1L, math.min(most, math.max(FewLines.toLong, (bytes / BytesPerLine).toLong))).toInt
    if (wanted == 1) 1 else Integer.highestOneBit(wanted - 1) << 1
  }

  /** Whether a join can be one; or why not. */
  def check(stage: JoinStage): Either[String, Unit] = for {
    _ <- JoinStage.check(stage.asOf.isEmpty, "an as-of join cannot be partitioned")
    _ <- files
  } yield ()

  /** Whether workers may write what Spark's shuffle hands out. */
  def files: Either[String, Unit] = Option(SparkEnv.get).toRight("no Spark environment").flatMap { env =>
    for {
      _ <- JoinStage.check(
        SparkShim.shuffleManager(env).isInstanceOf[SortShuffleManager],
        s"${SparkShim.shuffleManager(env).getClass.getName} does not take files of workers")
      _ <- settings(env.conf)
    } yield ()
  }

  private def settings(conf: SparkConf): Either[String, Unit] =
    Seq(PUSH_BASED_SHUFFLE_ENABLED, SHUFFLE_USE_OLD_FETCH_PROTOCOL).find(conf.get(_)).map { key =>
      s"a shuffle of files that workers write does not work with ${key.key}"
    }.toLeft(())

  /** Why a join is not partitioned that is too large not to be. */
  def refused(stage: JoinStage, settings: Settings): String =
    if (when(stage, settings) == "never") "spark.sparkext.partitioned is never" else check(stage).left.getOrElse("it is not partitioned")

  private def when(stage: JoinStage, settings: Settings): String = stage.hint.flatMap(_.partitioned).getOrElse(settings.partitioned)

  /** Whether a join of a chain is to be one. A full outer join is one way or the other: its rows have to come together by key. */
  def wants(stage: JoinStage, settings: Settings): Boolean = check(stage).isRight && (when(stage, settings) match {
    case "always" => true
    case "auto" => stage.full || Estimates.bytes(stage.build) > stage.hint.flatMap(_.maxBytes).getOrElse(settings.maxBuildBytes).toDouble
    case _ => false
  })

  /** The exchange of a chain; None if no join of it is to be partitioned. Left if not all that are can share one. */
  def of(chain: JoinChain, settings: Settings): Either[String, Option[Exchange]] = {
    val wanted = chain.stages.zipWithIndex.filter { case (stage, _) => wants(stage, settings) }
    wanted.headOption match {
      case None => Right(None)
      case Some((first, _)) =>
        val keys = keysOf(first, chain)
        val shared = wanted.forall { case (stage, _) =>
          val own = keysOf(stage, chain)
          own.length == keys.length && own.zip(keys).forall { case ((key, safe), (other, safeOther)) =>
            safe == safeOther && key.semanticEquals(other)
          }
        }
        // It adds rows whose key is null, to slots where other rows of that key are not; and which of the first join's build rows
        // those are, a slot knows of rows that have come by its key.
        val full = chain.stages.headOption.filter(_.full)
        val parted = full.exists { stage =>
          !wanted.exists(_._1 eq stage) || (wanted.length > 1 && (stage.keys.isEmpty || stage.keys.exists(_.nullSafe)))
        }
        val ofProbe = keys.forall { case (key, _) => key.references.nonEmpty && key.references.subsetOf(chain.probe.outputSet) }
        if (!shared || !ofProbe || parted) Left("joins on different keys are partitioned one after the other")
        else {
          val dropped = wanted.exists { case (stage, _) => stage.kind == "inner" || stage.kind == "semi" }
          val mayFail = chain.stages.exists(_.formula.exists(Failing.may))
          val bytes = (chain.probe +: wanted.map(_._1.build)).map(Estimates.bytes).sum
          val keyed = keys.nonEmpty
          val count = if (keyed) lines(settings.partitions, bytes) else 1
          Right(Some(Exchange(wanted.map(_._2), keyed, count, keepsProbe = !dropped || mayFail)))
        }
    }
  }

  private def unwidened(key: Expression): Expression = Widened.unapply(key).getOrElse(key)

  private def keysOf(stage: JoinStage, chain: JoinChain) = stage.keys.map(key => (chain.atSources(key.probe), key.nullSafe))
}
