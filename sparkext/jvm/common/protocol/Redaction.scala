package org.apache.spark.sql.sparkext

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.Utils

/** Texts that show parts of a query, as Spark shows its own scans: without what `spark.sql.redaction.string.regex` covers. */
object Redaction {
  def redacted(text: String): String = Utils.redact(SQLConf.get.stringRedactionPattern, text)
}
