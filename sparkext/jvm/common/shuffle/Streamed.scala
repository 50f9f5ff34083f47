package org.apache.spark.sql.sparkext.shuffle

import java.util.UUID

import org.json4s.JsonAST.{JObject, JValue}
import org.json4s.JsonDSL._

import org.apache.spark.{SparkContext, TaskContext}
import org.apache.spark.internal.config.{DYN_ALLOCATION_ENABLED, SPECULATION_ENABLED}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, SentColumns, Shared}
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types.{BinaryType, BooleanType, IntegerType, StructType}

/** How the probe side of a partitioned join streams to its partitions: `maps` tasks route its rows while `partitions`
  * tasks join them.
  */
case class Streamed(maps: Int, partitions: Int)

object Streamed {

  private val BucketsPerPartition = Shared[Int]("buckets_per_partition")
  private val Secured =
    Seq("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")

  /** `Routed`: the output of tasks that route rows, with partition, bucket and block. `Arriving`: the input of
    * partitions, Python's `ReceivedItem`.
    */
  val Routed: StructType = SentColumns.of(Seq(IntegerType, IntegerType, BinaryType))
  val Arriving: StructType = SentColumns.of(Seq(IntegerType, BooleanType, BinaryType))

  /** Half of all tasks route rows and half join them, so that all run at the same time. Left if that is impossible. */
  def of(context: SparkContext): Either[String, Streamed] = {
    val conf = context.getConf
    val cores = context.maxNumConcurrentTasks(context.resourceProfileManager.defaultResourceProfile)
    for {
      _ <- Reasons.check(SparkShim.streams, Reason("NO_PIPELINED_SHUFFLE", context.version))
      _ <-
        Seq(DYN_ALLOCATION_ENABLED, SPECULATION_ENABLED).find(conf.get(_)).map(key =>
          Reason("TASKS_NOT_FIXED", key.key)).toLeft(())
      _ <-
        Secured.find(conf.getBoolean(_, false)).map(key => Reason("SECURED_CONNECTIONS", key)).toLeft(())
      _ <- Reasons.check(cores >= 2, Reason("TOO_FEW_CORES"))
    } yield Streamed(cores - cores / 2, cores / 2)
  }

  def buckets(partitions: Int): Int = Exchange.rounded(partitions.toLong * BucketsPerPartition)
}

/** How outgoing rows are sent to other tasks, and the columns that the tasks of their pipeline emit. */
trait RowTransport extends Serializable {
  def result: StructType

  /** The largest number of tasks, if it is limited. */
  def maps: Option[Int] = None

  /** Called in a task, before its worker starts. */
  def announce(task: TaskContext): Unit

  /** The part of the work order about the outgoing rows. */
  def order: JObject
}

/** Rows that stream to partitions by routing tables that change while they run: see Python's `load_table`. `run`
  * identifies their load table in the driver's [[LoadTables]].
  */
class RoutedRows(streamed: Streamed, buckets: Int, val run: String = UUID.randomUUID().toString) extends RowTransport {
  override def result: StructType = Streamed.Routed
  override def maps: Option[Int] = Some(streamed.maps)
  override def announce(task: TaskContext): Unit = LoadTableLink.ofRoute(run, task)
  override def order: JObject = JObject("streamed" -> description)

  def description: JValue = ("buckets" -> buckets) ~ ("partitions" -> streamed.partitions) ~ ("run" -> run)
}
