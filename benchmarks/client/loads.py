"""What one client does in one repetition, as a program: it connects, says that it is ready, and works when told to.

    python -m benchmarks.client.loads CLIENT LOAD ADDRESS TOPIC COUNT

It is a process of its own so that its CPU time is that of the client and of nothing else. Every message is accounted
for: each send has its receipt, or its delivery callback without an error, before the clock is stopped, and what is
received is counted and its body touched.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mqcore.client import PullConsumer
    from mqcore.client.settings.options import ConsumerOptions, PullConsumerOptions

BODY_SIZE: Final = 1024
WARM_UP_SHARE: Final = 10
"""One message in so many is sent, or received, before the clock starts."""

RECEIVE_MAX: Final = 1000
"""Messages of one poll, for both clients."""

WINDOW: Final = 1000
"""Sends of an event loop that are under way together."""

Work = Callable[[int], None]
AsyncWork = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a repetition took. Seconds; CPU time is user and system of the client's process, all threads."""

    messages: int
    seconds: float
    client_cpu_s: float


def cpu_s() -> float:
    """Return the CPU time that this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(work: Work, count: int) -> None:
    """Warm up, say so, wait for the word, work, and print what it took."""
    work(max(1, count // WARM_UP_SHARE))
    print(json.dumps({"event": "ready"}), flush=True)
    sys.stdin.readline()
    begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
    work(count)
    spent = Spent(count, time.perf_counter() - begin_s, cpu_s() - begin_cpu_s)
    print(json.dumps({"event": "done", **asdict(spent)}), flush=True)


async def measure_async(work: AsyncWork, count: int) -> None:
    """The same in an event loop, which has nothing else to do while it waits for the word."""
    await work(max(1, count // WARM_UP_SHARE))
    print(json.dumps({"event": "ready"}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
    await work(count)
    spent = Spent(count, time.perf_counter() - begin_s, cpu_s() - begin_cpu_s)
    print(json.dumps({"event": "done", **asdict(spent)}), flush=True)


# mqcore.


def mqcore_send_sync(address: str, topic: str, count: int) -> None:
    """One message after the other, each waited for."""
    from mqcore.client import Client, Message

    body = os.urandom(BODY_SIZE)
    with Client(address) as mq, mq.producer("benchmark") as producer:

        def work(count: int) -> None:
            for _ in range(count):
                producer.send(Message(topic, body))

        measure(work, count)


def mqcore_send_pipelined(address: str, topic: str, count: int) -> None:
    """As fast as the producer takes them; every receipt is looked at."""
    from mqcore.client import Client, Message, SendFuture, SendStatus

    body = os.urandom(BODY_SIZE)
    with Client(address) as mq, mq.producer("benchmark") as producer:

        def check(futures: list[SendFuture]) -> None:
            for future in futures:
                if future.result().status is not SendStatus.SEND_OK:
                    raise AssertionError(future.result())
            futures.clear()

        def work(count: int) -> None:
            under_way: list[SendFuture] = []
            before: list[SendFuture] = []
            for number in range(count):
                under_way.append(producer.send_soon(Message(topic, body)))
                if number % 5000 == 4999:
                    check(before)
                    before, under_way = under_way, []
            check(before)
            check(under_way)

        measure(work, count)


def receiving() -> PullConsumerOptions:
    """How a topic is read from its beginning, and as much at once asked for as a broker gives."""
    return {
        "from_where": "earliest",
        "pull_batch_size": RECEIVE_MAX,
        "pull_threshold_for_queue": 4 * RECEIVE_MAX,
        "max_span": 8 * RECEIVE_MAX,
    }


@contextmanager
def mqcore_consumer(address: str, topic: str) -> Iterator[PullConsumer]:
    """Give a pull consumer that reads *topic* from its beginning and asks for as much at once as a broker gives."""
    from mqcore.client import Client

    with Client(address) as mq, mq.pull_consumer(f"benchmark_{os.getpid()}", topic, **receiving()) as consumer:
        yield consumer


def mqcore_receive(address: str, topic: str, count: int) -> None:
    """Poll a topic: each call gives a list of messages."""
    with mqcore_consumer(address, topic) as consumer:
        size = 0

        def work(count: int) -> None:
            nonlocal size
            while count > 0:
                messages = consumer.poll(1.0)
                for message in messages:
                    size += len(message.body)
                count -= len(messages)

        measure(work, count)


def mqcore_receive_each(address: str, topic: str, count: int) -> None:
    """Iterate over a topic, message by message."""
    with mqcore_consumer(address, topic) as consumer:
        size = 0

        def work(count: int) -> None:
            nonlocal size
            for message in islice(consumer, count):
                size += len(message.body)

        measure(work, count)


def mqcore_receive_handler(address: str, topic: str, count: int) -> None:
    """Consume a topic with a handler, message by message, as a push consumer does."""
    from mqcore.client import Client, ReceivedMessage

    settings: ConsumerOptions = {
        "from_where": "earliest",
        "pull_batch_size": RECEIVE_MAX,
        "pull_threshold_for_queue": 4 * RECEIVE_MAX,
        "max_span": 8 * RECEIVE_MAX,
        "concurrency": 1,
    }
    size = seen = wanted = 0
    may_go_on, reached = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        nonlocal size, seen
        if seen == wanted:
            may_go_on.wait()
            may_go_on.clear()
        size += len(message.body)
        seen += 1
        if seen == wanted:
            reached.set()

    def work(count: int) -> None:
        nonlocal wanted
        wanted += count
        may_go_on.set()
        reached.wait()
        reached.clear()

    with Client(address) as mq:
        consumer = mq.consumer(f"benchmark_{os.getpid()}", topic, handler=handle, **settings)
        consumer.start()
        measure(work, count)
        consumer.close(drain=False)


def mqcore_send_async(address: str, topic: str, count: int) -> None:
    """In an event loop: WINDOW sends are given to the producer, then all their receipts are waited for."""
    from mqcore.aio import Client, Message, SendStatus

    body = os.urandom(BODY_SIZE)

    async def run() -> None:
        async with Client(address) as mq, mq.producer("benchmark") as producer:

            async def work(count: int) -> None:
                for at in range(0, count, WINDOW):
                    futures = [await producer.send_soon(Message(topic, body)) for _ in range(min(WINDOW, count - at))]
                    for future in futures:
                        if (await future).status is not SendStatus.SEND_OK:
                            raise AssertionError(future)

            await measure_async(work, count)

    asyncio.run(run())


def mqcore_receive_async(address: str, topic: str, count: int) -> None:
    """In an event loop: each poll gives a list of messages."""
    from mqcore.aio import Client

    async def run() -> None:
        size = 0
        async with (
            Client(address) as mq,
            mq.pull_consumer(f"benchmark_{os.getpid()}", topic, **receiving()) as consumer,
        ):

            async def work(count: int) -> None:
                nonlocal size
                while count > 0:
                    messages = await consumer.poll(1.0)
                    for message in messages:
                        size += len(message.body)
                    count -= len(messages)

            await measure_async(work, count)

    asyncio.run(run())


# A bare socket.


def bare_send_sync(address: str, topic: str, count: int) -> None:
    """The request of a plain send to mqcore's broker and its answer, on a socket, without a client."""
    import socket

    from mqcore.address import parse_address
    from mqcore.codes import RequestCode, ResponseCode
    from mqcore.protocol.command import RemotingCommand
    from tests.rigs.wire import registered_brokers

    properties = f"UNIQ_KEY\x01{os.urandom(16).hex().upper()}\x02WAIT\x01true\x02"
    plain = dict.fromkeys("efghj", "0") | dict.fromkeys("km", "false")
    fields = {"a": "benchmark", "b": topic, "c": "TBW102", "d": "4", "i": properties} | plain
    request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=os.urandom(BODY_SIZE)).encode()
    (addresses,) = registered_brokers(address).values()
    with socket.create_connection(parse_address(addresses["0"])) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        room = bytearray(65536)

        def work(count: int) -> None:
            for _ in range(count):
                connection.sendall(request)
                size = connection.recv_into(room)
            # An answer is written at once, so that one call takes all of it; the last one stands for all.
            assert RemotingCommand.decode(bytes(room[4:size])).code == ResponseCode.SUCCESS

        measure(work, count)


