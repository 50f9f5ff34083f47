package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

/** Converts the rows of one partition to Arrow streams of one batch each. */
private class RowParts(schema: StructType, timeZone: String)
    extends (Iterator[InternalRow] => Iterator[BuildSidePublisher.ArrowPart])
    with Serializable {

  override def apply(input: Iterator[InternalRow]): Iterator[BuildSidePublisher.ArrowPart] = {
    var rows = 0L
    val counted = input.map { row =>
      rows += 1
      row
    }
    val batches = SparkShim.toArrow(counted, schema, timeZone).toArray
    Iterator.single(rows -> batches)
  }
}
