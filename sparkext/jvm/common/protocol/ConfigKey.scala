package org.apache.spark.sql.sparkext.protocol

import java.util.Locale

import scala.util.Try

import org.json4s.JsonAST.JValue

import org.apache.spark.network.util.JavaUtils
import org.apache.spark.unsafe.types.UTF8String

/** One key of Python's registry (`sparkext/config.py`): its default, and its valid values. */
class ConfigKey private (data: JValue) {
  import Shared.formats

  val name: String = (data \ "name").extract[String]
  val default: String = (data \ "default").extract[String]

  /** The value that replaces a text that cannot be read. */
  val replacement: String = (data \ "replacement").extract[String]

  /** Whether only the application may set it. */
  val ofApplication: Boolean = (data \ "of_application").extract[Boolean]

  private val kind = (data \ "type").extract[String]
  private val expected = (data \ "expected").extract[String]
  private val choices = (data \ "choices").extract[Seq[String]]
  private val least = (data \ "least").extractOpt[BigDecimal]
  private val most = (data \ "most").extractOpt[BigDecimal]

  /** The value of a text, in one canonical spelling; or the reason why the key must not have it. */
  def read(text: String): Either[String, String] = {
    val trimmed = text.trim
    val found = kind match {
      case "text" if choices.isEmpty => Some(trimmed)
      case "text" => choices.find(_.equalsIgnoreCase(trimmed))
      case "boolean" => trimmed.toBooleanOption.map(_.toString)
      case _ => number(trimmed).filter(value => least.forall(value >= _) && most.forall(value <= _)).map(_ => trimmed)
    }
    found.toRight(problem(text, expected))
  }

  def problem(text: String, expected: String): String = Reason("INVALID_OPTION", name, text, expected)

  /** The number in a text, if it is one. */
  def number(text: String): Option[BigDecimal] = kind match {
    case "integer" => text.toLongOption.map(BigDecimal(_))
    case "byte size" => Try(JavaUtils.byteStringAsBytes(text)).toOption.map(BigDecimal(_))
    case "bit mask" if text.toLowerCase(Locale.ROOT).startsWith("0x") =>
      Try(BigDecimal(BigInt(text.drop(2), 16))).toOption
    case "bit mask" => Try(BigDecimal(BigInt(text))).toOption
    case _ => text.toDoubleOption.filter(java.lang.Double.isFinite).map(BigDecimal(_))
  }
}

object ConfigKey {
  val Prefix = "spark.sparkext."
  val All: Seq[ConfigKey] = Shared.json("options").children.map(new ConfigKey(_))

  private val named = All.map(key => key.name -> key).toMap

  def apply(name: String): ConfigKey = named(name)

  /** Why a name under the prefix has no effect, if it is not a key. Includes the most similar key, if at most half of
    * the letters differ.
    */
  def unknown(name: String): Option[String] = if (named.contains(name)) None
  else {
    val nearest = All.minBy(distance(name, _))
    val differs = distance(name, nearest)
    val longest = math.max(short(name).length, short(nearest.name).length)
    Some(
      if (2 * differs <= longest) s"$name: unknown key, did you mean ${nearest.name}?"
      else s"$name: unknown key, available: ${All.map(_.name).mkString(", ")}")
  }

  private def distance(name: String, key: ConfigKey): Int =
    UTF8String.fromString(short(name)).levenshteinDistance(UTF8String.fromString(short(key.name)))

  private def short(name: String): String = name.stripPrefix(Prefix).toLowerCase(Locale.ROOT)
}
