package org.apache.spark.sql.sparkext.build_sides

import java.nio.file.{Files, Path}
import java.nio.file.attribute.{FileAttribute, PosixFilePermission, PosixFilePermissions}
import java.util.{Set => JavaSet}

import org.apache.spark.{SparkEnv, TaskContext}

/** Attributes of new files and folders that only this user can access, from creation on and whatever the umask. */
private[sparkext] object OwnFiles {
  val Folder: FileAttribute[JavaSet[PosixFilePermission]] = only("rwx------")
  val File: FileAttribute[JavaSet[PosixFilePermission]] = only("rw-------")

  /** The file of a run by which a task and its worker exchange messages. Its folder is created if it does not exist. */
  def besideTask(run: String, task: TaskContext, name: String): Path = {
    val folder = SparkEnv.get.blockManager.diskBlockManager.localDirs.head.toPath.resolve("sparkext")
    Files.createDirectories(folder, Folder)
    folder.resolve(s"$run.${task.taskAttemptId()}.$name")
  }

  private def only(permissions: String) =
    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(permissions))
}
