package org.apache.spark.sql.sparkext

/** The row getters that exist in this Spark version, but not in all supported ones: none. */
trait VersionedRow extends RowOfColumns
