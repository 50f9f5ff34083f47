package org.apache.spark.sql.sparkext.shuffle

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.internal.config.{PUSH_BASED_SHUFFLE_ENABLED, SHUFFLE_USE_OLD_FETCH_PROTOCOL}
import org.apache.spark.shuffle.sort.SortShuffleManager
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.sparkext.expressions.{Failing, Widened}
import org.apache.spark.sql.sparkext.joins.{Estimates, JoinChain, JoinStage}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Settings, Shared}
import org.apache.spark.sql.sparkext.shim.SparkShim

/** Repartitions the probe side and the build sides of the joins numbered `builds` by their common key on the probe
  * side. Rows are hashed to buckets, and buckets are assigned to partitions. The other build sides are replicated on
  * every node, as in other pipelines.
  *
  * `keyed`: false if these joins have no equality. Then there is one bucket, and partitions are units of a join matrix:
  * each joins some rows of the probe side with some rows of the build side. `keepsProbe`: whether probe rows whose key
  * cannot match, such as null, are needed. `clusters`: the numbers of the output columns that hold the key, if an
  * operator above benefits from all rows of a key being in one partition; then no bucket is split. `streamed`: set by
  * [[StreamedExchanges]] if the probe side streams to partitions that join it at the same time.
  */
case class Exchange(
    builds: Seq[Int],
    keyed: Boolean,
    buckets: Int,
    keepsProbe: Boolean,
    clusters: Seq[Int] = Nil,
    streamed: Option[Streamed] = None) {
  def described: String = {
    def plural(number: Int, thing: String) = if (number == 1) thing else s"${thing}s"
    val numbered = s"${plural(builds.length, "join")} ${builds.map(_ + 1).mkString(", ")}"
    val way = streamed
      .map(by =>
        s", streamed by ${by.maps} ${plural(by.maps, "task")} to ${by.partitions} ${plural(by.partitions, "partition")}")
      .getOrElse("")
    if (keyed) s"$buckets ${plural(buckets, "bucket")} of $numbered$way" else s"units of a matrix of $numbered"
  }

  /** The number of partitions is not known yet, except that it may exceed one. If it were stated as one, Spark would
    * assume that all rows are together.
    */
  def partitioning(output: Seq[Attribute]): Partitioning =
    if (clusters.isEmpty) UnknownPartitioning(math.max(2, buckets))
    else PartitioningByIndex(clusters.map(output), buckets)

  /** This exchange with `clusters` set, if the key is part of the grouping of a chain's rows: then all rows of a group
    * are in one partition. `keys` are the grouping expressions, `columns` are their columns among the `output`.
    * Unchanged if rows whose key cannot match are kept, because these rows may be in any partition.
    */
  def grouped(chain: JoinChain, keys: Seq[Expression], columns: Seq[Attribute], output: Seq[Attribute]): Exchange = {
    val stages = builds.map(chain.stages)
    def isKey(number: Int)(expression: Expression) = {
      val equal =
        chain.atSources(stages.head.keys(number).probe) +: stages.filter(_.kind == "inner").map(_.keys(number).build)
      equal.exists(Exchange.unwidened(_).semanticEquals(Exchange.unwidened(expression)))
    }
    val found = stages.head.keys.indices.map { number =>
      keys.zip(columns).collectFirst {
        case (key, column) if isKey(number)(key) => output.indexWhere(_.exprId == column.exprId)
      }.getOrElse(-1)
    }
    if (keepsProbe || !keyed || found.contains(-1)) this else copy(clusters = found)
  }
}

object Exchange {

  private val MostBuckets = Shared[Int]("many_buckets")

  /** Each bucket costs every task a block, so there are few buckets per partition, and few if few bytes are expected. */
  private val BucketsPerPartition = 4
  private val FewBuckets = 64
  private val BytesPerBucket = 1 << 20

  /** The number of buckets, a power of two, if Spark would create `partitions` partitions and `bytes` bytes are
    * estimated.
    */
  def buckets(partitions: Int, bytes: Double): Int =
    rounded(math.min(
      partitions.toLong * BucketsPerPartition,
      math.max(FewBuckets.toLong, (bytes / BytesPerBucket).toLong)))

