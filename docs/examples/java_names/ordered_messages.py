"""Steps of an order in their order: a selector by order id for the producer, an orderly listener for the consumer."""

import sys
import threading
from dataclasses import dataclass

from mqcore.compat import (
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
    MessageListenerOrderly,
    MessageQueueSelector,
)


@dataclass
class OrderStep:
    order_id: int
    desc: str


def build_orders() -> list[OrderStep]:
    steps = ["create", "pay", "push", "finish"]
    return [OrderStep(order_id, desc) for desc in steps for order_id in (15103111039, 15103111065, 15103117235)]


class ById(MessageQueueSelector):
    def select(self, mqs, msg, arg):
        return mqs[arg % len(mqs)]


class Listener(MessageListenerOrderly):
    def __init__(self, received):
        super().__init__()
        self.received = received

    def consume_message(self, msgs, context):
        context.set_auto_commit(True)
        for msg in msgs:
            print(f"queueId={msg.get_queue_id()}, content: {msg.get_body().decode()}")
            self.received.release()
        return ConsumeOrderlyStatus.SUCCESS


def main(namesrv_addr: str = "localhost:9876") -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    orders = build_orders()
    for step in orders:
        msg = Message("TopicOrder", "TagA", f"KEY{step.order_id}", f"{step.order_id} {step.desc}".encode())
        send_result = producer.send(msg, ById(), step.order_id)
        print(
            f"SendResult status:{send_result.get_send_status().name}, queueId:"
            f"{send_result.get_message_queue().get_queue_id()}, body:{step}"
        )
    producer.shutdown()

    received = threading.Semaphore(0)
    consumer = DefaultMQPushConsumer("please_rename_unique_group_name_3")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe("TopicOrder", "TagA || TagC || TagD")
    consumer.register_message_listener(Listener(received))
    consumer.start()
    print("Consumer Started.")
    for _ in orders:
        received.acquire(timeout=60)
    consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
