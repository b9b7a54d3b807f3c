"""Messages that are delivered only if a local transaction succeeds."""

import sys

import mqcore
from mqcore.client import SendReceipt, TransactionState

DECISIONS = (TransactionState.UNKNOWN, TransactionState.COMMIT, TransactionState.ROLLBACK)


def decide(message: mqcore.Message, receipt: SendReceipt) -> TransactionState:
    """The local transaction: of three one is decided when the broker asks, one succeeds at once, one fails."""
    return DECISIONS[int(message.keys[0]) % len(DECISIONS)]


def check(message: mqcore.ReceivedMessage) -> TransactionState:
    """What the broker asks about a message of which it has not heard the outcome."""
    print(f"check of {message.keys[0]}")
    return TransactionState.COMMIT


def main(name_server: str = "127.0.0.1:9876") -> None:
    with mqcore.Client(name_server) as mq, mq.transaction_producer("bank", check) as producer:
        for i in range(6):
            receipt = producer.send_in_transaction(mqcore.Message("Transfers", b"10 EUR", keys=[str(i)]), decide)
            print(f"{receipt.state.name} {i}")
        with mq.consumer("statements", "Transfers", from_where="earliest") as consumer:
            for number, message in enumerate(consumer, start=1):
                print(f"received {message.keys[0]}")
                if number == 4:  # two committed at once, two after the broker has asked
                    break


if __name__ == "__main__":
    main(*sys.argv[1:])
