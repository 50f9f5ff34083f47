package org.apache.spark.sql.sparkext.expressions

import org.apache.spark.sql.catalyst.expressions.{Expression, Literal}
import org.apache.spark.unsafe.types.UTF8String

/** A constant pattern of LIKE. */
private[sparkext] object LikePattern {
  private val Escape = '\\'
  private val Special = Set[Int]('%', '_', Escape)
  private val Replacement = 0xfffd // Java's replacement for invalid bytes

  def unapply(expression: Expression): Option[String] = expression match {
    case Literal(text: UTF8String, _) => Some(text.toString)
    case _ => None
  }

  /** The pattern with the workers' own escape character. None if Spark rejects the pattern, or if it may contain
    * invalid bytes.
    */
  def plain(pattern: String, escape: Char): Option[String] = {
    val characters = pattern.codePoints.toArray
    val written = new StringBuilder
    var at = 0
    while (at < characters.length) {
      val escapes = characters(at) == escape
      if (escapes) at += 1
      if (at == characters.length || characters(at) == Replacement) return None
      val character = characters(at)
      if (escapes && character != '%' && character != '_' && character != escape) return None
      if (Special(character) && (escapes || character == Escape)) written += Escape
      written.appendAll(Character.toChars(character))
      at += 1
    }
    Some(written.toString)
  }
}
