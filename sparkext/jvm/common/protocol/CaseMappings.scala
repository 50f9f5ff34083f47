package org.apache.spark.sql.sparkext

import java.util.Locale

import com.ibm.icu.lang.{UCharacter, UProperty}

import org.apache.spark.sql.internal.SQLConf

/** Which letters UPPER and LOWER make of others, as the library has it that Spark uses.
  *
  * A line for each letter beyond ASCII that changes: the letter, and what becomes of it. LOWER, for which it matters whether a sigma
  * ends a word, has a line for letters with cases, and one for what is passed over between them: ranges, the first and the last.
  */
private[sparkext] object CaseMappings {
  private val Sensitive = Set("az", "el", "hy", "lt", "nl", "tr") // where letters depend on those around them
  private val Ascii = 0x80

  /** Whether each letter has its own: so it is but for some languages, and where Java's own mappings are asked for. */
  def areThoseOfLetters: Boolean =
    SQLConf.get.getConf(SQLConf.ICU_CASE_MAPPINGS_ENABLED) && !Sensitive(Locale.getDefault.getLanguage)

  lazy val upper: String = changed(UCharacter.toUpperCase)

  lazy val lower: String = Seq(changed(UCharacter.toLowerCase), having(UProperty.CASED), having(UProperty.CASE_IGNORABLE)).mkString("\n\n")

  private def characters: Iterator[Int] =
    (0 to Character.MAX_CODE_POINT).iterator.filterNot(code => code >= Character.MIN_SURROGATE && code <= Character.MAX_SURROGATE)

  private def changed(mapping: String => String): String =
    characters.filter(_ >= Ascii).map(Character.toString).filter(letter => mapping(letter) != letter)
      .map(letter => letter + mapping(letter)).mkString("\n")

  /** Ranges, as none of these is the end of a line. */
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
