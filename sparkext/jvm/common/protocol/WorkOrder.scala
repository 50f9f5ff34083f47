package org.apache.spark.sql.sparkext.protocol

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.HexFormat

import scala.collection.immutable.SortedMap

import org.json4s.JsonAST._
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.sparkext.build_sides.PublishedBuildSide
import org.apache.spark.sql.sparkext.joins.{ColumnRef, PlannedJoin, PlannedTop}
import org.apache.spark.sql.sparkext.scan.FusedScan
import org.apache.spark.sql.sparkext.shuffle.{OutgoingRows, PartitionRun, Sent}
import org.apache.spark.sql.types.StructType

/** The work order of a worker, as JSON for `sparkext.worker.work_order.make`: the pipeline, its settings, and the
  * locations of its build sides.
  */
object WorkOrder {

  /** Python's `PipelineSpec`. */
  def spec(
      joins: Seq[PlannedJoin],
      origins: Seq[ColumnRef],
      filter: Option[JValue],
      aggregations: Option[JValue],
      top: Option[PlannedTop],
      probeColumns: Int,
      ownsBuild: Boolean,
      owner: Option[Int]): JValue =
    ("version" -> Shared[Int]("spec_version")) ~
      ("probe_columns" -> probeColumns) ~
      ("owner_columns" -> (if (ownsBuild) 1 else 0)) ~
      ("owned_by" -> owner) ~
      ("joins" -> joins.map { join =>
        ("how" -> join.kind) ~
          ("algorithm" -> join.algorithm) ~
          ("probe_ordered" -> join.probeOrdered) ~
          ("label" -> join.label) ~
          ("condition" -> join.condition) ~
          ("theta" -> join.theta) ~
          ("guard" -> join.guard) ~
          ("as_of" -> join.asOf.map { near =>
            ("probe" -> reference(near.probe)) ~
              ("build" -> near.build) ~
              ("type" -> near.keyType) ~
              ("direction" -> near.direction) ~
              ("exact" -> near.exact) ~
              ("tolerance" -> near.tolerance)
          }) ~
          ("keys" -> join.keys.map { key =>
            ("probe" -> reference(key.probe)) ~
              ("build" -> key.build) ~
              ("type" -> key.keyType) ~
              ("null_safe" -> key.nullSafe)
          }) ~
          ("ranges" -> join.ranges.map { range =>
            ("probe" -> reference(range.probe)) ~
              ("op" -> range.operator) ~
              ("build" -> range.build) ~
              ("type" -> range.keyType)
          })
      }) ~
      ("outputs" -> origins.map(reference)) ~
      ("filter" -> filter) ~
      ("aggregations" -> aggregations.getOrElse(JArray(Nil))) ~
      ("top" -> top.map { first =>
        ("count" -> first.count) ~
          ("order" -> first.order.map { by =>
            ("output" -> by.output) ~ ("ascending" -> by.ascending) ~ ("nulls_first" -> by.nullsFirst)
          })
      })

  /** The pickled call `sparkext.worker.work_order.make(order)`, which returns the `(function, return type)` of workers.
    */
  def command(
      spec: JValue,
      settings: Map[String, String],
      output: StructType,
      scan: Option[FusedScan],
      made: Option[JValue],
      builds: Seq[JValue],
      run: String,
      tasksSharing: Option[Int],
      received: Option[JValue],
      outgoing: Option[OutgoingRows]): Array[Byte] = {
    val order = common(spec, settings, output, tasksSharing) ~
      ("scan" -> scan.map(scanned)) ~
      ("made" -> made) ~
      ("builds" -> builds) ~
      ("run" -> run) ~
      ("received" -> received) ~
      ("outgoing" -> outgoing.map(sent))
    pickledCall("make", order)
  }

  /** The pickled call `sparkext.worker.work_order.build(order)`, which builds the index of one join ahead, or
    * materialises the source. Entries of `builds` that workers do not materialise are null.
    */
  def ahead(
      spec: JValue,
      settings: Map[String, String],
      output: StructType,
      number: Int,
      builds: Seq[JValue],
      made: Option[JValue],
      tasksSharing: Option[Int]): Array[Byte] = {
    val order =
      common(spec, settings, output, tasksSharing) ~ ("number" -> number) ~ ("builds" -> builds) ~ ("made" -> made)
    pickledCall("build", order)
  }

  /** The rows that are received from other tasks: the columns of both sides. `streamed`: set if they are received while
    * the other tasks run.
    */
  def received(probe: StructType, builds: Map[Int, StructType], ownsBuild: Boolean, streamed: Option[JValue]): JValue =
    ("probe" -> probe.jsonValue) ~
      ("streamed" -> streamed) ~
      ("builds" -> JObject(builds.toList.sortBy(_._1).map { case (number, schema) =>
        number.toString -> schema.jsonValue
      })) ~
      ("owns_build" -> ownsBuild)

