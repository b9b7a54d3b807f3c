"""Fuzzers of what reads bytes of peers and files: kernels of the sanitized build, fed by chance and guided by coverage.

``make fuzz`` builds and plays; ``python -m tests.fuzz --help`` has the options. See CONTRIBUTING.md.
"""
