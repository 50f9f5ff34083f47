"""Decisions in pure Python: pipeline specs, algorithm choice, output sizes. Neither Spark nor kernels."""
