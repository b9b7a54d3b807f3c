"""Makes data/apache_store.tar.xz: what Apache's broker wrote, stopped cleanly and killed, and what it answers.

Run as ``python -m tests.compat.make_apache_store``; it needs java, mvn and a minute. The archive holds ``clean`` and
``killed``, two store directories with the modification times of their files, and ``answers.json``: the broker's own
answers on the clean store, and the offsets of what it acknowledged before it was killed.
"""

from __future__ import annotations

import json
import random
import shutil
import tarfile
import tempfile
import time
from pathlib import Path

from tests.compat import apache_requests as requests
from tests.rigs import ApacheServer
from tests.rigs.maven import RELEASES
from tests.rigs.wire import SUCCESS, Answer, create_topic
from tests.waiting import wait_until

ARCHIVE = Path(__file__).with_name("data") / "apache_store.tar.xz"
RELEASE = "4.9.8"
GEOMETRY = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "1000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "100",
    # Nothing is deleted or checked in the background while files are copied.
    "transactionCheckInterval": "3600000",
}
SEED = 20260401
QUEUES = [("Orders", 0), ("Orders", 1), ("Events", 0), ("SCHEDULE_TOPIC_XXXX", 17), ("RMQ_SYS_TRANS_HALF_TOPIC", 0),
          ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)]  # fmt: skip
TAGS = ("TagA", "TagB", "標籤", "müllerstraße", "")


def stored(answer: Answer) -> list[int]:
    """Return the physical offsets of what was stored."""
    if answer.code != SUCCESS:
        raise AssertionError(f"not stored: code {answer.code}, {answer.remark}")
    return [int(offset_id[-16:], 16) for offset_id in answer.ext_fields["msgId"].split(",")]


class Producer:
    """Sends the messages of the fixture, the same ones every time but for times and hosts."""

    def __init__(self, broker: str, generator: random.Random) -> None:
        self.broker = broker
        self.generator = generator
        self.offsets: list[int] = []
        self.keys: list[tuple[str, str]] = []
        self.number = 0

    def _properties(self, topic: str) -> dict[str, str]:
        self.number += 1
        unique_key, keys = f"U{self.number:06d}", f"k{self.number % 17} all{self.number % 3}"
        self.keys += [(topic, unique_key), (topic, f"k{self.number % 17}")]
        tag = self.generator.choice(TAGS)
        return {"KEYS": keys, "UNIQ_KEY": unique_key, "WAIT": "true"} | ({"TAGS": tag} if tag else {})

    def _send(self, topic: str, queue_id: int, properties: dict[str, str], **more: int) -> Answer:
        body = self.generator.randbytes(self.generator.choice((0, 1, 20, 300, 1500)))
        time.sleep(0.002)  # store times are in milliseconds: let them differ
        answer = requests.send(
            self.broker, topic, queue_id, body, int(time.time() * 1000), self._properties(topic) | properties, **more
        )
        self.offsets += stored(answer)
        return answer

    def plain(self, count: int) -> None:
        for _ in range(count):
            topic, queue_id = self.generator.choice((("Orders", 0), ("Orders", 1), ("Events", 0)))
            self._send(topic, queue_id, {}, flag=self.generator.randrange(-5, 5))

    def delayed(self) -> None:
        self._send("Orders", 0, {"DELAY": "18"})  # two hours: nothing is delivered meanwhile

    def batch(self) -> None:
        members = [(number, b"member %d" % number, {"UNIQ_KEY": f"B{number}", "TAGS": "TagA"}) for number in range(5)]
        body = requests.batch_body(members)
        self.offsets += stored(requests.send_batch(self.broker, "Events", 0, body, int(time.time() * 1000)))

    def transaction(self, outcome: int) -> None:
        half = self._send("Orders", 1, {"TRAN_MSG": "true", "PGROUP": requests.PRODUCER_GROUP}, sys_flag=4)
        unique_key = f"U{self.number:06d}"
        done = requests.end_transaction(self.broker, half, unique_key, outcome)
        if done.code != SUCCESS:
            raise AssertionError(f"transaction not ended: code {done.code}, {done.remark}")

    def everything(self) -> None:
        for _ in range(3):
            self.plain(40)
            self.delayed()
            self.batch()
            self.transaction(8)
            self.transaction(12)


def await_dispatched(broker: str, offsets: list[int]) -> None:
    """Wait until the newest message can be pulled, and with it all before."""
    last = max(offsets)
    wait_until(lambda: requests.view(broker, last) != b"", deadline_s=30, describe="the last message can be read")
    time.sleep(2)  # the consume queues follow within milliseconds; there is no request that says so


def answers_of(broker: str, producer: Producer) -> dict[str, object]:
    """Ask the broker what our reader will be asked."""
    times: dict[str, list[list[int]]] = {}
    store_times = sorted(int.from_bytes(requests.view(broker, offset)[56:64], "big") for offset in producer.offsets)
    moments = [store_times[0] - 10_000, *store_times[:: len(store_times) // 20], store_times[-1] + 10_000]
    for topic, queue_id in QUEUES:
        found = [[moment, requests.offset_by_time(broker, topic, queue_id, moment)] for moment in moments]
        times[f"{topic}/{queue_id}"] = found
    return {
        "bounds": {f"{topic}/{queue_id}": requests.bounds(broker, topic, queue_id) for topic, queue_id in QUEUES},
        "times": times,
        "keys": {
            f"{topic}#{key}": [int.from_bytes(r[28:36], "big") for r in records]
            for topic, key in dict.fromkeys(producer.keys)
            if (records := list(requests.split_records(requests.query(broker, topic, key))))
        },
    }


def make(directory: Path) -> None:
    store = directory / "store"
    generator = random.Random(SEED)
    with ApacheServer(RELEASE, store, GEOMETRY) as server:
        create_topic(server.broker_address, "Orders", queues=2)
        create_topic(server.broker_address, "Events", queues=1)
        producer = Producer(server.broker_address, generator)
        producer.everything()
        await_dispatched(server.broker_address, producer.offsets)
        server.stop()
    shutil.copytree(store, directory / "clean")
    with ApacheServer(RELEASE, store, GEOMETRY) as server:
        # File times count in the search by time: ask before anything new is written.
        answers = answers_of(server.broker_address, producer)
        later = Producer(server.broker_address, generator)
        later.everything()
        await_dispatched(server.broker_address, later.offsets)
        server.kill()
    shutil.copytree(store, directory / "killed")
    answers |= {"clean_offsets": producer.offsets, "killed_offsets": later.offsets, "geometry": GEOMETRY}
    answers["server_version"] = RELEASES[RELEASE].server_version
    (directory / "answers.json").write_text(json.dumps(answers, ensure_ascii=False))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make(directory)
        ARCHIVE.parent.mkdir(exist_ok=True)
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for part in ("clean", "killed", "answers.json"):
                archive.add(directory / part, part)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