  private def sent(rows: OutgoingRows): JValue =
    ("schema" -> rows.schema.jsonValue) ~
      ("keys" -> rows.keys.map(key =>
        ("column" -> key.column) ~ ("type" -> key.keyType) ~ ("null_safe" -> key.nullSafe))) ~
      ("buckets" -> rows.buckets) ~
      ("keeps_unmatchable" -> rows.keepsUnmatchable) ~
      rows.transport.order

  /** The pickled call `sparkext.worker.work_order.plan(order)`, which plans the partitions of a join. */
  def plan(
      probe: Sent,
      builds: Seq[(Sent, Boolean)],
      ran: Seq[PartitionRun],
      cores: Int,
      needsProbe: Boolean,
      needsBuild: Boolean,
      mostShares: Int,
      mostBuildShares: Option[Int],
      settings: Map[String, String],
      output: StructType): Array[Byte] = {
    val order = ("package" -> Shared.PackageVersion) ~
      ("settings" -> SortedMap.from(settings)) ~
      ("probe" -> counts(probe, paired = true)) ~
      ("builds" -> builds.map { case (sent, paired) => counts(sent, paired) }) ~
      ("ran" -> ran.map(partition => Seq(partition.received, partition.met, partition.took))) ~
      ("most_shares" -> mostShares) ~
      ("most_build_shares" -> mostBuildShares.fold[JValue](JNull)(JInt(_))) ~
      ("cores" -> cores) ~
      ("needs_probe" -> needsProbe) ~
      ("needs_build" -> needsBuild) ~
      ("output" -> output.jsonValue)
    pickledCall("plan", order)
  }

  private def counts(sent: Sent, paired: Boolean): JObject =
    ("rows" -> hexadecimal(sent.rows)) ~
      ("bytes" -> hexadecimal(sent.bytes)) ~
      ("sizes" -> hexadecimal(sent.sizes)) ~
      ("sketch" -> hexadecimal(sent.sketch)) ~
      ("maps" -> sent.maps) ~
      ("paired" -> paired)

  private def hexadecimal(numbers: Array[Long]): String = {
    val bytes = ByteBuffer.allocate(numbers.length * java.lang.Long.BYTES).order(ByteOrder.LITTLE_ENDIAN)
    numbers.foreach(bytes.putLong)
    HexFormat.of.formatHex(bytes.array)
  }

  private def common(
      spec: JValue,
      settings: Map[String, String],
      output: StructType,
      tasksSharing: Option[Int]): JObject =
    ("package" -> Shared.PackageVersion) ~
      ("spec" -> spec) ~
      ("settings" -> SortedMap.from(settings)) ~
      ("output" -> output.jsonValue) ~
      ("tasks_sharing" -> tasksSharing)

  /** A build side in the local file of a broadcast. */
  def broadcast(side: PublishedBuildSide, schema: StructType): JValue =
    ("broadcast" -> side.broadcast.id) ~ ("crc" -> side.crc) ~ ("schema" -> schema.jsonValue)

  /** A build side that workers read from files. */
  def read(scan: FusedScan, maxBytes: Long): JValue =
    ("scan" -> scanned(scan)) ~
      ("splits" -> scan.files) ~
      ("max_bytes" -> maxBytes)

  /** A build side that a pipeline of its own derives: Python's `DerivedRows`. */
  def pipelined(
      spec: JValue,
      scan: FusedScan,
      builds: Seq[JValue],
      emitted: StructType,
      projection: JValue,
      schema: StructType,
      maxBytes: Long): JValue =
    ("scan" -> scanned(scan)) ~
      ("pipeline" ->
        ("spec" -> spec) ~
        ("parts" -> scan.partitions.map(scan.splits)) ~
        ("builds" -> builds) ~
        ("emitted" -> emitted.jsonValue) ~
        ("projection" -> projection)) ~
      ("schema" -> schema.jsonValue) ~
      ("max_bytes" -> maxBytes)

  /** Python's `Projection`. */
  def projection(filter: Option[JValue], columns: Seq[JValue]): JValue = ("filter" -> filter) ~ ("columns" -> columns)

  private def scanned(scan: FusedScan): JObject =
    ("spec" -> scan.spec) ~ ("schema" -> scan.schema.jsonValue) ~ ("buckets" -> scan.buckets) ~ ("calendars" -> scan.calendars)

  private def reference(ref: ColumnRef): JObject =
    ("source" -> ref.source) ~ ("column" -> ref.column) ~ ("otherwise" -> JNull) ~ ("type" -> JNull)

  /** Six opcodes: the function by name, a mark, a text, the tuple of arguments since the mark, the call, the end. */
  private def pickledCall(function: String, order: JValue): Array[Byte] = {
    val text = compact(render(order)).getBytes(UTF_8)
    val bytes = new ByteArrayOutputStream(text.length + 64)
    bytes.write(s"csparkext.worker.work_order\n$function\n(X".getBytes(UTF_8))
    bytes.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(text.length).array())
    bytes.write(text)
    bytes.write("tR.".getBytes(UTF_8))
    bytes.toByteArray
  }
}
