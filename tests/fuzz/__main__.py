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
    each = int(options.inputs / len(targets))
    print(f"seed {options.seed}: {each:,} inputs for each of {', '.join(targets)}", flush=True)
    environment()  # what it makes is made once, before threads ask for it
    began = time.monotonic()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        findings = [found for found in pool.map(lambda name: play(name, each, options.seed), targets) if found]
    print(
        *findings,
        f"{each * len(targets):,} inputs in {time.monotonic() - began:.0f} s, {len(findings)} found",
        sep="\n",
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
