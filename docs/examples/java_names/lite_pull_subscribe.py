"""Polling: the queues are shared with the other members of the group."""

import sys

from mqcore.compat import ConsumeFromWhere, DefaultLitePullConsumer, DefaultMQProducer, Message


def main(namesrv_addr: str = "localhost:9876", count: str = "8") -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    for i in range(int(count)):
        producer.send(Message("TopicLitePull", f"Hello {i}".encode()))
    producer.shutdown()

    lite_pull_consumer = DefaultLitePullConsumer("lite_pull_consumer_test")
    lite_pull_consumer.set_namesrv_addr(namesrv_addr)
    lite_pull_consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    lite_pull_consumer.subscribe("TopicLitePull", "*")
    lite_pull_consumer.set_pull_batch_size(20)
    lite_pull_consumer.start()
    try:
        got = 0
        while got < int(count):
            message_exts = lite_pull_consumer.poll()
            for message_ext in message_exts:
                print(message_ext.get_body().decode())
            got += len(message_exts)
    finally:
        lite_pull_consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
