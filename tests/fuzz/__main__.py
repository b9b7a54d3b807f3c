"""``python -m tests.fuzz``: play inputs against the sanitized build."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.playing import environment, missing, play, replay
from tests.fuzz.seeds import SEEDS, TARGETS

TWINS_END = "_twins"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--inputs", type=float, default=1e7, help="over all targets (default 1e7)")
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"), help="play one input that was found")
    options = parser.parse_args()
    if unknown := {*options.targets} - {*SEEDS}:
        parser.error(f"no such target: got {', '.join(sorted(unknown))}, wanted some of {', '.join(TARGETS)}")
    return options


def main() -> int:
    options = arguments()
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    if options.replay:
        said = replay(options.replay[0], Path(options.replay[1]))
        print(said or "holds")
        return int(bool(said))
    targets = options.targets or list(TARGETS)
    # Of twins one is in Python, which takes a hundred times as long.
    weights = {name: 1 if name.endswith(TWINS_END) else 100 for name in targets}
    counts = {name: int(options.inputs * weight / sum(weights.values())) for name, weight in weights.items()}
    print(f"seed {options.seed}:", ", ".join(f"{name} {count:,}" for name, count in counts.items()), flush=True)
    environment()  # what it makes is made once, before threads ask for it
    began = time.monotonic()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        findings = [found for found in pool.map(lambda name: play(name, counts[name], options.seed), targets) if found]
    print(
        *findings,
        f"{sum(counts.values()):,} inputs in {time.monotonic() - began:.0f} s, {len(findings)} found",
        sep="\n",
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
