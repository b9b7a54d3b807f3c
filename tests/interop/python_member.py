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
import time
from pathlib import Path
from typing import TextIO

from mqcore import aio


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


async def obey(consumer: aio.Consumer, topic: str, handled: list[int]) -> None:
    """Answer orders until there are no more."""
    loop = asyncio.get_running_loop()
    while order := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if order == "queues":
            held = [queue for queue in consumer.queues if queue.topic == topic]
            say("queues", queues=[{"broker": queue.broker_name, "queueId": queue.queue_id} for queue in held])
        elif order == "count":
            say("count", deliveries=handled[0])
        else:
            say("failed", reason=f"unknown order {order}")


async def consume(options: argparse.Namespace, report: TextIO) -> None:
    handled = [0]

    async def handle(message: aio.ReceivedMessage) -> None:
        report.write(line_of(message))
        report.flush()
        handled[0] += 1

    interval_s = options.poll_ms / 1000
    async with aio.Client(options.name_server, route_refresh_interval_s=interval_s) as mq:
        consumer = mq.consumer(
            options.group,
            {options.topic: options.tags},
            handler=handle,
            from_where="earliest",
            orderly=options.listener == "orderly",
            concurrency=options.threads,
            strategy=options.strategy,
            rebalance_interval_s=interval_s,
        )
        async with consumer:
            say("ready", client=mq.client_id)
            await obey(consumer, options.topic, handled)
    say("stopped", deliveries=handled[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("name-server", "topic", "group"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--tags", default="*")
    parser.add_argument("--listener", default="concurrent")
    parser.add_argument("--strategy", default="AVG")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--poll-ms", type=int, default=20_000)
    options = parser.parse_args()
    with options.report.open("w", encoding="utf-8") as report:
        asyncio.run(consume(options, report))


if __name__ == "__main__":
    main()
