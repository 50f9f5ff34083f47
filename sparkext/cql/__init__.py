"""CQL: continuous queries over streams, recursive ones included (`docs/papers.md` 2). It does not depend on Spark.

text ──▶ parser ──▶ syntax ──▶ binder ──▶ queries ──▶ graph: delays, order, partitioning ──▶ code ──▶ engine
"""
