# %% [markdown]
# # A tour of sparkext
#
# Joins that Spark does badly, run as pipelines in its Python workers: a **range join** that Spark would try pair by
# pair, and an **explosion** of matches that would take gigabytes, kept within a memory limit. It takes half a minute on
# two cores.
#
# ## Install
#
# You need Linux, Python 3.10 or later and Java 17 or later. In a clone of the repository:
#
# ```
# pip install ".[spark,progress]"
# python -m sparkext doctor
# ```
#
# `doctor` looks at Java, Spark, the workers' Python and the memory limits, and says what to do where something is
# missing.
#
# This page is made from `examples/tour.py`, which runs as a script as well: `python examples/tour.py`.

# %% [markdown]
# ## A session
#
# `configure` adds the session extension, so that plain SQL and `DataFrame.join` are planned as pipelines where that is
# cheaper. The memory limit is there for the second half of the tour: what a worker process may take for itself. Usually
# there is none to set, as the limits of the container and of the machine are followed.

# %%
import builtins
import shutil
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import sparkext

builder = SparkSession.builder.master("local[2]").config("spark.sparkext.memory.maxBytes", "220m")
spark = sparkext.configure(builder.config("spark.ui.enabled", "false")).getOrCreate()
show = getattr(builtins, "display", print)  # a notebook has a richer way to show things than a script

# %% [markdown]
# ## Some data
#
# Readings of a sensor, and episodes that last from one moment to another and overlap as they like.

# %%
folder = Path(tempfile.mkdtemp(prefix="sparkext-tour-"))
readings = spark.range(0, 200_000, 1, 4).selectExpr("id", "id * 5 AS at", "id % 977 AS value")
episodes = spark.range(1_000).selectExpr(
    "id AS episode", "id * 999 AS begins", "id * 999 + 200 + id * 7919 % 3000 AS ends"
)
for name, frame in {"readings": readings, "episodes": episodes}.items():
    frame.write.parquet(str(folder / name))
    spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)

# %% [markdown]
# ## A range join
#
# Which readings fall into which episodes? There is no equality in the condition, so Spark would compare each of the
# 200,000 readings with each of the 1,000 episodes. The pipeline orders the episodes once and finds the matches of a
# reading by searching. In the plan it stands as `PipelinedJoin`; `scan=fused` says that the workers read the files
# themselves, and `(fused)` that they do so for the episodes, too.

# %%
QUERY = "SELECT id, episode, value FROM readings JOIN episodes ON at >= begins AND at < ends"
spark.sql(QUERY).explain()


# %%
def result(mode: str) -> tuple[float, int, int]:
    """Seconds, rows and a checksum of the query, planned with pipelines (auto) or by Spark alone (off)."""
    spark.conf.set("spark.sparkext.mode", mode)
    started = time.perf_counter()
    [(rows, total)] = spark.sql(QUERY).selectExpr("count(*)", "sum(hash(id, episode, value))").collect()
    spark.conf.unset("spark.sparkext.mode")
    return time.perf_counter() - started, rows, total


result("off"), result("auto")  # once before: Spark compiles its plan, the workers load the kernels
sparks, ours = result("off"), result("auto")
assert ours[1:] == sparks[1:]
print(f"{ours[1]:,} rows, the same from both. Spark's own plan: {sparks[0]:.2f} s, the pipeline: {ours[0]:.2f} s")

# %% [markdown]
# ## An explosion, under a memory limit
#
# A join is as large as its keys say, and a few frequent keys can make billions of rows of it. Here each of 1,000 events
# finds 12,000 notes of a hundred bytes: 12 million rows, well over a gigabyte. Each worker may take 220 MiB,
# of which Python and the kernels need most before a single row is joined.
#
# Before each call an operator is given a budget of rows, from the memory that is free just then. It stops when that is
# spent, in the middle of a row's matches if need be, hands on what it has, and resumes there later.
#
# The hint asks for the pipeline. Written as a transform, this runs in any PySpark session, without the extension and
# through Spark Connect, too: `events.transform(sparkext.pipelined_join(notes, on="key"))`.

# %%
events = spark.range(0, 1_000, 1, 4).selectExpr("id AS event", "id % 10 AS key")
notes = spark.range(120_000).selectExpr("id % 10 AS key", "concat(id, repeat('.', 100)) AS note")
exploded = events.join(notes.hint("pipelined_join"), "key")
exploded.write.format("noop").mode("overwrite").save()

# %% [markdown]
# `report` tells what happened: per operator the build side and its index, the rows, and how budgets followed the free
# memory.

# %%
report = sparkext.report(exploded)
show(report)

# %% [markdown]
# The same as pandas, and every decision that was kept:

# %%
show(report.to_pandas()[["operator", "rows_in", "rows_out", "budget_min", "budget_max", "lowest_headroom"]])
show(report.decisions_to_pandas().tail(3))

# %%
most = max(task.peak_rss_bytes for task in report.tasks)
print(f"{report.joins[-1].rows_out:,} rows. The largest worker: {most / 2**20:,.0f} MiB, mapped files included")

# %% [markdown]
# ## What is left to Spark
#
# Not every join is one for a pipeline. `declined` lists the reasons of the joins that were left to Spark; `explain`
# shows the same reasons at the joins. Below, only Spark can evaluate the first condition, and the second join is so
# cheap that a pipeline would not pay.


# %%
def declined(frame: DataFrame) -> None:
    """Print the reasons."""
    for reason in sparkext.declined(frame):
        print("-", reason)


declined(spark.sql("SELECT * FROM readings JOIN episodes ON levenshtein(string(at), string(begins)) < 2"))
declined(spark.sql("SELECT * FROM readings JOIN episodes ON readings.id = episode"))

# %%
spark.stop()
shutil.rmtree(folder)
