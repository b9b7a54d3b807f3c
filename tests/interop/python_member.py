"""A member of a group in a process of its own, which reports and obeys as the Java driver's Consume does.

Run as ``python -m tests.interop.python_member --name-server ... --topic ... --group ... --report ...``. It obeys lines
on standard input, ``queues`` and ``count``, and leaves in order when that ends. The report is live: written line by
line, with the time behind each outcome.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from mqcore import aio, client
from mqcore.client.settings.options import ConsumerOptions
from mqcore.protocol.message import MessageQueue


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def line_of(message: aio.ReceivedMessage) -> str:
    fields = (
        " ".join(message.keys),
        message.topic,
        message.queue.queue_id,
        message.queue_offset,
        hashlib.sha1(message.body).hexdigest(),
        len(message.body),
        message.reconsume_times,
        message.queue.broker_name,
        message.tag or "",
        f"HANDLED@{time.time_ns() // 1_000_000}",
        message.msg_id,
    )
    return "\t".join(map(str, fields)) + "\n"


def answer(order: str, held: Sequence[MessageQueue], topic: str, handled: int) -> None:
    """Answer one order."""
    if order == "queues":
        mine = [queue for queue in held if queue.topic == topic]
        say("queues", queues=[{"broker": queue.broker_name, "queueId": queue.queue_id} for queue in mine])
    elif order == "count":
        say("count", deliveries=handled)
    else:
        say("failed", reason=f"unknown order {order}")


class Reported:
    """The report; a handler of either face, in any thread."""

    def __init__(self, report: TextIO) -> None:
        self._report = report
        self._lock = threading.Lock()
        self.count = 0

    def add(self, message: aio.ReceivedMessage) -> None:
        with self._lock:
            self._report.write(line_of(message))
            self._report.flush()
            self.count += 1

    async def handle(self, message: aio.ReceivedMessage) -> None:
        self.add(message)


def topics_of(options: argparse.Namespace) -> dict[str, str]:
    return {options.topic: options.tags}


def settings_of(options: argparse.Namespace) -> ConsumerOptions:
    return {
        "from_where": "earliest",
        "orderly": options.listener == "orderly",
        "concurrency": options.threads,
        "strategy": options.strategy,
        "rebalance_interval_s": options.poll_ms / 1000,
    }


async def consume(options: argparse.Namespace, report: TextIO) -> None:
    reported = Reported(report)
    loop = asyncio.get_running_loop()
    async with (
        aio.Client(options.name_server, route_refresh_interval_s=options.poll_ms / 1000) as mq,
        mq.consumer(options.group, topics_of(options), handler=reported.handle, **settings_of(options)) as consumer,
    ):
        say("ready", client=mq.client_id)
        while order := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            answer(order, consumer.queues, options.topic, reported.count)
    say("stopped", deliveries=reported.count)


def consume_plainly(options: argparse.Namespace, report: TextIO) -> None:
    reported = Reported(report)
    with (
        client.Client(options.name_server, route_refresh_interval_s=options.poll_ms / 1000) as mq,
        mq.consumer(options.group, topics_of(options), handler=reported.add, **settings_of(options)) as consumer,
    ):
        say("ready", client=mq.client_id)
        while order := sys.stdin.readline().strip():
            answer(order, consumer.queues, options.topic, reported.count)
    say("stopped", deliveries=reported.count)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("name-server", "topic", "group"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--tags", default="*")
    parser.add_argument("--listener", default="concurrent")
    parser.add_argument("--strategy", default="AVG")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--face", choices=["aio", "plain"], default="aio")
    parser.add_argument("--poll-ms", type=int, default=20_000)
    options = parser.parse_args()
    with options.report.open("w", encoding="utf-8") as report:
        if options.face == "plain":
            consume_plainly(options, report)
        else:
            asyncio.run(consume(options, report))


if __name__ == "__main__":
    main()
