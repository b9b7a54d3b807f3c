"""Polling certain queues from a certain offset on, and committing by hand."""

import sys

from mqcore.compat import DefaultLitePullConsumer, DefaultMQProducer, Message


def main(namesrv_addr: str = "localhost:9876", count: str = "8") -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    results = [producer.send(Message("TopicAssign", f"Hello {i}".encode())) for i in range(int(count))]
    producer.shutdown()

    lite_pull_consumer = DefaultLitePullConsumer("please_rename_unique_group_name")
    lite_pull_consumer.set_namesrv_addr(namesrv_addr)
    lite_pull_consumer.set_auto_commit(False)
    lite_pull_consumer.start()
    mq_set = lite_pull_consumer.fetch_message_queues("TopicAssign")
    assign_list = mq_set[: len(mq_set) // 2]
    lite_pull_consumer.assign(assign_list)
    for queue in assign_list:
        lite_pull_consumer.seek(queue, 0)
    left = sum(result.get_message_queue() in assign_list for result in results)
    try:
        while left > 0:
            message_exts = lite_pull_consumer.poll()
            for message_ext in message_exts:
                print(f"{message_ext.get_queue_id()} {message_ext.get_body().decode()}")
            lite_pull_consumer.commit_sync()
            left -= len(message_exts)
        for queue in assign_list:
            print(f"committed {queue.get_queue_id()} {lite_pull_consumer.committed(queue)}")
    finally:
        lite_pull_consumer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
