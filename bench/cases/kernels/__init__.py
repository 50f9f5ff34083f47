"""Kernels and pipelines in memory."""
