package org.apache.spark.sql.sparkext.shuffle

import java.util.concurrent.TimeUnit.NANOSECONDS

import scala.collection.mutable

import com.google.common.cache.CacheBuilder
import org.json4s.JsonAST.{JNull, JObject, JValue}
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.rpc.{RpcCallContext, RpcEndpointRef, RpcEnv, ThreadSafeRpcEndpoint}
import org.apache.spark.sql.sparkext.protocol.Shared
import org.apache.spark.util.RpcUtils

/** The load tables of runs whose rows stream to partitions, on the driver: the loads that routing tasks and partitions
  * have reported, and the table by which rows are routed. See Python's `load_table`. The load tables of the latest runs
  * are kept for reports.
  */
private[sparkext] class LoadTables(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
  import LoadTables._

  /** Replies with the load table of a run if a task requests it or proposes a new interval, and otherwise with the
    * number of started partitions.
    */
  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    case ReportedLoads(run, by, number, loads) =>
      context.reply(on(run) { table =>
        table.store(by, number, loads)
        table.partitions
      })
    case Proposed(run, interval) =>
      context.reply(on(run) { table =>
        table.take(interval)
        table.text
      })
    case RequestedTable(run) => context.reply(on(run)(_.text))
    case RequestedPartitions(run) => context.reply(on(run)(_.partitions))
  }

  private def on[T](run: String)(step: LoadTable => T): T =
    LoadTables.synchronized(step(tables.get(run, () => new LoadTable)))
}

private case class ReportedLoads(run: String, by: String, number: Int, loads: String)
private case class Proposed(run: String, interval: String)
private case class RequestedTable(run: String)
private case class RequestedPartitions(run: String)

private[sparkext] object LoadTables {
  private val Name = "sparkext-load-tables"
  private val Kept = 64L
  private val tables = CacheBuilder.newBuilder().concurrencyLevel(1).maximumSize(Kept).build[String, LoadTable]()
  private var served: RpcEnv = _

  /** Called on the driver before the tasks of a run start: discards earlier messages of the run. */
  def begin(context: SparkContext, run: String): Unit = synchronized {
    tables.invalidate(run)
    val env = context.env.rpcEnv
    if (served ne env) {
      env.setupEndpoint(Name, new LoadTables(env))
      served = env
    }
  }

  /** The reference to the driver's load tables, for a task. */
  def link: RpcEndpointRef = RpcUtils.makeDriverRef(Name, SparkEnv.get.conf, SparkEnv.get.rpcEnv)

  /** The recorded loads of a run for its report, as JSON; null if they have been evicted. */
  def recorded(run: String): String =
    synchronized(Option(tables.getIfPresent(run)).map(table => s"""{"streamed":${table.history}}""").orNull)
}

/** The load table of one run: the loads that routing tasks and partitions have reported, the current interval, and the
  * loads of the intervals before. See Python's `load_table`.
  */
private class LoadTable {
  import Shared.formats

  private val loads =
    Seq(LoadTable.Routes, LoadTable.Partitions).map(_ -> mutable.Map.empty[Int, LoadTable.Buckets]).toMap
  private var interval: JValue = JNull
  private var number = 0
  private val judged = mutable.ArrayBuffer.empty[JValue]
  private var since = System.nanoTime()

  /** The number of partitions that have started. */
  def partitions: Int = loads(LoadTable.Partitions).size

  /** Stores the newest message of a task. */
  def store(by: String, task: Int, message: String): Unit = loads(by)(task) = parse(message).extract[LoadTable.Buckets]

  /** Accepts the first proposal for the interval after the current one. */
  def take(text: String): Unit = {
    val proposed = parse(text)
    if ((proposed \ "number").extract[Int] == number + 1) {
      number += 1
      interval = proposed
      since = System.nanoTime()
      judged += (proposed \ "judged")
      if (judged.length > LoadTable.Most) judged.remove(1) // reports compare with the first
    }
  }

  def text: String = {
    val seconds = NANOSECONDS.toMillis(System.nanoTime() - since) / 1000.0
    val sums = loads.map { case (by, tasks) =>
      by -> (("rows" -> LoadTable.sums(tasks.values.map(_.rows))) ~ ("seconds" -> LoadTable.sums(
        tasks.values.map(_.seconds))))
    }
    compact(render(("interval" -> interval) ~ ("seconds" -> seconds) ~ JObject(sums.toList)))
  }

  def history: String = {
    val worked = loads(LoadTable.Partitions).toSeq.sortBy(_._1).map(_._2.seconds.values.sum)
    compact(render(("interval" -> interval) ~ ("judged" -> judged.toSeq) ~ ("worked" -> worked)))
  }
}

private object LoadTable {
  private val Most = 1000

  /** The senders of messages: tasks that route rows, and partitions. */
  val Routes = "routes"
  val Partitions = "partitions"

  /** Python's `BucketReport`: rows and seconds of each bucket. */
  case class Buckets(rows: Map[String, Double], seconds: Map[String, Double])

  private def sums(loads: Iterable[Map[String, Double]]): Map[String, Double] =
    loads.flatten.groupMapReduce(_._1)(_._2)(_ + _)
}
