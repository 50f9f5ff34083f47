package org.apache.spark.sql.sparkext

import org.json4s.JsonAST.JValue

import org.apache.spark.sql.execution.SparkPlan

/** A build side that workers make themselves, of files that they read. */
trait OwnBuild {

  /** What workers are told to make. */
  def order(maxBytes: Long): JValue

  /** Whether they may find that it does not fit. */
  def mayExceed(maxBytes: Long): Boolean

  /** What may fail of it. */
  def formulas: Option[Formulas]

  /** How the rows come to be, in a word, and in full. */
  def way: String
  def described: String
}

object OwnBuild {

  /** How workers make the rows of `plan`; or why they do not. */
  def of(plan: SparkPlan, settings: Settings): Either[String, OwnBuild] = PipelinedBuild.below(plan) match {
    case Some(_) => PipelinedBuild.of(plan)
    case None => FusedScan.of(plan, settings).map(ScannedBuild(_))
  }
}

/** What a scan gives. */
case class ScannedBuild(scan: FusedScan) extends OwnBuild {
  override def order(maxBytes: Long): JValue = WorkOrder.read(scan, maxBytes)
  override def mayExceed(maxBytes: Long): Boolean = AheadBuilder.mostBytes(scan).forall(_ > maxBytes)
  override def formulas: Option[Formulas] = None
  override def way: String = "fused"
  override def described: String = scan.described
}
