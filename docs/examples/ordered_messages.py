"""Steps of an order in their order: a shard key for the producer, an orderly consumer."""

import sys
import threading

import mqcore

ORDERS = ("15103111039", "15103111065", "15103117235")
STEPS = ("create", "pay", "push", "finish")


def main(name_server: str = "127.0.0.1:9876") -> None:
    received = threading.Semaphore(0)

    def handle(message: mqcore.ReceivedMessage) -> None:
        print(f"queue {message.queue.queue_id}: {message.keys[0]} {message.body.decode()}")
        received.release()

    with mqcore.Client(name_server) as mq:
        with mq.producer("checkout") as producer:
            for step in STEPS:
                for order in ORDERS:  # what has the same shard key goes to the same queue
                    producer.send(mqcore.Message("OrderSteps", step.encode(), keys=[order]), shard_key=order)
        with mq.consumer("fulfilment", "OrderSteps", handler=handle, orderly=True, from_where="earliest"):
            for _ in range(len(ORDERS) * len(STEPS)):
                received.acquire(timeout=60)


if __name__ == "__main__":
    main(*sys.argv[1:])
