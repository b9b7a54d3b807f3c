"""Every member of the group gets every message."""

import sys
import threading

from mqcore.compat import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
    MessageListenerConcurrently,
    MessageModel,
)

MEMBERS = 2


def main(namesrv_addr: str = "localhost:9876", count: str = "5") -> None:
    producer = DefaultMQProducer("ProducerGroupName")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    for i in range(int(count)):
        producer.send(Message("TopicBroadcast", "TagA", "OrderID188", f"Hello world {i}".encode()))
    producer.shutdown()

    received = threading.Semaphore(0)
    consumers = []
    for number in range(MEMBERS):

        def consume_message(msgs, context, number=number):
            for msg in msgs:
                print(f"member {number} Receive New Messages: {msg.get_body().decode()}")
                received.release()
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        consumer = DefaultMQPushConsumer("example_group_name")
        consumer.set_namesrv_addr(namesrv_addr)
        consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.set_message_model(MessageModel.BROADCASTING)
        consumer.subscribe("TopicBroadcast", "*")
        consumer.register_message_listener(MessageListenerConcurrently(consume_message))
        consumer.start()
        consumers.append(consumer)
    for _ in range(MEMBERS * int(count)):
        received.acquire(timeout=60)
    for consumer in consumers:
        consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
