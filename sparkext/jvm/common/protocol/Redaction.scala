package org.apache.spark.sql.sparkext.protocol

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.Utils

/** Redacts texts that show parts of a query by `spark.sql.redaction.string.regex`, like Spark's own scans. */
object Redaction {
  def redacted(text: String): String = Utils.redact(SQLConf.get.stringRedactionPattern, text)
}
