package org.apache.spark.sql.sparkext

import scala.util.matching.Regex

import org.apache.spark.api.python.PythonException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.errors.QueryExecutionErrors

/** Rows of workers that read files: where they fail to read one, the error is the one that Spark's own reader gives. */
class ReadFailures(rows: Iterator[InternalRow]) extends Iterator[InternalRow] {
  override def hasNext: Boolean = translated(rows.hasNext)
  override def next(): InternalRow = translated(rows.next())

  private def translated[T](step: => T): T =
    try step
    catch {
      case failure: PythonException =>
        throw ReadFailures.Told.findFirstMatchIn(failure.getMessage).map { told =>
          val path = told.group(1)
          if (told.group(2) == null) QueryExecutionErrors.cannotReadFilesError(failure, path)
          else QueryExecutionErrors.fileNotExistError(path, failure)
        }.getOrElse(failure)
    }
}

object ReadFailures {

  /** The message of Python's `FileReadError`. */
  private val Told: Regex = """FileReadError: cannot read ['"](.*)['"]: (no such file)?""".r
}
