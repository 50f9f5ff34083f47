package org.apache.spark.sql.sparkext.exec

import org.json4s.JsonAST.JValue

import org.apache.spark.SparkContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.sparkext.joins.PlannedComparison
import org.apache.spark.sql.sparkext.protocol.{RunLog, SentColumns, WorkOrder}
import org.apache.spark.sql.sparkext.python.WorkerAnswers
import org.apache.spark.sql.sparkext.shuffle.{
  Exchange,
  JoinPartitions,
  JoinPartitionsRDD,
  LoadTables,
  OutgoingRows,
  PartitionRuns,
  RoutedRows,
  Sent,
  SentKey,
  SentSide,
  StreamedPartitionsRDD
}

/** The exchange of an operator that runs: the sides that are sent, and the input of the partitions. */
private class PipelineExchange(operator: PipelinedJoinExec, by: Exchange) {
  import PipelinedJoinExec.Source
  import operator.{builds, joins, metrics, ownsBuild, probe, settings}

  private val context = operator.session.sparkContext

  /** The sides whose rows are exchanged between tasks, by join number. */
  val sides: Map[Int, SentSide] = {
    val probeSide = new SentSide(probe, probeKeys, by.buckets, by.keepsProbe, "probe side of partitioned joins")
    by.streamed.fold(Map(Source -> probeSide))(_ => Map.empty[Int, SentSide]) ++ by.builds.map { number =>
      val described = s"build side of the partitioned join on ${joins(number).label}"
      number -> new SentSide(
        builds(number),
        keysOf(number, _.build),
        by.buckets,
        joins(number).kind == "full",
        described)
    }
  }

  private def keysOf(number: Int, column: PlannedComparison => Int): Seq[SentKey] =
    joins(number).keys.map(key => SentKey(column(key), key.keyType, key.nullSafe))

  private def probeKeys: Seq[SentKey] = keysOf(by.builds.head, _.probe.column)

  private def sent(number: Int): Sent = sides(number).sent

  /** The routes of the probe side, if it streams to partitions: each run has its own. */
  def routes(): Option[RoutedRows] = by.streamed.map(new RoutedRows(_, by.buckets))

  /** The part of the work order about the rows that partitions receive. */
  def order(routed: Option[RoutedRows]): JValue = WorkOrder.received(
    SentColumns.like(probe.output),
    by.builds.map(number => number -> sent(number).schema).toMap,
    ownsBuild,
    routed.map(_.description))

  /** The input of the partitions, once all sides are sent, or while the probe side is routed to them. */
  def input(routed: Option[RoutedRows], log: RunLog): RDD[InternalRow] =
    routed.map(streamed(_, log)).getOrElse(inWaves(log))

  private def inWaves(log: RunLog): RDD[InternalRow] = {
    val probeSide = sent(Source)
    val buildSides = by.builds.map(sent)
    val paired = buildSides.zip(by.builds.map(joins(_).paired))
    val known = if (settings.debugPartitions == "planned") JoinPartitions.one(probeSide, paired, log.before) else None
    val planned = known.getOrElse(askBalancer(probeSide, paired, log.before))
    log.partitions = () => planned.loads
    metrics("partitions").set(planned.shares.length)
    metrics("movedBuckets").set(planned.moved)
    metrics("splitBuckets").set(planned.split)
    metrics("sentRows").set((probeSide +: buildSides).map(_.rows.sum).sum)
    metrics("sentBytes").set((probeSide +: buildSides).map(_.bytes.sum).sum)
    operator.postToDriver(Seq("partitions", "movedBuckets", "splitBuckets", "sentRows", "sentBytes"))
    new JoinPartitionsRDD(
      context,
      planned.shares,
      probeSide.dependency,
      by.builds.zip(buildSides.map(_.dependency)),
      needsProbe = !ownsBuild,
      needsBuild = needsBuild)
  }

  private def streamed(routed: RoutedRows, log: RunLog): RDD[InternalRow] = {
    val partitions = by.streamed.get.partitions
    log.partitions = () => LoadTables.recorded(routed.run)
    metrics("partitions").set(partitions)
    operator.postToDriver(Seq("partitions"))
    val rows = new OutgoingRows(probeKeys, by.buckets, by.keepsProbe, SentColumns.like(probe.output), routed)
    StreamedPartitionsRDD.of(
      SentSide.outgoing(probe, rows),
      partitions,
      by.buckets,
      routed.run,
      by.builds.map(number => number -> sent(number)))
  }

  /** Whether the join emits pairs only, which the units of a join matrix find independently of each other. */
  private def mayDivideBuild: Boolean = by.builds.length == 1 && joins(by.builds.head).kind == "inner"

  private def needsBuild: Boolean =
    by.builds.map(joins(_).kind).exists(kind => kind == "inner" || kind == "semi")

  private def askBalancer(
      probeSide: Sent,
      paired: Seq[(Sent, Boolean)],
      before: Option[PartitionRuns]): JoinPartitions = {
    val buildSides = paired.map(_._1)
    val command = WorkOrder.plan(
      probeSide,
      paired,
      before.toSeq.flatMap(_.each),
      math.max(1, context.defaultParallelism / context.getConf.getInt("spark.task.cpus", 1)),
      needsProbe = !ownsBuild,
      needsBuild = needsBuild,
      mostShares = if (by.clusters.isEmpty) math.max(1, probeSide.maps) else 1,
      mostBuildShares =
        if (by.keyed) None else Some(if (mayDivideBuild || ownsBuild) math.max(1, buildSides.head.maps) else 1),
      settings.forWorkers,
      WorkerAnswers.Answer
    )
    val answers = WorkerAnswers.of(context, WorkerAnswers.run(operator, command))
    val own = context.getLocalProperty(SparkContext.SPARK_JOB_DESCRIPTION)
    context.setJobDescription(PipelineExchange.Balancer)
    try JoinPartitions.of(answers.collect().head, probeSide, buildSides, ownsBuild)
    finally context.setJobDescription(own)
  }
}

private object PipelineExchange {

  /** The description of the job that plans partitions, in Spark's UI. */
  private val Balancer = "partitions of partitioned joins"
}
