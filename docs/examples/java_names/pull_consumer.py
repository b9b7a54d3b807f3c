"""Pulling queue by queue, with the offsets kept by the program: the old pull consumer of books."""

import sys

from mqcore.compat import DefaultMQProducer, DefaultMQPullConsumer, Message, PullStatus

OFFSET_TABLE = {}


def main(namesrv_addr: str = "localhost:9876", count: str = "8") -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    for i in range(int(count)):
        producer.send(Message("TopicPull", f"Hello {i}".encode()))
    producer.shutdown()

    consumer = DefaultMQPullConsumer("please_rename_unique_group_name_5")
    consumer.set_namesrv_addr(namesrv_addr)
    consumer.set_broker_suspend_max_time_millis(1000)
    consumer.start()
    for mq in consumer.fetch_subscribe_message_queues("TopicPull"):
        while True:
            pull_result = consumer.pull_block_if_not_found(mq, None, get_message_queue_offset(mq), 32)
            print(pull_result)
            put_message_queue_offset(mq, pull_result.get_next_begin_offset())
            match pull_result.get_pull_status():
                case PullStatus.FOUND:
                    for msg in pull_result.get_msg_found_list():
                        print(f"{msg.get_queue_id()} {msg.get_body().decode()}")
                case PullStatus.NO_NEW_MSG | PullStatus.OFFSET_ILLEGAL:
                    break
        consumer.update_consume_offset(mq, get_message_queue_offset(mq))
    consumer.shutdown()


def get_message_queue_offset(mq) -> int:
    return OFFSET_TABLE.get(mq, 0)


def put_message_queue_offset(mq, offset: int) -> None:
    OFFSET_TABLE[mq] = offset


if __name__ == "__main__":
    main(*sys.argv[1:])
