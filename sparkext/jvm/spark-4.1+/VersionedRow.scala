package org.apache.spark.sql.sparkext

import org.apache.spark.unsafe.types.{GeographyVal, GeometryVal}

/** The row getters that exist in this Spark version, but not in all supported ones. */
trait VersionedRow extends RowOfColumns {
  override def getGeography(column: Int): GeographyVal = columns(column).getGeography(row)
  override def getGeometry(column: Int): GeometryVal = columns(column).getGeometry(row)
}
