"""Polling: the queues are shared with the other members of the group."""

import sys

import mqcore


def main(name_server: str = "127.0.0.1:9876", count: str = "8") -> None:
    with mqcore.Client(name_server) as mq:
        with mq.producer("sensors") as producer:
            for i in range(int(count)):
                producer.send(mqcore.Message("Samples", f"Sample {i}".encode()))
        with mq.pull_consumer("statistics", "Samples", from_where="earliest", pull_batch_size=20) as consumer:
            got = 0
            while got < int(count):
                messages = consumer.poll(timeout_s=5)  # of one queue, in order; done at the next poll
                for message in messages:
                    print(message.body.decode())
                got += len(messages)


if __name__ == "__main__":
    main(*sys.argv[1:])
