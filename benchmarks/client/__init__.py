"""The client library beside other clients: ``python -m benchmarks.client``, and bench_*.py for what needs no broker."""
