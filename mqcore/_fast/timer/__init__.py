"""Kernels of the timer worker: wheel, timer log, what is due, and the loop."""
