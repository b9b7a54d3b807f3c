"""The store of a broker that is running, and of one that was killed, read from its files."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from mqcore.store.reader import StoreReader
from tests.compat import apache_requests as requests
from tests.rigs import MqcoreBroker
from tests.rigs.wire import SUCCESS, create_topic
from tests.waiting import wait_until

TOPIC = "Live"
QUEUES = 4
SMALL_FILES = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000"}
DEADLINE_S = 60.0
# Files that the broker is making, or writing anew, have these names for a moment.
PASSING = shutil.ignore_patterns("*.making", "*.tmp")


class Producer(threading.Thread):
    """Sends numbered messages one after the other, and keeps where each that was acknowledged lies."""

    def __init__(self, broker: str) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.stored: list[tuple[int, bytes]] = []
        self.stop = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                body = b"message %d " % number * (number % 40)
                properties = {"TAGS": f"T{number % 3}", "UNIQ_KEY": f"U{number:08d}", "WAIT": "true"}
                born = int(time.time() * 1000)
                answer = requests.send(self.broker, TOPIC, number % QUEUES, body, born, properties)
                assert answer.code == SUCCESS, answer
                self.stored.append((int(answer.ext_fields["msgId"][-16:], 16), body))
                number += 1
        except (OSError, AssertionError) as error:
            self.error = error


def read(reader: StoreReader) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for batch in reader.batches(["physical_offset", "body"], topics=TOPIC):
        columns = batch.to_dict()
        found += zip(columns["physical_offset"].tolist(), columns["body"], strict=True)
    return found


def test_a_live_store_gives_what_was_acknowledged_and_a_killed_one_too(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", SMALL_FILES) as broker:
        create_topic(broker.broker_address, TOPIC, queues=QUEUES)
        producer = Producer(broker.broker_address)
        producer.start()
        wait_until(lambda: producer.stored or producer.error, DEADLINE_S, "a message is stored")
        with StoreReader(tmp_path / "store") as reader:
            for wanted in (50, 200, 400):
                wait_until(lambda: len(producer.stored) >= wanted or producer.error, DEADLINE_S, f"{wanted} stored")  # noqa: B023
                before = list(producer.stored)
                reader.refresh()
                found = read(reader)
                # Each once, in order, all that was acknowledged before, and what was so since.
                assert found[: len(before)] == before
                assert [place for place, _ in found] == sorted({place for place, _ in found})
                # The first files of new queues are made behind the messages, which were read without them.
                in_files = reader.queues.get(TOPIC, {}).values()
                assert sum(len(queue.units()) for queue in in_files) <= len(found)
                shutil.copytree(tmp_path / "store", tmp_path / f"backup{wanted}", ignore=PASSING)
        broker.kill()
        producer.stop.set()
        producer.join(DEADLINE_S)
        assert len(producer.stored) >= 400
        assert (tmp_path / "store" / "abort").exists()
        with StoreReader(tmp_path / "store") as reader:
            found = read(reader)
            assert found[: len(producer.stored)] == producer.stored
            assert len(found) <= len(producer.stored) + 1
        with StoreReader(tmp_path / "backup200") as reader:
            part = read(reader)
            assert len(part) >= 200
            assert part == found[: len(part)]
