package org.apache.spark.sql.sparkext.protocol

/** Texts of the registry of conditions (`sparkext/error_conditions.json`): reasons of plans, and errors. */
object Reason {
  private val templates = Shared.fields[String]("reasons").map { case (name, message) =>
    name -> message.split("<[^>]+>", -1).toSeq
  }.toMap

  /** The text of a reason, beginning with its name. `values` replace the parameters of its template in their order. */
  def apply(name: String, values: Any*): String = s"[$name] ${new StringContext(templates(name): _*).raw(values: _*)}"
}
