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

  /** The board of a run, after what is told of it. */
  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    case Told(run, by, number, what) => context.reply(after(run)(_.told(by)(number) = what))
    case Proposed(run, interval) => context.reply(after(run)(_.take(interval)))
    case AskedBoard(run) => context.reply(after(run)(_ => ()))
  }

  private def after(run: String)(step: Board => Unit): String = Boards.synchronized {
    val board = of(run)
    step(board)
    board.text
  }
}

private case class Told(run: String, by: String, number: Int, what: String)
private case class Proposed(run: String, interval: String)
private case class AskedBoard(run: String)

private object Boards {
  private val Name = "sparkext-boards"
  private val Kept = 64
  private val boards = mutable.LinkedHashMap.empty[String, Board]
  private var served: RpcEnv = _

  /** On the driver, before tasks run: nothing is known of them yet. */
  def begin(context: SparkContext, run: String): Unit = synchronized {
    boards.remove(run)
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

/** Texts in JSON: the newest of each task that routes rows and of each slot, and the interval that runs; the loads of those before. */
private class Board {
  import Shared.formats

  val told: Map[String, mutable.Map[Int, String]] = Board.By.map(_ -> mutable.Map.empty[Int, String]).toMap
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
    s"""{"interval":${compact(render(interval))},"seconds":$seconds,$allTold}"""
  }

  def history: String =
    s"""{"interval":${compact(render(interval))},"judged":[${judged.map(one => compact(render(one))).mkString(",")}],$allTold}"""

  private def allTold: String = Board.By.map { by =>
    told(by).toSeq.sorted.map { case (number, what) => s""""$number":$what""" }.mkString(s""""$by":{""", ",", "}")
  }.mkString(",")
}

private object Board {
  private val Most = 1000

  /** Who tells: tasks that route rows, and slots. */
  val Routes = "routes"
  val Slots = "slots"
  private val By = Seq(Routes, Slots)
}