# confluent-kafka.


def confluent_send_sync(address: str, topic: str, count: int) -> None:
    """One message after the other, each waited for."""
    from confluent_kafka import Producer

    body = os.urandom(BODY_SIZE)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})

    def work(count: int) -> None:
        for _ in range(count):
            producer.produce(topic, body, on_delivery=check_delivery)
            producer.flush()

    measure(work, count)


def confluent_send_pipelined(address: str, topic: str, count: int) -> None:
    """As fast as the producer takes them, with its default linger; every delivery report is looked at."""
    from confluent_kafka import Producer

    body = os.urandom(BODY_SIZE)
    producer = Producer({"bootstrap.servers": address})
    delivered = 0

    def note(error: object, message: object) -> None:
        nonlocal delivered
        check_delivery(error, message)
        delivered += 1

    def work(count: int) -> None:
        nonlocal delivered
        delivered = 0
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, body, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 256 == 0:
                producer.poll(0)
        producer.flush()
        if delivered != count:
            raise AssertionError(f"delivered: got {delivered}, wanted {count}")

    measure(work, count)


def check_delivery(error: object, message: object) -> None:
    """Be the callback of a delivery."""
    if error is not None:
        raise AssertionError(error)


@contextmanager
def confluent_consumer(address: str, topic: str) -> Iterator[Any]:
    """Give a consumer that reads *topic* from its beginning."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": address, "group.id": f"g{os.getpid()}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def confluent_receive(address: str, topic: str, count: int) -> None:
    """Consume a topic: each call gives a list of messages."""
    with confluent_consumer(address, topic) as consumer:
        size = 0

        def work(count: int) -> None:
            nonlocal size
            while count > 0:
                messages = consumer.consume(RECEIVE_MAX, 1.0)
                for message in messages:
                    size += len(message.value())
                count -= len(messages)

        measure(work, count)


def confluent_receive_each(address: str, topic: str, count: int) -> None:
    """Poll a topic, which gives message by message."""
    with confluent_consumer(address, topic) as consumer:
        size = 0

        def work(count: int) -> None:
            nonlocal size
            while count > 0:
                message = consumer.poll(1.0)
                if message is not None:
                    size += len(message.value())
                    count -= 1

        measure(work, count)


# aiokafka.


def aiokafka_send_async(address: str, topic: str, count: int) -> None:
    """WINDOW sends are given to the producer, with its default linger, then all their delivery reports awaited."""
    from aiokafka import AIOKafkaProducer

    body = os.urandom(BODY_SIZE)

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:

            async def work(count: int) -> None:
                for at in range(0, count, WINDOW):
                    futures = [await producer.send(topic, body) for _ in range(min(WINDOW, count - at))]
                    for future in futures:
                        await future

            await measure_async(work, count)

    asyncio.run(run())


def aiokafka_receive_async(address: str, topic: str, count: int) -> None:
    """Each call gives the messages that have come, by partition."""
    from aiokafka import AIOKafkaConsumer

    async def run() -> None:
        size = 0
        settings = {"bootstrap_servers": address, "group_id": f"g{os.getpid()}", "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **settings) as consumer:

            async def work(count: int) -> None:
                nonlocal size
                while count > 0:
                    found = await consumer.getmany(timeout_ms=1000, max_records=RECEIVE_MAX)
                    for messages in found.values():
                        for message in messages:
                            size += len(message.value)
                        count -= len(messages)

            await measure_async(work, count)

    asyncio.run(run())


LOADS: Final = {
    ("mqcore", "send_sync"): mqcore_send_sync,
    ("bare", "send_sync"): bare_send_sync,
    ("mqcore", "send_pipelined"): mqcore_send_pipelined,
    ("mqcore", "receive"): mqcore_receive,
    ("mqcore", "receive_each"): mqcore_receive_each,
    ("mqcore", "receive_handler"): mqcore_receive_handler,
    ("mqcore", "send_async"): mqcore_send_async,
    ("mqcore", "receive_async"): mqcore_receive_async,
    ("aiokafka", "send_async"): aiokafka_send_async,
    ("aiokafka", "receive_async"): aiokafka_receive_async,
    ("confluent", "send_sync"): confluent_send_sync,
    ("confluent", "send_pipelined"): confluent_send_pipelined,
    ("confluent", "receive"): confluent_receive,
    ("confluent", "receive_each"): confluent_receive_each,
    ("confluent", "receive_handler"): confluent_receive_each,
}


if __name__ == "__main__":
    client, load, address, topic, count = sys.argv[1:]
    LOADS[client, load.removesuffix("_awake")](address, topic, int(count))
