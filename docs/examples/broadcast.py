"""Every member of the group gets every message."""

import sys
import threading
from contextlib import ExitStack

import mqcore

MEMBERS = 2


def main(name_server: str = "127.0.0.1:9876", count: str = "5") -> None:
    received = threading.Semaphore(0)

    with mqcore.Client(name_server) as mq, mq.producer("settings") as producer:
        for i in range(int(count)):
            producer.send(mqcore.Message("Announcements", f"Announcement {i}".encode()))

    with ExitStack() as members:
        for number in range(MEMBERS):

            def handle(message: mqcore.ReceivedMessage, number: int = number) -> None:
                print(f"member {number} got: {message.body.decode()}")
                received.release()

            mq = members.enter_context(mqcore.Client(name_server))
            members.enter_context(
                mq.consumer(
                    "screens", "Announcements", handler=handle, message_model="broadcasting", from_where="earliest"
                )
            )
        for _ in range(MEMBERS * int(count)):
            received.acquire(timeout=60)


if __name__ == "__main__":
    main(*sys.argv[1:])
