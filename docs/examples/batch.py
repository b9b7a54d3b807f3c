"""Several small messages in one request; the client cuts what does not fit into one."""

import sys

import mqcore


def main(name_server: str = "127.0.0.1:9876") -> None:
    with mqcore.Client(name_server) as mq, mq.producer("importers") as producer:
        messages = [mqcore.Message("Imports", f"Row {i}".encode(), keys=[f"row-{i}"]) for i in range(3)]
        receipts = producer.send_batch(messages)
        print(f"{len(receipts)} rows in {len({receipt.queue for receipt in receipts})} queue")

        receipts = producer.send_batch([mqcore.Message("Imports", b"x" * 1000) for _ in range(10_000)])
        print(f"{len(receipts)} rows, cut into requests of at most max_message_size bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
