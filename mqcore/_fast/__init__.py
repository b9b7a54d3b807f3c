"""Cython kernels; each has a plain Python twin under the same noun elsewhere in the package."""
