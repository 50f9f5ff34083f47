package org.apache.spark.sql.sparkext

import java.nio.file.{Files, Paths}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.json4s.JsonAST._

import scala.util.Try

/** A file as it was when this was asked for. */
case class FileIdentity(path: Path, modified: Long, size: Long, status: Map[String, AnyRef])

/** From where workers read files: local disks, and buckets that Spark reads through its S3A connector. Whatever of a bucket's
  * settings they would not follow is a reason to leave the files to Spark.
  */
object FileStores {
  private val Local = "file"
  private val Status = "unix:ino,size,lastModifiedTime,ctime"
  private val Connector = "org.apache.hadoop.fs.s3a.S3AFileSystem"

  /** How a worker is told where a file lies: Python's `file_stores` takes it apart. */
  def location(path: Path): String = {
    val uri = path.toUri
    if (uri.getScheme == Local) uri.getPath else s"${uri.getScheme}://${uri.getAuthority}${uri.getPath}"
  }

  /** What changes when the file is replaced: as much as Python's `file_identity` knows of a local one, and of others what
    * Spark's listing has, their time and size. Where the system tells less of a local file, that counts for it, too.
    */
  def identity(file: Path, modified: Long, size: Long): FileIdentity = {
    val status = if (file.toUri.getScheme == Local) Try(Files.readAttributes(Paths.get(file.toUri.getPath), Status)).toOption else None
    FileIdentity(file, modified, size, status.map(_.asScala.toMap).getOrElse(Map.empty))
  }

  /** Python's `Bucket`s that these files lie in; or why workers do not read them. Local files need no settings. */
  def buckets(files: Seq[Path], settings: => Configuration): Either[String, Seq[JObject]] = {
    lazy val hadoop = settings
    val remote = files.map(_.toUri).filter(_.getScheme != Local).map(uri => (uri.getScheme, uri.getAuthority)).distinct
    val found = remote.map { case (scheme, authority) =>
      // Hosts and ports beside a bucket's name are no matter of S3A.
      if (Try(FileSystem.getFileSystemClass(scheme, hadoop).getName).toOption.contains(Connector) && authority != null) {
        new S3Settings(authority, hadoop).bucket.left.map(reason => s"bucket $authority: $reason")
      } else Left(s"files that workers do not read: $scheme:")
    }
    found.collectFirst { case Left(reason) => reason }.toLeft(found.collect { case Right(bucket) => bucket })
  }
}
