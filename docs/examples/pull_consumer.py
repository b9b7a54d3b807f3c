"""Pulling queue by queue, with the offsets kept by the program."""

import sys

import mqcore

GROUP = "archive"


def main(name_server: str = "127.0.0.1:9876", count: str = "8") -> None:
    with mqcore.Client(name_server) as mq:
        with mq.producer("sensors") as producer:
            receipts = [producer.send(mqcore.Message("Records", f"Record {i}".encode())) for i in range(int(count))]
        ends = {receipt.queue: receipt.offset + 1 for receipt in receipts}
        for queue, end in sorted(ends.items()):
            offset = mq.committed_offset(GROUP, queue) or 0
            while offset < end:
                result = mq.pull(queue, offset, max_messages=32, wait_s=1, group=GROUP)
                print(f"{result.status.name}, next offset {result.next_offset}")
                for message in result.messages:
                    print(f"{message.queue.queue_id} {message.body.decode()}")
                offset = result.next_offset
            mq.commit_offset(GROUP, queue, offset)


if __name__ == "__main__":
    main(*sys.argv[1:])
