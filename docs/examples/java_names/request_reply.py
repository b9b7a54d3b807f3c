"""Asking and answering over a topic: waiting for the answer, and having a callback called with it."""

import sys
import threading

from mqcore.compat import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
    MessageUtil,
    RequestCallback,
)

TTL = 60_000


def main(namesrv_addr: str = "localhost:9876") -> None:
    # The one who answers: a producer for the answers, a consumer for the requests.
    reply_producer = DefaultMQProducer("please_rename_unique_group_name_6")
    reply_producer.set_namesrv_addr(namesrv_addr)
    reply_producer.start()

    def consume_message(msgs, context):
        for msg in msgs:
            print(f"handle message: {msg.get_body().decode()}")
            assert MessageUtil.get_reply_to_client(msg) is not None
            reply_message = MessageUtil.create_reply_message(msg, b"reply message contents.")
            reply_producer.send(reply_message, 3000)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer("please_rename_unique_group_name_7")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe("RequestTopic", "*")
    consumer.register_message_listener(consume_message)
    consumer.start()

    # The one who asks.
    producer = DefaultMQProducer("please_rename_unique_group_name_8")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    ret_msg = producer.request(Message("RequestTopic", b"Hello world"), TTL)
    print(f"request to <RequestTopic> replyMessage={ret_msg.get_body().decode()}")

    answered = threading.Event()

    class Callback(RequestCallback):
        def on_success(self, message):
            print(f"request to <RequestTopic> success, replyMessage={message.get_body().decode()}")
            answered.set()

        def on_exception(self, error):
            print(f"request to <RequestTopic> fail: {error}")
            answered.set()

    producer.request(Message("RequestTopic", b"Hello again"), Callback(), TTL)
    answered.wait(60)
    producer.shutdown()
    consumer.shutdown()
    reply_producer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
