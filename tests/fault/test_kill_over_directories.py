"""SIGKILL while a commit log of small files rolls over three directories, from one to the next all the time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqcore.store.log.places import LogPlaces
from tests.fault.history import wait_for_acks
from tests.fault.rig import (
    DEADLINE_S,
    Witness,
    await_resumption,
    check_history,
    check_store,
    kill_worker,
    new_history,
    seeded,
    seeds,
    start_broker,
    under_load,
)

pytestmark = pytest.mark.fault

MAKERS = ("send", "flush")  # who makes commit log files
ROUNDS = 2
ACKS = 800
"""In each round: together they fill more files than there are directories, whatever sizes the bodies have."""


def test_no_file_is_made_twice_and_nothing_acknowledged_is_lost(tmp_path: Path, flush_mode: dict[str, str]) -> None:
    seed = seeds(1)[0]
    rng = seeded(seed)
    places = LogPlaces.of(tmp_path / name for name in "abc")
    log = {"storePathCommitLog": ",".join(map(str, places.directories))}
    with start_broker(tmp_path, {**flush_mode, **log}) as broker:
        history = new_history(broker, "Spread", f"spread{seed}")
        for number in range(ROUNDS):
            with under_load(history, broker, first=10 * number):
                for kind in MAKERS:
                    time.sleep(rng.uniform(0, 0.3))
                    witness = Witness()
                    kill_worker(broker, kind)
                    await_resumption(history, time.monotonic(), witness)
                wait_for_acks(history, ACKS, DEADLINE_S)
                broker.kill()
            broker.start_again()
            check_history(history, broker)
        broker.stop()
        check_store(history, broker.store_dir, places=places)
    names = [path.name for directory in places.directories for path in directory.iterdir()]
    assert len(names) == len(set(names))
    assert len(names) > len(places.directories)
