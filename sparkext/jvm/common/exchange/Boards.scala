package org.apache.spark.sql.sparkext

import java.util.concurrent.TimeUnit.NANOSECONDS

import scala.collection.mutable

import org.json4s.JsonAST.JValue
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.rpc.{RpcCallContext, RpcEndpointRef, RpcEnv, ThreadSafeRpcEndpoint}
import org.apache.spark.util.RpcUtils

/** The boards of runs whose rows stream to slots, on the driver: what slots have told of their loads, and by which table rows are
  * routed. See Python's `board`. The latest runs are kept, for reports.
  */
private class Boards(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
  import Boards._

  override def receive: PartialFunction[Any, Unit] = {
    case ToldLoads(run, slot, loads) => change(run)(_.loads(slot) = loads)
    case Proposed(run, interval) => change(run)(_.take(interval))
  }

  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    case AskedBoard(run) => context.reply(Boards.synchronized(of(run).text))
  }

  private def change(run: String)(step: Board => Unit): Unit = Boards.synchronized(step(of(run)))
}

private case class ToldLoads(run: String, slot: Int, loads: String)
private case class Proposed(run: String, interval: String)
private case class AskedBoard(run: String)

private object Boards {
  private val Name = "sparkext-boards"
  private val Kept = 64
  private val boards = mutable.LinkedHashMap.empty[String, Board]
  private var served: RpcEnv = _

  /** On the driver, before tasks run. */
  def begin(context: SparkContext): Unit = synchronized {
    val env = context.env.rpcEnv
    if (served ne env) {
      env.setupEndpoint(Name, new Boards(env))
      served = env
    }
  }

  /** In a task. */
  def link: RpcEndpointRef = RpcUtils.makeDriverRef(Name, SparkEnv.get.conf, SparkEnv.get.rpcEnv)

  /** What is known of a run, for its report. */
  def told(run: String): String = synchronized(s"""{"streamed":${of(run).history}}""")

  private def of(run: String): Board = {
    val board = boards.remove(run).getOrElse(new Board)
    boards.put(run, board)
    while (boards.size > Kept) boards.remove(boards.head._1)
    board
  }
}

/** Texts in JSON: of each slot the newest, and the interval that runs; the loads of those before. */
private class Board {
  import Shared.formats

  val loads: mutable.Map[Int, String] = mutable.Map.empty
  private var interval: JValue = parse("null")
  private var number = 0
  private val judged = mutable.ArrayBuffer.empty[JValue]
  private var since = System.nanoTime()

  /** The first of those that follow the interval that runs. */
  def take(text: String): Unit = {
    val proposed = parse(text)
    if ((proposed \ "number").extract[Int] == number + 1) {
      number += 1
      interval = proposed
      since = System.nanoTime()
      judged += (proposed \ "judged")
      if (judged.length > Board.Most) judged.remove(1)
    }
  }

  def text: String = {
    val seconds = NANOSECONDS.toMillis(System.nanoTime() - since) / 1000.0
    s"""{"interval":${compact(render(interval))},"seconds":$seconds,"loads":$allLoads}"""
  }

  def history: String =
    s"""{"interval":${compact(render(interval))},"judged":[${judged.map(one => compact(render(one))).mkString(",")}],"loads":$allLoads}"""

  private def allLoads: String = loads.toSeq.sorted.map { case (slot, told) => s""""$slot":$told""" }.mkString("{", ",", "}")
}

private object Board {
  private val Most = 1000
}
