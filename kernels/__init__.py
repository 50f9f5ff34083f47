"""Numba kernels over Arrow buffers. They import numpy, numba and pyarrow, but neither Spark nor plans."""
