"""Brokers that are sent to while they are backed up, and what is in their files and comes out of them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from mqcore.admin.command_line import cli
from mqcore.store.reader import StoreReader
from tests.compat import apache_requests as requests
from tests.rigs import RunningBroker, wire
from tests.waiting import wait_until

DEADLINE_S = 120.0
TOPIC = "Kept"
QUEUES = 2


def mqcore(*arguments: object) -> tuple[int, str, str]:
    """Run ``mqcore`` in this process; exit code, standard output and standard error."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def back_up(target: Path, store: Path, *more: object) -> Any:
    code, out, err = mqcore("backup", target, "--store", store, "--output", "json", *more)
    assert code == 0, err
    return json.loads(out)


PAUSE_S = 0.002
"""Between two messages: a busy machine must not make the stores of these tests gigabytes."""


class Talker:
    """Sends as long as it runs, and remembers what was acknowledged: body by (queue, offset)."""

    def __init__(self, broker: RunningBroker, topic: str = TOPIC) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._broker = broker
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            body = b"%d " % number * (1 + number * 37 % 700)
            queue = number % QUEUES
            answer = requests.send(self._broker.broker_address, self._topic, queue, body, int(time.time() * 1000), {})
            if answer.code == wire.SUCCESS:
                self.acknowledged[(queue, int(answer.ext_fields["queueOffset"]))] = body
            number += 1
            self._stop.wait(PAUSE_S)

    def so_far(self) -> dict[tuple[int, int], bytes]:
        return dict(self.acknowledged)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def talking(broker: RunningBroker) -> Iterator[Talker]:
    talker = Talker(broker)
    try:
        yield talker
    finally:
        talker.close()


def stored(root: Path, topic: str = TOPIC) -> dict[tuple[int, int], bytes]:
    """Every message of the topic in the files at *root*: body by (queue, offset)."""
    found: dict[tuple[int, int], bytes] = {}
    with StoreReader(root) as reader:
        for batch in reader.batches(["queue_id", "queue_offset", "body"], topics=topic):
            columns = batch.to_dict()
            keys = zip(columns["queue_id"].tolist(), columns["queue_offset"].tolist(), strict=True)
            found.update(zip(keys, columns["body"], strict=True))
    return found


def served(broker: RunningBroker, topic: str, queues: int) -> dict[tuple[int, int], bytes]:
    """The same, as pulls give it."""
    found = {}
    for queue in range(queues):
        low, _ = requests.bounds(broker.broker_address, topic, queue)
        for at, record in enumerate(requests.split_records(requests.pull_all(broker.broker_address, topic, queue))):
            size = int.from_bytes(record[84:88], "big")
            found[(queue, low + at)] = bytes(record[88 : 88 + size])
    return found


def assert_holds(found: dict[tuple[int, int], bytes], acknowledged: dict[tuple[int, int], bytes]) -> None:
    missing = [key for key, body in acknowledged.items() if found.get(key) != body]
    assert not missing, f"{len(missing)} of {len(acknowledged)}, the first {min(missing)}"


def grow(talker: Talker, count: int) -> None:
    end = len(talker.acknowledged) + count
    wait_until(lambda: len(talker.acknowledged) >= end, DEADLINE_S, f"{count} more messages are acknowledged")
