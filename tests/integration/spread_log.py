"""Messages over a commit log in several directories, sent to and read from mqcore's and Apache's brokers alike."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from mqcore.store.log.record import decode
from tests.compat import apache_requests as requests
from tests.rigs.wire import SUCCESS, is_dispatched
from tests.waiting import wait_until

TOPIC = "Spread"
FILE_SIZE = 65536
BODY_SIZE = 9_000
PER_FILE = 7  # messages of BODY_SIZE and a little more
DEADLINE_S = 60.0


def log_properties(root: Path, names: str = "abc", read_only: str = "", **others: str) -> dict[str, str]:
    """Return the properties of a broker with small files, its log in the directories *names* below *root*."""
    return {
        "mappedFileSizeCommitLog": str(FILE_SIZE),
        "mappedFileSizeConsumeQueue": "2000",
        "storePathCommitLog": ",".join(str(root / name) for name in names),
        "readOnlyCommitLogStorePaths": ",".join(str(root / name) for name in read_only),
        **others,
    }


def send(broker: str, numbers: range) -> None:
    """Send a message for each number to queue 0 of TOPIC; each must be acknowledged."""
    for number in numbers:
        body, properties = b"%d " % number + bytes(BODY_SIZE), {"UNIQ_KEY": f"U{number}", "WAIT": "true"}
        answer = requests.send(broker, TOPIC, 0, body, int(time.time() * 1000), properties)
        assert answer.code == SUCCESS, answer


def pulled(broker: str) -> list[int]:
    """Return the numbers of all messages that are still there, as a consumer gets them."""
    wait_until(lambda: is_dispatched(broker), DEADLINE_S, "everything is dispatched")
    records = requests.split_records(requests.pull_all(broker, TOPIC, 0))
    return [int(decode(record, 0, check_crc=False).body.split(b" ")[0]) for record in records]


def homes(root: Path, names: Iterable[str] = "abc") -> dict[str, list[int]]:
    """Return the numbers of the files in each directory."""
    return {name: sorted(int(path.name) // FILE_SIZE for path in (root / name).iterdir()) for name in names}


def numbers_of(found: dict[str, list[int]]) -> list[int]:
    """Return the numbers of the files in all directories, sorted."""
    return sorted(number for numbers in found.values() for number in numbers)


def is_in_turn(root: Path, message_count: int, names: str = "abc") -> bool:
    """Whether the files that so many messages fill lie where their numbers say."""
    found = {number: name for name, numbers in homes(root, names).items() for number in numbers}
    return all(found.get(number) == names[number % len(names)] for number in range(message_count // PER_FILE))
