package org.apache.spark.sql.sparkext.expressions

import java.util.Locale

import com.ibm.icu.lang.{UCharacter, UProperty}

import org.apache.spark.sql.internal.SQLConf

/** The letters that UPPER and LOWER replace, and their replacements, by the library that Spark uses.
  *
  * One line for each letter beyond ASCII that changes: the letter, and its replacement. LOWER depends on whether a
  * sigma ends a word, so two lines follow: the letters that have cases, and the characters that are skipped between
  * them. These lines consist of ranges, each written as its first and last character.
  */
private[sparkext] object CaseMappings {
  private val Sensitive = Set("az", "el", "hy", "lt", "nl", "tr") // their replacements depend on the context
  private val Ascii = 0x80

  /** Whether each letter is replaced independently. Not so in some languages, or if Java's own replacements are
    * configured.
    */
  def areThoseOfLetters: Boolean =
    SQLConf.get.getConf(SQLConf.ICU_CASE_MAPPINGS_ENABLED) && !Sensitive(Locale.getDefault.getLanguage)

  lazy val upper: String = changed(UCharacter.toUpperCase)

  lazy val lower: String =
    Seq(changed(UCharacter.toLowerCase), having(UProperty.CASED), having(UProperty.CASE_IGNORABLE)).mkString("\n\n")

  private def characters: Iterator[Int] =
    (0 to Character.MAX_CODE_POINT).iterator.filterNot(code =>
      code >= Character.MIN_SURROGATE && code <= Character.MAX_SURROGATE)

  private def changed(mapping: String => String): String =
    characters.filter(_ >= Ascii).map(Character.toString).filter(letter => mapping(letter) != letter)
      .map(letter => letter + mapping(letter)).mkString("\n")

  /** The characters with a property, as ranges. No line break is among them. */
  private def having(property: Int): String = {
    val ranges = new StringBuilder
    var previous = -2
    characters.filter(UCharacter.hasBinaryProperty(_, property)).foreach { code =>
      if (code != previous + 1) {
        if (previous >= 0) ranges.append(Character.toString(previous))
        ranges.append(Character.toString(code))
      }
      previous = code
    }
    ranges.append(Character.toString(previous)).toString
  }
}
