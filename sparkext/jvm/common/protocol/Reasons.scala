package org.apache.spark.sql.sparkext.protocol

/** Results that are values, or the reasons why there are none. */
private[sparkext] object Reasons {
  def check(holds: Boolean, reason: => String): Either[String, Unit] = if (holds) Right(()) else Left(reason)

  /** All values, or the first reason. */
  def all[T](results: Seq[Either[String, T]]): Either[String, Seq[T]] = {
    val (reasons, values) = results.partitionMap(identity)
    reasons.headOption.toLeft(values)
  }
}
