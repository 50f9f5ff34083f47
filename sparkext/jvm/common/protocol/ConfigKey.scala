package org.apache.spark.sql.sparkext

import java.util.Locale

import scala.util.Try

import org.json4s.JsonAST.JValue

import org.apache.spark.network.util.JavaUtils

/** One key of Python's registry (`sparkext/config.py`): its default, and what it may hold. */
class ConfigKey private (data: JValue) {
  import Shared.formats

  val name: String = (data \ "name").extract[String]
  val default: String = (data \ "default").extract[String]
  private val kind = (data \ "type").extract[String]
  private val expected = (data \ "expected").extract[String]
  private val choices = (data \ "choices").extract[Set[String]]
  private val least = (data \ "least").extractOpt[BigDecimal]
  private val most = (data \ "most").extractOpt[BigDecimal]

  /** Refuse a text that the key may not hold. */
  def check(text: String): Unit = kind match {
    case "boolean" => flag(text)
    case "text" => word(text)
    case _ => number(text)
  }

  def flag(text: String): Boolean = text.toLowerCase(Locale.ROOT).toBooleanOption.getOrElse(refuse(text))

  def word(text: String): String = if (choices.isEmpty || choices(text)) text else refuse(text)

  def number(text: String): BigDecimal =
    stated(text).filter(value => least.forall(value >= _) && most.forall(value <= _)).getOrElse(refuse(text))

  private def stated(text: String): Option[BigDecimal] = kind match {
    case "integer" => text.toLongOption.map(BigDecimal(_))
    case "byte size" => Try(JavaUtils.byteStringAsBytes(text)).toOption.map(BigDecimal(_))
    case "bit mask" if text.toLowerCase(Locale.ROOT).startsWith("0x") => Try(BigDecimal(BigInt(text.drop(2), 16))).toOption
    case "bit mask" => Try(BigDecimal(BigInt(text))).toOption
    case _ => text.toDoubleOption.filter(java.lang.Double.isFinite).map(BigDecimal(_))
  }

  def refuse(text: String, expected: String = expected): Nothing =
    throw new RefusedException(s"$name: got '$text', expected $expected")
}

object ConfigKey {
  val All: Seq[ConfigKey] = Shared("options").children.map(new ConfigKey(_))

  private val named = All.map(key => key.name -> key).toMap

  def apply(name: String): ConfigKey = named(name)
}
