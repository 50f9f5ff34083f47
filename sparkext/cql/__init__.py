"""CQL: continuous queries over streams, recursive ones included (`docs/papers.md` 2). It knows no Spark.

text ──▶ parser ──▶ syntax ──▶ binder ──▶ queries ──▶ graph: delays, order, partitioning ──▶ code ──▶ engine
"""
