"""Sending: one message after the other, many at once with and without asyncio, and without asking what became of it."""

import asyncio
import sys

import mqcore
from mqcore import aio

TOPIC = "Greetings"


def one_by_one(mq: mqcore.Client) -> None:
    with mq.producer("greeters") as producer:
        for i in range(10):
            receipt = producer.send(mqcore.Message(TOPIC, f"Hello {i}".encode(), tag="new", keys=[f"greeting-{i}"]))
            print(f"{receipt.status.name} {receipt.msg_id} lies in queue {receipt.queue.queue_id} at {receipt.offset}")


def many_at_once(mq: mqcore.Client) -> None:
    with mq.producer("greeters") as producer:
        futures = [producer.send_soon(mqcore.Message(TOPIC, b"Hello world")) for _ in range(10)]
        for i, future in enumerate(futures):
            print(f"{i:<10} stored as {future.result().msg_id}")


async def many_at_once_with_asyncio(name_server: str) -> None:
    async with aio.Client(name_server) as mq, mq.producer("greeters") as producer:
        receipts = await asyncio.gather(*(producer.send(aio.Message(TOPIC, b"Hello asyncio")) for _ in range(10)))
        print(f"{len(receipts)} receipts from {len({receipt.queue for receipt in receipts})} queues")


def without_asking(mq: mqcore.Client) -> None:
    with mq.producer("greeters") as producer:
        for i in range(10):
            producer.send_oneway(mqcore.Message(TOPIC, f"Hello {i}".encode()))


def main(name_server: str = "127.0.0.1:9876") -> None:
    with mqcore.Client(name_server) as mq:
        one_by_one(mq)
        many_at_once(mq)
        without_asking(mq)
    asyncio.run(many_at_once_with_asyncio(name_server))


if __name__ == "__main__":
    main(*sys.argv[1:])
