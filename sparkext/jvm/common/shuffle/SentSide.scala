package org.apache.spark.sql.sparkext.shuffle

import java.util.UUID

import scala.collection.mutable
import scala.concurrent.Await
import scala.concurrent.duration.Duration

import org.apache.spark.{MapOutputTrackerMaster, PartitionIdPassthrough, ShuffleDependency, SparkEnv}
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.MapStatus
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSeq}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.sparkext.build_sides.{BuildSidePreparation, PublishedBuildSide}
import org.apache.spark.sql.sparkext.exec.{PipelinedJoinExec, SourceRows}
import org.apache.spark.sql.sparkext.joins.ColumnRef
import org.apache.spark.sql.sparkext.protocol.SentColumns
import org.apache.spark.sql.sparkext.scan.PeeledPlan
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types.{BinaryType, StructType}
import org.apache.spark.sql.vectorized.ColumnarBatch

/** One key of a side that is exchanged: its column, and the type as which it is compared. */
case class SentKey(column: Int, keyType: String, nullSafe: Boolean)

/** One side of a partitioned join, sent to partitions: the rows of `plan` are written as map outputs of Spark's shuffle.
  *
  * `keepsUnmatchable`: whether rows whose key cannot match, such as null, are sent as well.
  */
class SentSide(plan: SparkPlan, keys: Seq[SentKey], buckets: Int, keepsUnmatchable: Boolean, described: String)
    extends BuildSidePreparation(plan.session.sparkContext, described) {
  private val context = plan.session.sparkContext

  /** Set once the side is prepared. */
  @volatile var sent: Sent = _

  override def prepare(): Option[PublishedBuildSide] = asJob {
    failIfCancelled()
    sent = send()
    None
  }

  override def release(): Unit =
    Option(sent).foreach(side =>
      context.cleaner.foreach(_.doCleanupShuffle(side.dependency.shuffleId, blocking = false)))

  private def send(): Sent = {
    val totals @ Seq(rows, sizes, sketch) = Seq.fill(3)(new BucketTotals)
    totals.foreach(context.register(_))
    val files = new MapFiles(UUID.randomUUID().toString)
    val schema = SentColumns.like(plan.output)
    val accounts = SentSide.accounts(
      SentSide.outgoing(plan, new OutgoingRows(keys, buckets, keepsUnmatchable, schema, files)),
      totals)
    val dependency = SparkShim.sending(accounts, new PartitionIdPassthrough(buckets), files, plan.conf)
    files.of(dependency)
    val maps = accounts.getNumPartitions
    failIfCancelled()
    val bytes = if (maps == 0) new Array[Long](buckets)
    else {
      Await.result(
        context.submitMapStage(dependency),
        Duration.Inf).bytesByPartitionId // Spark's own await would wrap errors
    }
    new Sent(dependency, schema, maps, bytes, rows.value, sizes.value, sketch.value)
  }
}

object SentSide {

  /** The columns of a worker's message about its file: see Python's `outgoing_rows`. */
  val Account: StructType = SentColumns.of(Seq.fill(5)(BinaryType))

  /** One row per task: its account, and the number of bytes of each bucket. `totals` accumulate the other numbers that
    * tasks report.
    */
  private def accounts(batches: RDD[ColumnarBatch], totals: Seq[BucketTotals]): MapFiles.Accounts =
    batches.mapPartitionsInternal(_.map { batch =>
      val bytes +: checksum +: others = (0 until batch.numCols).map(batch.column(_).getBinary(0))
      val numbers = others.map(MapFiles.numbers)
      totals.zip(numbers).foreach { case (total, values) => total.add(values) }
      MapAccount(numbers.head.sum, MapFiles.numbers(checksum).head) -> bytes
    })

  /** The outgoing rows of the pipeline that produces `plan`, if there is one and it runs; otherwise those of an
    * additional pipeline without joins over `plan`.
    */
  def outgoing(plan: SparkPlan, rows: OutgoingRows): RDD[ColumnarBatch] =
    pipelineOf(plan).flatMap(_.outgoing(rows)).orElse(over(plan).outgoing(rows)).get

  /** The pipeline that produces the rows of `plan`, below operators that only choose and rename columns. */
  def pipelineOf(plan: SparkPlan): Option[PipelinedJoinExec] =
    PeeledPlan.of(plan).toOption.collect {
      case PeeledPlan(pipeline: PipelinedJoinExec, outputs, Nil)
          if pipeline.grouping.isEmpty && pipeline.top.isEmpty && outputs.forall(_.isInstanceOf[Attribute]) =>
        val columns = AttributeSeq(pipeline.output)
        val origins = outputs.collect { case column: Attribute => pipeline.origins(columns.indexOf(column.exprId)) }
        pipeline.as(pipeline.copy(output = plan.output, origins = origins))
    }

  /** A pipeline without joins. */
  private def over(plan: SparkPlan): PipelinedJoinExec = PipelinedJoinExec(
    plan,
    Nil,
    Nil,
    plan.output,
    plan.output.indices.map(ColumnRef(0, _)),
    None,
    None,
    None,
    None,
    SourceRows(0, plan.output, 0))
}

/** The outgoing rows of a pipeline, and how they are sent to other tasks. */
class OutgoingRows(
    val keys: Seq[SentKey],
    val buckets: Int,
    val keepsUnmatchable: Boolean,
    val schema: StructType,
    val transport: RowTransport)

/** A side that has been sent: the number of its map tasks, and the size of each bucket. `bytes` counts bytes in files,
  * `sizes` bytes of the rows in memory.
  */
class Sent(
    val dependency: ShuffleDependency[_, _, _],
    val schema: StructType,
    val maps: Int,
    val bytes: Array[Long],
    val rows: Array[Long],
    val sizes: Array[Long],
    val sketch: Array[Long]) {

  /** Share `number` of `count` of a bucket's rows: the output of some map tasks, with about as many bytes as the other
    * shares.
    */
  def part(bucket: Int, number: Int, count: Int): Seq[BucketRange] =
    divided.getOrElseUpdate((bucket, count), divide(bucket, count))(number).map(map =>
      BucketRange(bucket, bucket + 1, map, map + 1))

  /** The map tasks of each share. If rows are ordered by a column, consecutive map tasks have similar values, so each
    * share takes map tasks from the whole range.
    */
  private def divide(bucket: Int, count: Int): Seq[Seq[Int]] = {
    val sizes = statuses.map(status => if (status == null) 0L else status.getSizeForBlock(bucket))
    val parts = Seq.fill(count)(mutable.ArrayBuffer.empty[Int])
    val filled = mutable.PriorityQueue((0 until count).map(0L -> _): _*)(Ordering[(Long, Int)].reverse)
    for (map <- (0 until maps).sortBy(map => (-sizes(map), map))) {
      val (bytes, part) = filled.dequeue()
      parts(part) += map
      filled.enqueue((bytes + sizes(map)) -> part)
    }
    parts.map(_.sorted.toSeq)
  }

  private val divided = mutable.Map.empty[(Int, Int), Seq[Seq[Int]]]

  private lazy val statuses: Array[MapStatus] = SparkEnv.get.mapOutputTracker.asInstanceOf[MapOutputTrackerMaster]
    .shuffleStatuses(dependency.shuffleId).withMapStatuses(_.clone())
}
