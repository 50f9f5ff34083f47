package org.apache.spark.sql.sparkext.exec

import org.apache.spark.sql.sparkext.groups.GroupedRows
import org.apache.spark.sql.sparkext.planning.{Guarded, StreamedExchanges, TopRows}
import org.apache.spark.sql.sparkext.protocol.Redaction

/** The texts about a pipeline in plans and in Spark's UI. `fate`: the fallback to Spark's own joins with its reason, if
  * it happened.
  */
private class PipelineDescription(operator: PipelinedJoinExec, inputs: PipelineInputs, fate: Option[String]) {
  import operator._

  def inBrief: String = {
    val stages = joins.zip(inputs.ownBuilds).map { case (join, build) =>
      s"${join.kind}: ${join.label}${build.fold(_ => "", made => s" (${made.way})")}"
    }
    val rest = behind.map { case (name, value) => s" $name=$value" }.mkString
    val text = s"$nodeName ${stages.mkString("[", "; ", "]")} scan=${inputs.describedProbe}$rest"
    s"$text${if (asBuild) " as build side" else ""}${if (inPlace) " rows=in place" else ""}${fate.map(" " + _).mkString}"
  }

  def inFull(name: String): String = {
    val lines = joins.indices.map(number => s"Join ${number + 1}: ${described(number)}") ++
      behind.map { case (name, value) => s"${name.capitalize}: $value" }
    s"""
      |$name
      |The rows of child 1 (the probe side) stream through all joins in one pass, in Python workers. The other children are
      |build sides, which are indexed first. Groups are partial: the aggregate above merges them. If a scan is fused, workers
      |read the files. If its rows or columns are from Spark, the reason is in parentheses.
      |${lines.mkString("\n")}
      |Scan: ${inputs.describedProbe}
      |Rows: ${if (inPlace) "in place" else "copied"}
      |Run: ${fate.getOrElse("as a pipeline, or by Spark's own joins if a build side does not fit")}
      |Output [${output.length}]: ${output.mkString("[", ", ", "]")}
      |""".stripMargin
  }

  /** The details of a pipeline in addition to its joins and scans, by name. */
  private def behind: Seq[(String, String)] = {
    val details = exchange.map("partitioned" -> _.described) ++
      getTagValue(StreamedExchanges.Declined).map(reason => "partitions" -> s"in waves ($reason)") ++ filter.map(
        "filter" -> _.described) ++ grouping.map("groups" -> _.described) ++
      getTagValue(GroupedRows.Declined).map(reason => "groups" -> s"by Spark ($reason)") ++
      top.map("top" -> _.described) ++ getTagValue(TopRows.Declined).map(reason => "top" -> s"by Spark ($reason)") ++
      Option.when(settings.problems.nonEmpty)("options" -> settings.problems.mkString("; "))
    details.map { case (name, text) => name -> Redaction.redacted(text) }.toSeq
  }

  private def described(number: Int): String = {
    val join = joins(number)
    val ahead = if (inputs.mayNotFit(number)) ", built before the join because it may be larger" else ""
    s"${join.kind}, ${join.label}, algorithm ${join.algorithm}, build side: child ${number + 2}, at most ${org.apache.spark.util.Utils.bytesToString(
        join.maxBuildBytes)}$ahead, scan: ${inputs.describedBuild(number)}"
  }
}

private object PipelineDescription {

  /** The text about an operator. Plans are described also when a query only runs, so a failure must not fail the query:
    * `name` is returned with the reason.
    */
  def of(operator: PipelinedJoinExec, name: String, fate: Option[String])(text: PipelineDescription => String): String =
    Guarded("description")(text(new PipelineDescription(operator, operator.inputs, fate))).fold(
      reason => s"$name ($reason)",
      identity)
}
