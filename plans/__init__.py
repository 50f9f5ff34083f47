"""Decisions in pure Python: pipeline specs, algorithm choice, output sizes. They import neither Spark nor kernels."""
