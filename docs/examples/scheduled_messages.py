"""Messages that are delivered later: for the times that every broker knows, or with timers any time."""

import sys
from datetime import timedelta

import mqcore


def main(name_server: str = "127.0.0.1:9876", count: str = "3", delay_s: str = "10") -> None:
    with mqcore.Client(name_server) as mq:
        with mq.producer("calendar") as producer:
            for i in range(int(count)):
                message = mqcore.Message("Alarms", f"Alarm {i}".encode(), delay=timedelta(seconds=float(delay_s)))
                producer.send(message)
        with mq.consumer("bells", "Alarms", from_where="earliest") as consumer:
            for number, message in enumerate(consumer, start=1):
                waited_ms = message.store_timestamp - message.born_timestamp
                print(f"{message.body.decode()} came {waited_ms} ms after it was sent")
                if number == int(count):
                    break


if __name__ == "__main__":
    main(*sys.argv[1:])
