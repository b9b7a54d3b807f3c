"""The load generator and comparison harness: `python -m benchmarks.harness --help`."""
