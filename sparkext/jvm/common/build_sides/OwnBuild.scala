package org.apache.spark.sql.sparkext.build_sides

import org.json4s.JsonAST.JValue

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.sparkext.protocol.{Settings, WorkOrder}
import org.apache.spark.sql.sparkext.python.Formulas
import org.apache.spark.sql.sparkext.scan.FusedScan

/** A build side that workers materialise themselves, from files that they read. */
trait OwnBuild {

  /** The part of the work order by which workers materialise the rows. */
  def order(maxBytes: Long): JValue

  /** Whether workers may find that it exceeds `maxBytes`. */
  def mayExceed(maxBytes: Long): Boolean

  /** The expressions that may fail while workers materialise it. */
  def formulas: Option[Formulas]

  /** How the rows are materialised, in one word and in full. */
  def way: String
  def described: String
}

object OwnBuild {

  /** How workers materialise the rows of `plan`, or the reason why they do not. */
  def of(plan: SparkPlan, settings: Settings): Either[String, OwnBuild] = PipelinedBuild.below(plan) match {
    case Some(_) => PipelinedBuild.of(plan)
    case None => FusedScan.of(plan, settings).map(ScannedBuild(_))
  }
}

/** The rows of a scan. */
case class ScannedBuild(scan: FusedScan) extends OwnBuild {
  override def order(maxBytes: Long): JValue = WorkOrder.read(scan, maxBytes)
  override def mayExceed(maxBytes: Long): Boolean = AheadBuilder.mostBytes(scan).forall(_ > maxBytes)
  override def formulas: Option[Formulas] = None
  override def way: String = "fused"
  override def described: String = scan.described
}
