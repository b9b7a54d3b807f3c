"""A consumer that chooses by an SQL92 expression over properties. Apache's broker needs enablePropertyFilter=true."""

import sys
import threading

from mqcore.compat import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    DefaultMQProducer,
    DefaultMQPushConsumer,
    Message,
    MessageSelector,
)


def main(namesrv_addr: str = "localhost:9876", count: str = "10") -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    tags = ["TagA", "TagB", "TagC"]
    for i in range(int(count)):
        msg = Message("SqlFilterTest", tags[i % len(tags)], f"Hello RocketMQ {i}".encode())
        msg.put_user_property("a", str(i))
        producer.send(msg)
    producer.shutdown()

    received = threading.Semaphore(0)

    def consume_message(msgs, context):
        for msg in msgs:
            print(f"Receive New Messages: a={msg.get_user_property('a')} {msg.get_tags()}")
            received.release()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer("please_rename_unique_group_name")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_consume_from_where(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    sql = "(TAGS is not null and TAGS in ('TagA', 'TagB')) and (a is not null and a between 0 and 3)"
    consumer.subscribe("SqlFilterTest", MessageSelector.by_sql(sql))
    consumer.register_message_listener(consume_message)
    consumer.start()
    for _ in range(3):  # 0, 1 and 3
        received.acquire(timeout=60)
    consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
