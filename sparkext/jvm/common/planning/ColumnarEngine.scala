package org.apache.spark.sql.sparkext.planning

import org.apache.spark.SparkConf
import org.apache.spark.sql.internal.SQLConf

/** Engines that replace Spark's operators by native ones once a query is planned. */
object ColumnarEngine {

  /** `classes`: the engine's plugins and session extensions. `switches`: the keys that a session sets to false to use
    * Spark's operators.
    */
  private case class Engine(name: String, classes: Set[String], switches: Seq[String]) {
    def runs(loaded: Seq[String], session: SQLConf): Boolean =
      loaded.exists(classes) && !switches.exists(switch =>
        session.getConfString(switch, "true").trim.equalsIgnoreCase("false"))
  }

  private val Known = Seq(
    Engine(
      "Comet",
      Set("org.apache.spark.CometPlugin", "org.apache.comet.CometSparkSessionExtensions"),
      Seq("spark.comet.enabled")),
    Engine(
      "Gluten",
      Set("org.apache.gluten.GlutenPlugin", "io.glutenproject.GlutenPlugin"),
      Seq("spark.gluten.enabled")),
    Engine(
      "RAPIDS",
      Set("com.nvidia.spark.SQLPlugin", "com.nvidia.spark.rapids.SQLExecPlugin"),
      Seq("spark.rapids.sql.enabled")),
    Engine(
      "Auron",
      Set("org.apache.spark.sql.auron.AuronSparkSessionExtension"),
      Seq("spark.auron.enable", "spark.auron.enabled")),
    Engine(
      "Blaze",
      Set("org.apache.spark.sql.blaze.BlazeSparkSessionExtension"),
      Seq("spark.blaze.enable"))
  )

  /** The name of the engine that an application has loaded and a session has not switched off. */
  def of(application: SparkConf, session: SQLConf): Option[String] = {
    val loaded = Seq("spark.plugins", "spark.sql.extensions").flatMap(application.get(_, "").split(',')).map(_.trim)
    Known.find(_.runs(loaded, session)).map(_.name)
  }
}
