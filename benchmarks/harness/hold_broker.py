"""`python -m benchmarks.harness.hold_broker STORE [name=value ...]`: runs mqcore's broker under this interpreter.

Prints one JSON line with its address and pid when it serves, and ends it when standard input ends.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.rigs.mqcore_broker import MqcoreBroker


def main() -> None:
    """Hold the broker that the command line describes."""
    store_dir, *pairs = sys.argv[1:]
    with MqcoreBroker(Path(store_dir), dict(pair.partition("=")[::2] for pair in pairs)) as broker:
        print(json.dumps({"event": "ready", "address": broker.broker_address, "pid": broker.pid}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