  /** The smallest power of two that is not less than `wanted`, but at most `MostBuckets`. */
  def rounded(wanted: Long): Int = {
    val most = math.min(wanted, MostBuckets.toLong).toInt
    if (most <= 1) 1 else Integer.highestOneBit(most - 1) << 1
  }

  /** Whether a join can be partitioned, or the reason why not. */
  def check(stage: JoinStage): Either[String, Unit] = for {
    _ <- Reasons.check(stage.asOf.isEmpty, Reason("ASOF_NOT_PARTITIONED"))
    _ <- files
  } yield ()

  /** Whether workers may write the files that Spark's shuffle serves, or the reason why not. */
  def files: Either[String, Unit] = Option(SparkEnv.get).toRight(Reason("NO_SPARK_ENVIRONMENT")).flatMap { env =>
    for {
      _ <- Reasons.check(
        SparkShim.shuffleManager(env).isInstanceOf[SortShuffleManager],
        Reason("SHUFFLE_MANAGER", SparkShim.shuffleManager(env).getClass.getName)
      )
      _ <- settings(env.conf)
    } yield ()
  }

  private def settings(conf: SparkConf): Either[String, Unit] =
    Seq(PUSH_BASED_SHUFFLE_ENABLED, SHUFFLE_USE_OLD_FETCH_PROTOCOL).find(conf.get(_)).map { key =>
      Reason("SHUFFLE_SETTING", key.key)
    }.toLeft(())

  /** The reason why a join is not partitioned although it is too large to be replicated. */
  def refused(stage: JoinStage, settings: Settings): String =
    if (when(stage, settings) == "never") Reason("PARTITIONED_NEVER")
    else check(stage).left.getOrElse(Reason("REASON_UNKNOWN"))

  private def when(stage: JoinStage, settings: Settings): String =
    stage.hint.flatMap(_.partitioned).getOrElse(settings.partitioned)

  /** Whether a join of a chain is to be partitioned. In `auto` mode a full outer join always is: its rows have to be
    * fetched together by key in any case.
    */
  def wants(stage: JoinStage, settings: Settings): Boolean = check(stage).isRight && (when(stage, settings) match {
    case "always" => true
    case "auto" => stage.full || Estimates.bytes(stage.build) > stage.hint.flatMap(_.maxBytes).getOrElse(
        settings.maxBuildBytes).toDouble
    case _ => false
  })

  /** The exchange of a chain; None if no join of it is to be partitioned. Left if the joins to be partitioned cannot
    * share one.
    */
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
        // A full outer join emits unmatched build rows, whose probe key is null, in the partitions of their build keys.
        // A null-safe join after it would need them in the partition of null. A partition can find unmatched build rows
        // of the first join only if both sides were sent by the key of that join.
        val full = chain.stages.headOption.filter(_.full)
        val parted = full.exists { stage =>
          !wanted.exists(_._1 eq stage) || (wanted.length > 1 && (stage.keys.isEmpty || stage.keys.exists(_.nullSafe)))
        }
        val ofProbe = keys.forall { case (key, _) =>
          key.references.nonEmpty && key.references.subsetOf(chain.probe.outputSet)
        }
        if (!shared || !ofProbe || parted) Left("joins on different keys are partitioned one after the other")
        else {
          val dropped = wanted.exists { case (stage, _) => stage.kind == "inner" || stage.kind == "semi" }
          val mayFail = chain.stages.exists(_.formula.exists(Failing.may))
          val bytes = (chain.probe +: wanted.map(_._1.build)).map(Estimates.bytes).sum
          val keyed = keys.nonEmpty
          val count = if (keyed) buckets(settings.partitions, bytes) else 1
          Right(Some(Exchange(wanted.map(_._2), keyed, count, keepsProbe = !dropped || mayFail)))
        }
    }
  }

  private def unwidened(key: Expression): Expression = Widened.unapply(key).getOrElse(key)

  private def keysOf(stage: JoinStage, chain: JoinChain) =
    stage.keys.map(key => (chain.atSources(key.probe), key.nullSafe))
}
