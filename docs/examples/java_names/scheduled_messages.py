"""Messages that are delivered later: delay level 3 is ten seconds, unless the broker has another table."""

import sys
import threading
import time

from mqcore.compat import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
)


def main(namesrv_addr: str = "localhost:9876", count: str = "3", level: str = "3") -> None:
    received = threading.Semaphore(0)

    def consume_message(messages, context):
        for message in messages:
            late_ms = time.time() * 1000 - message.get_born_timestamp()
            print(f"Receive message[msgId={message.get_msg_id()}] {late_ms:.0f} ms after it was sent")
            received.release()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer("ExampleConsumer")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe("TopicScheduled", "*")
    consumer.register_message_listener(consume_message)
    consumer.start()

    producer = DefaultMQProducer("ExampleProducerGroup")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    for i in range(int(count)):
        message = Message("TopicScheduled", f"Hello scheduled message {i}".encode())
        message.set_delay_time_level(int(level))
        producer.send(message)
    producer.shutdown()
    for _ in range(int(count)):
        received.acquire(timeout=120)
    consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
