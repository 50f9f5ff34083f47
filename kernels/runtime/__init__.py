"""The decorators of kernels, their machine code and threads."""
