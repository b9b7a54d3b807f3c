"""Polling certain queues from a certain offset on, and committing by hand."""

import sys

import mqcore


def main(name_server: str = "127.0.0.1:9876", count: str = "8") -> None:
    with mqcore.Client(name_server) as mq:
        with mq.producer("sensors") as producer:
            receipts = [producer.send(mqcore.Message("Shards", f"Sample {i}".encode())) for i in range(int(count))]
        with mq.pull_consumer("replay", auto_commit=False) as consumer:
            queues = consumer.queues("Shards")
            half = queues[: len(queues) // 2]
            consumer.assign(half)
            for queue in half:
                consumer.seek_to_begin(queue)
            left = sum(receipt.queue in half for receipt in receipts)
            while left > 0:
                messages = consumer.poll(timeout_s=5)
                for message in messages:
                    print(f"{message.queue.queue_id} {message.body.decode()}")
                consumer.commit()
                left -= len(messages)
            for queue in half:
                print(f"committed {queue.queue_id} {consumer.committed(queue)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
