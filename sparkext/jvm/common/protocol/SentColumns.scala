package org.apache.spark.sql.sparkext.protocol

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.types.{DataType, StructField, StructType}

/** Columns that are sent to workers and back are named by their numbers, because a query's names may be empty,
  * repeated, or contain any character.
  */
object SentColumns {
  def of(types: Seq[DataType]): StructType = StructType(types.zipWithIndex.map { case (dataType, number) =>
    StructField(s"c$number", dataType)
  })

  def like(columns: Seq[Attribute]): StructType = of(columns.map(_.dataType))

  /** The rows of a batch are sent as one struct column, and are returned as one. */
  def asRow(columns: StructType): StructType = StructType(Seq(StructField("row", columns)))
}
