package org.apache.spark.sql.sparkext.shim

import org.apache.spark.Partitioner
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.shuffle.MapFiles
import org.apache.spark.sql.sparkext.shuffle.MapFiles.{Accounts, Sending}

/** The shuffle of rows that workers send. */
trait SendingShim {
  def sending(accounts: Accounts, to: Partitioner, files: MapFiles, conf: SQLConf): Sending =
    new Sending(
      accounts,
      to,
      shuffleWriterProcessor = files,
      _checksumMismatchFullRetryEnabled = conf.shuffleChecksumMismatchFullRetryEnabled,
      checksumMismatchQueryLevelRollbackEnabled = conf.shuffleChecksumMismatchQueryLevelRollbackEnabled
    )
}
