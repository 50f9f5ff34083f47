package org.apache.spark.sql.sparkext.build_sides

import java.io.{File, FileInputStream, OutputStream}
import java.lang.ref.Cleaner
import java.nio.channels.{Channels, FileChannel}
import java.nio.file.{Files, Paths}
import java.nio.file.StandardCopyOption.REPLACE_EXISTING
import java.nio.file.StandardOpenOption.{CREATE_NEW, READ, WRITE}
import java.util.{Set => JavaSet, UUID}
import java.util.zip.{CRC32, CheckedInputStream}

import scala.util.Using

import org.apache.spark.SparkContext
import org.apache.spark.api.python.PythonBroadcast
import org.apache.spark.util.{ShutdownHookManager, Utils}

/** The file on the driver to which a build side is written, and which a broadcast then sends. Only this user can access
  * it. It is removed when the process ends, if not before.
  */
private object BuildSideFile {
  val BufferBytes: Int = 1 << 20

  /** The path of a file that does not exist yet. */
  def unused(context: SparkContext): File = new File(folder(context), UUID.randomUUID().toString)

  def created(file: File): OutputStream = Channels.newOutputStream(opened(file))

  /** Removes the file when the broadcast's content is no longer referenced, or earlier through the returned handle. */
  def removedWith(content: PythonBroadcast, file: File): Cleaner.Cleanable =
    cleaner.register(content, new RemoveWithSiblings(file))

  def crcOf(file: File): Long = {
    val sum = new CRC32
    Using.resource(new CheckedInputStream(new FileInputStream(file), sum)) { stream =>
      val buffer = new Array[Byte](BufferBytes)
      while (stream.read(buffer) >= 0) {}
    }
    sum.getValue
  }

  /** Sort the parts of a file by their numbers. `parts` has the number and the size of each part, in the order in which
    * the parts were written.
    *
    * Returns whether any part had to be moved.
    */
  def sort(file: File, header: Long, parts: Seq[(Int, Long)]): Boolean = {
    val starts = parts.scanLeft(header)(_ + _._2)
    val placed = parts.zip(starts).map { case ((number, size), start) => (number, start, size) }
    val unordered = placed != placed.sortBy(_._1)
    if (unordered) {
      val sorted = new File(s"${file.getPath}.sorted")
      try {
        Using.resource(FileChannel.open(file.toPath, READ)) { from =>
          Using.resource(opened(sorted)) { to =>
            ((-1, 0L, header) +: placed.sortBy(_._1)).foreach { case (_, start, size) =>
              var copied = 0L
              while (copied < size) copied += from.transferTo(start + copied, size - copied, to)
            }
          }
        }
        Files.move(sorted.toPath, file.toPath, REPLACE_EXISTING)
      } finally sorted.delete()
    }
    unordered
  }

  private def opened(file: File): FileChannel =
    FileChannel.open(file.toPath, JavaSet.of(CREATE_NEW, WRITE), OwnFiles.File)

  private val cleaner = Cleaner.create()

  private var folderOfApplication: Option[(String, File)] = None

  /** This application's folder for build sides on the driver, which no other user can enter. It is removed when the
    * process ends.
    */
  private def folder(context: SparkContext): File = synchronized {
    folderOfApplication.collect {
      case (application, folder) if application == context.applicationId => folder
    }.getOrElse {
      folderOfApplication.foreach { case (_, stale) => Utils.deleteRecursively(stale) }
      val folder =
        Files.createTempDirectory(Paths.get(Utils.getLocalDir(context.getConf)), "sparkext-", OwnFiles.Folder).toFile
      ShutdownHookManager.registerShutdownDeleteDir(folder)
      folderOfApplication = Some(context.applicationId -> folder)
      folder
    }
  }

  /** Removes a build file and the files that workers have created for it: the index, its lock, reports. This task must
    * not reference the broadcast: otherwise the broadcast's content would never be released.
    */
  private class RemoveWithSiblings(file: File) extends Runnable {
    override def run(): Unit = {
      val siblings = file.getParentFile.listFiles((_, name) => name.startsWith(file.getName + "."))
      Option(siblings).toSeq.flatten.foreach(_.delete())
      file.delete()
    }
  }
}
