"""A consumer that gets only messages with certain tags."""

import sys
import threading

from mqcore.compat import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
)


def main(namesrv_addr: str = "localhost:9876", count: str = "9") -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    tags = ["TagA", "TagB", "TagC"]
    for i in range(int(count)):
        producer.send(Message("TagFilterTest", tags[i % len(tags)], b"Hello world"))
    producer.shutdown()

    received = threading.Semaphore(0)

    def consume_message(msgs, context):
        for msg in msgs:
            print(f"Receive New Messages: {msg.get_tags()}")
            received.release()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer("please_rename_unique_group_name")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe("TagFilterTest", "TagA || TagC")
    consumer.register_message_listener(consume_message)
    consumer.start()
    for i in range(int(count)):
        if tags[i % len(tags)] != "TagB":
            received.acquire(timeout=60)
    consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
