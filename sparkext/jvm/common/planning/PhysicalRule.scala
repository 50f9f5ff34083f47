package org.apache.spark.sql.sparkext.planning

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}

/** A rule on physical plans. If it fails, the plan stays unchanged. `part` names the rule in the log. */
abstract class PhysicalRule(part: String) extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = Guarded(part)(changed(plan)).getOrElse(plan)

  protected def changed(plan: SparkPlan): SparkPlan
}

/** The rules that Spark runs when it inserts conversions between rows and columns, before and after them. */
object ColumnarRules extends ColumnarRule {
  override def preColumnarTransitions: Rule[SparkPlan] = TopRows

  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan =
      Seq(OwnBuilds, StreamedExchanges, RowsInPlace).foldLeft(plan)((changed, rule) => rule(changed))
  }
}
