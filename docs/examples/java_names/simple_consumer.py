"""RocketMQ's first consumer: a listener that is called for messages of all queues at once."""

import sys
import threading

from mqcore.compat import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
)


def main(namesrv_addr: str = "localhost:9876", count: str = "5") -> None:
    received = threading.Semaphore(0)

    def consume_message(msgs, context):
        for msg in msgs:
            print(f"Receive New Messages: {msg.get_body().decode()}")
            received.release()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer("please_rename_unique_group_name_4")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe("TopicSimple", "*")
    consumer.register_message_listener(consume_message)
    consumer.start()
    print("Consumer Started.")

    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    for i in range(int(count)):
        producer.send(Message("TopicSimple", "TagA", f"Hello RocketMQ {i}".encode()))
    producer.shutdown()

    for _ in range(int(count)):
        received.acquire(timeout=60)
    consumer.shutdown()  # a program that has nothing else to do calls consumer.join() instead


if __name__ == "__main__":
    main(*sys.argv[1:])
