package org.apache.spark.sql.sparkext.scan

import java.nio.file.{Files, Paths}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.json4s.JsonAST._

import scala.util.Try

import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}

/** A file as it was at the time of the request. */
case class FileIdentity(path: Path, modified: Long, size: Long, status: Map[String, AnyRef])

/** The stores from which workers read files: local disks, and buckets that Spark reads through its S3A connector. If a
  * bucket has settings that workers would not follow, its files are left to Spark.
  */
object FileStores {
  private val Local = "file"
  private val Status = "unix:ino,size,lastModifiedTime,ctime"
  private val Connector = "org.apache.hadoop.fs.s3a.S3AFileSystem"

  /** The location of a file in the form that Python's `file_stores` parses. */
  def location(path: Path): String = {
    val uri = path.toUri
    if (uri.getScheme == Local) uri.getPath else s"${uri.getScheme}://${uri.getAuthority}${uri.getPath}"
  }

  /** The attributes that change when the file is replaced: for a local file the same as in Python's `identify_file`,
    * for others the modification time and size in Spark's listing. The latter also identify a local file if the system
    * reports fewer attributes.
    */
  def identity(file: Path, modified: Long, size: Long): FileIdentity = {
    val status = if (file.toUri.getScheme == Local)
      Try(Files.readAttributes(Paths.get(file.toUri.getPath), Status)).toOption
    else None
    FileIdentity(file, modified, size, status.map(_.asScala.toMap).getOrElse(Map.empty))
  }

  /** Python's `Bucket`s that contain these files, or the reason why workers do not read them. Local files need no
    * settings.
    */
  def buckets(files: Seq[Path], settings: => Configuration): Either[String, Seq[JObject]] = {
    lazy val hadoop = settings
    val remote = files.map(_.toUri).filter(_.getScheme != Local).map(uri => (uri.getScheme, uri.getAuthority)).distinct
    Reasons.all(remote.map { case (scheme, authority) =>
      // S3A addresses have no host or port in addition to the bucket's name.
      if (Try(FileSystem.getFileSystemClass(scheme, hadoop).getName).toOption.contains(
          Connector) && authority != null) {
        new S3Settings(authority, hadoop).bucket.left.map(reason => Reason("BUCKET", authority, reason))
      } else Left(Reason("FILE_SCHEME", scheme))
    })
  }
}
