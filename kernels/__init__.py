"""Numba kernels over Arrow buffers. Knows numpy, numba and pyarrow; neither Spark nor plans."""
