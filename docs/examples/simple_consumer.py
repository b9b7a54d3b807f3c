"""Receiving: by a function that is called for each message, by a loop, and by a loop in asyncio."""

import asyncio
import sys
import threading

import mqcore
from mqcore import aio

TOPIC = "Letters"


def by_a_function(mq: mqcore.Client, count: int) -> None:
    received = threading.Semaphore(0)

    def read(message: mqcore.ReceivedMessage) -> None:
        print(f"called with: {message.body.decode()}")
        received.release()  # returning means done; an exception has the message come again, later

    with mq.consumer("readers", TOPIC, handler=read, concurrency=8, from_where="earliest"):
        for _ in range(count):
            received.acquire(timeout=60)


def by_a_loop(mq: mqcore.Client, count: int) -> None:
    with mq.consumer("listeners", TOPIC, from_where="earliest") as consumer:
        for number, message in enumerate(consumer, start=1):
            print(f"came by: {message.body.decode()}")
            if number == count:
                break


async def with_asyncio(name_server: str, count: int) -> None:
    async with aio.Client(name_server) as mq, mq.consumer("watchers", TOPIC, from_where="earliest") as consumer:
        number = 0
        async for message in consumer:
            print(f"awaited: {message.body.decode()}")
            number += 1
            if number == count:
                break


def main(name_server: str = "127.0.0.1:9876", count: str = "5") -> None:
    with mqcore.Client(name_server) as mq:
        with mq.producer("writers") as producer:
            for i in range(int(count)):
                producer.send(mqcore.Message(TOPIC, f"Letter {i}".encode()))
        by_a_function(mq, int(count))
        by_a_loop(mq, int(count))
    asyncio.run(with_asyncio(name_server, int(count)))


if __name__ == "__main__":
    main(*sys.argv[1:])
