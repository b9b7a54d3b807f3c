"""RocketMQ's first example: a synchronous, an asynchronous and a one-way producer."""

import sys
import threading

from mqcore.compat import DefaultMQProducer, Message, SendCallback


def sync_producer(namesrv_addr: str) -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    for i in range(10):
        msg = Message("TopicTest", "TagA", f"Hello RocketMQ {i}".encode())
        send_result = producer.send(msg)
        print(send_result)
    producer.shutdown()


def async_producer(namesrv_addr: str) -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    producer.set_retry_times_when_send_async_failed(0)
    message_count = 10
    count_down = threading.Semaphore(0)
    for i in range(message_count):
        msg = Message("TopicTest", "TagA", "OrderID188", b"Hello world")

        def on_success(send_result, index=i):
            print(f"{index:<10} OK {send_result.get_msg_id()}")
            count_down.release()

        def on_exception(error, index=i):
            print(f"{index:<10} Exception {error}")
            count_down.release()

        producer.send(msg, SendCallback(on_success, on_exception))
    for _ in range(message_count):
        count_down.acquire(timeout=60)
    producer.shutdown()


def oneway_producer(namesrv_addr: str) -> None:
    producer = DefaultMQProducer("please_rename_unique_group_name")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    for i in range(10):
        msg = Message("TopicTest", "TagA", f"Hello RocketMQ {i}".encode())
        producer.send_oneway(msg)
    producer.shutdown()


def main(namesrv_addr: str = "localhost:9876") -> None:
    sync_producer(namesrv_addr)
    async_producer(namesrv_addr)
    oneway_producer(namesrv_addr)


if __name__ == "__main__":
    main(*sys.argv[1:])
