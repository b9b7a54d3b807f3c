"""Messages that are delivered only if a local transaction succeeds."""

import itertools
import sys
import threading

from mqcore.compat import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    DefaultMQPushConsumer,
    LocalTransactionState,
    Message,
    TransactionListener,
    TransactionMQProducer,
)


class TransactionListenerImpl(TransactionListener):
    """One of three transactions succeeds at once, one fails, one is decided when the broker asks."""

    def __init__(self):
        self.transaction_index = itertools.count()

    def execute_local_transaction(self, msg, arg):
        status = next(self.transaction_index) % 3
        if status == 1:
            return LocalTransactionState.COMMIT_MESSAGE
        if status == 2:
            return LocalTransactionState.ROLLBACK_MESSAGE
        return LocalTransactionState.UNKNOW

    def check_local_transaction(self, msg):
        print(f"check of {msg.get_body().decode()}")
        return LocalTransactionState.COMMIT_MESSAGE


def main(namesrv_addr: str = "localhost:9876") -> None:
    received = threading.Semaphore(0)

    def consume_message(msgs, context):
        for msg in msgs:
            print(f"received {msg.get_body().decode()}")
            received.release()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    producer = TransactionMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.set_transaction_listener(TransactionListenerImpl())
    producer.start()
    tags = ["TagA", "TagB", "TagC", "TagD", "TagE"]
    for i in range(6):
        msg = Message("TopicTest1234", tags[i % len(tags)], f"KEY{i}", f"Hello RocketMQ {i}".encode())
        send_result = producer.send_message_in_transaction(msg, None)
        print(f"{send_result.get_local_transaction_state().name} {send_result}")

    consumer = DefaultMQPushConsumer("transaction_consumer")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe("TopicTest1234", "*")
    consumer.register_message_listener(consume_message)
    consumer.start()
    for _ in range(4):  # two committed at once, two after the broker has asked
        received.acquire(timeout=180)
    consumer.shutdown()
    producer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
