"""Timers: how late a million of them are, and what they cost, beside Apache's broker.

    python -m benchmarks.timers [--count 1000000] [--rate 50000] [--apache] [--kill]

Messages are sent ahead (pipelined; each must be accepted), each with its time in TIMER_DELIVER_MS; then so many are due
in each second. Late is the store time of the delivered copy behind that time: what a consumer that waits sees, less a
pull. Apache's broker delivers by slots of a second: with --spread its times lie within them, by default at their ends,
where both are due at the same moment. With --kill the timer worker is killed every two seconds meanwhile. Every message
is counted.
"""

from __future__ import annotations

import argparse
import collections
import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.rigs.apache import SMALL, ApacheServer
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import GET_BROKER_RUNTIME_INFO, call

SEND_MESSAGE_V2 = 310
CHUNK = 500
IN_FLIGHT = 4  # chunks; RocketMQ refuses what waits longer than 200 ms in a queue of 10,000
ASK_TIMEOUT_S = 5.0
LOG_FILE_SIZE = 1 << 30
PROPERTIES = {
    "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
    "mappedFileSizeTimerLog": str(100 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 300_000),
    "maxMessageSize": str(4 << 20),
}


def frame(topic: str, queue_id: int, body: bytes, properties: str) -> bytes:
    header = json.dumps(
        {
            "code": SEND_MESSAGE_V2, "flag": 0, "language": "JAVA", "opaque": 1, "version": 409,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": {
                "a": "G", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1", "h": "0",
                "i": properties, "j": "0", "k": "false", "m": "false",
            },
        }
    ).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def frames(count: int, body: bytes, due: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Chunks of so many frames; the header is encoded once, and times have one width."""
    whole = frame("Timed", 9, body, f"UNIQ_KEY\x01{0:016d}\x02TIMER_DELIVER_MS\x01{0:013d}")
    before, middle, after = whole.partition(b"0" * 16)[0], b"", b""
    rest = whole[len(before) + 16 :]
    middle, after = rest.split(b"0" * 13, 1)
    made = []
    for number in range(count):
        made.append(before + b"%016d" % number + middle + b"%013d" % next(due) + after)
        if len(made) == CHUNK:
            yield len(made), b"".join(made)
            made.clear()
    yield len(made), b"".join(made)


class Answers:
    """Counts the answers that come over a connection. Raises SystemExit for one that is no success."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = b""
        self.count = 0

    def await_count(self, count: int) -> None:
        while self.count < count:
            data = self._connection.recv(1 << 20)
            if not data:
                raise SystemExit(f"the broker hung up after {self.count} answers")
            self._data += data
            self._take()

    def _take(self) -> None:
        at = 0
        while len(self._data) - at >= 8:
            size, header_size = struct.unpack_from(">ii", self._data, at)
            if len(self._data) - at < 4 + size:
                break
            header = self._data[at + 8 : at + 8 + (header_size & 0xFFFFFF)]
            if b'"code":0,' not in header:
                raise SystemExit(f"a message was refused: {header.decode(errors='replace')}")
            self.count += 1
            at += 4 + size
        self._data = self._data[at:]


def send_all(address: str, chunks: Iterator[tuple[int, bytes]]) -> None:
    """Send *chunks* of so many frames each, a few of them ahead of their answers."""
    host, _, port = address.rpartition(":")
    sent = [0]
    with socket.create_connection((host, int(port)), 60) as connection:
        answers = Answers(connection)
        for count, chunk in chunks:
            connection.sendall(chunk)
            sent.append(sent[-1] + count)
            answers.await_count(sent[max(0, len(sent) - 1 - IN_FLIGHT)])
        answers.await_count(sent[-1])


def runtime(address: str) -> dict[str, str]:
    """The broker's figures; none if it has no time for the question, as RocketMQ's under load."""
    try:
        table: dict[str, str] = call(address, GET_BROKER_RUNTIME_INFO, timeout_s=ASK_TIMEOUT_S).json()["table"]
    except OSError:
        return {}
    return table


def wait_for(what: str, condition: Any, deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {deadline_s} s in vain: {what}")
        time.sleep(0.25)


def delivered(store: Path) -> Iterator[tuple[int, int, int]]:
    """(key, due, store time) of each delivered copy."""
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        yield from walk(data)


def walk(data: bytes) -> Iterator[tuple[int, int, int]]:
    at = 0
    view = memoryview(data)
    while at + 91 < len(data):
        size, magic = struct.unpack_from(">Ii", data, at)
        if magic != 0xDAA320A7 - (1 << 32) or size == 0:
            return
        sys_flag = struct.unpack_from(">i", data, at + 36)[0]
        born = 8 if not sys_flag & 0x10 else 20
        stored = 8 if not sys_flag & 0x20 else 20
        store_time = struct.unpack_from(">q", data, at + 48 + born)[0]
        body_at = at + 48 + born + 8 + stored + 12
        body = struct.unpack_from(">i", data, body_at)[0]
        topic_at = body_at + 4 + body
        topic_size = data[topic_at]
        if data[topic_at + 1 : topic_at + 1 + topic_size] == b"Timed":
            text = view[topic_at + 3 + topic_size : at + size].tobytes()
            key = int(text.partition(b"UNIQ_KEY\x01")[2][:16])
            due = int(text.partition(b"TIMER_DELIVER_MS\x01")[2][:13])
            yield key, due, store_time
        at += size


def run(name: str, broker: Any, options: argparse.Namespace) -> dict[str, Any]:
    address = broker.broker_address
    call(address, 17, {
        "topic": "Timed", "defaultTopic": "TBW102", "readQueueNums": "16", "writeQueueNums": "16", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    })  # fmt: skip
    start = (int(time.time()) + options.ahead) * 1000
    step = 1000 / options.rate

    def times() -> Iterator[int]:
        for number in range(options.count):
            second, within = divmod(number, options.rate)
            yield start + second * 1000 + (int(within * step) if options.spread else 0)

    process = psutil.Process(broker.broker.pid if isinstance(broker, ApacheServer) else broker.pid)
    began = time.monotonic()
    send_all(address, frames(options.count, b"x" * options.size, times()))
    sent_s = time.monotonic() - began
    wait_for("all are in the wheel", lambda: congested(address) >= options.count, options.ahead)
    waited_ms = start - time.time() * 1000
    print(f"{name}: sent {options.count} in {sent_s:.1f} s, {waited_ms / 1000:.0f} s to go", flush=True)
    if waited_ms < 1000:
        raise SystemExit("the machine is too slow for that: give --ahead more seconds")
    time.sleep(max(0, waited_ms / 1000 - 1))
    family = [process, *process.children(recursive=True)]
    before = cpu(family)
    kills = 0
    end = start / 1000 + options.count / options.rate
    while time.time() < end + 1:
        time.sleep(2)
        if options.kill:
            for worker in process.children(recursive=True):
                if "timer" in worker.cmdline():
                    worker.kill()
                    kills += 1
    wait_for("all are delivered", lambda: congested(address) == 0, 300)
    time.sleep(2)
    used = cpu(family) - before
    broker.stop()
    late, seen = [], collections.Counter[int]()
    for key, due, stored in delivered(broker.store_dir):
        late.append(stored - due)
        seen[key] += 1
    late.sort()
    return {
        "broker": name, "count": options.count, "rate": options.rate, "size": options.size, "kills": kills,
        "spread": options.spread, "send_per_s": round(options.count / sent_s),
        "missing": options.count - len(seen), "twice": sum(1 for number in seen.values() if number > 1),
        "early": sum(1 for value in late if value < 0),
        "late_ms": {f"p{share}": late[min(len(late) - 1, int(len(late) * share / 100))] for share in (50, 90, 99, 99.9)}
        | {"max": late[-1]},
        "cpu_us_a_message": round(used * 1e6 / options.count, 2),
    }  # fmt: skip


def congested(address: str) -> int:
    """How many messages wait; -1: nobody says."""
    return int(runtime(address).get("timerCongestNum", -1))


def cpu(family: list[psutil.Process]) -> float:
    total = 0.0
    for process in family:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=50_000, help="due in each second")
    parser.add_argument("--size", type=int, default=200, help="bytes of a body")
    parser.add_argument("--ahead", type=int, default=60, help="seconds from the first send to the first time")
    parser.add_argument("--spread", action="store_true", help="times within the seconds")
    parser.add_argument("--apache", action="store_true", help="Apache's broker 5.3.3 too")
    parser.add_argument("--kill", action="store_true", help="kill the timer worker every two seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="timers-") as directory:
        with MqcoreBroker(Path(directory) / "mqcore", PROPERTIES) as broker:
            print(json.dumps(run("mqcore", broker, options)), flush=True)
        if options.apache:
            jvm = tuple("-Xmx4g" if option.startswith("-Xmx") else option for option in SMALL)
            with ApacheServer("5.3.3", Path(directory) / "apache", PROPERTIES, jvm_options=jvm) as server:
                print(json.dumps(run("apache 5.3.3", server, options)), flush=True)


if __name__ == "__main__":
    main()
