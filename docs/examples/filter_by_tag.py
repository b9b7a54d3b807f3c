"""A consumer that gets only messages with certain tags."""

import sys

import mqcore

TAGS = ("new", "paid", "cancelled")


def main(name_server: str = "127.0.0.1:9876", count: str = "9") -> None:
    tags = [TAGS[i % len(TAGS)] for i in range(int(count))]
    with mqcore.Client(name_server) as mq:
        with mq.producer("shop") as producer:
            for tag in tags:
                producer.send(mqcore.Message("ShopEvents", b"{}", tag=tag))
        with mq.consumer("billing", {"ShopEvents": "new || cancelled"}, from_where="earliest") as consumer:
            for number, message in enumerate(consumer, start=1):
                print(f"got: {message.tag}")
                if number == len(tags) - tags.count("paid"):
                    break


if __name__ == "__main__":
    main(*sys.argv[1:])
