package org.apache.spark.sql.sparkext

import scala.util.Using

import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonAST.{JObject, JValue}
import org.json4s.jackson.JsonMethods.parse

/** What Python and Scala both have to know. It is written once, in Python, and the build writes it into the jar
  * (`sparkext/spark/jar.py`).
  */
object Shared {
  implicit val formats: Formats = DefaultFormats

  private val all: JValue = Using.resource(getClass.getResourceAsStream("/io/sparkext/shared.json"))(parse(_))

  /** What has this name. */
  def apply(name: String): JValue = all \ name

  /** Its fields, in their order. */
  def fields(name: String): Seq[(String, JValue)] = Shared(name) match {
    case JObject(fields) => fields
    case other => throw new IllegalStateException(s"$name: $other")
  }

  /** The version of the package that this jar belongs to. */
  val PackageVersion: String = Shared("version").extract[String]

  /** Bytes of address space that a worker takes at least. */
  val LeastAddressSpace: Long = Shared("least_address_space").extract[Long]
}
