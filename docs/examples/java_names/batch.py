"""Several small messages in one request; the client cuts what does not fit into one."""

import sys

from mqcore.compat import DefaultMQProducer, Message


def main(namesrv_addr: str = "localhost:9876") -> None:
    producer = DefaultMQProducer("BatchProducerGroupName")
    producer.set_namesrv_addr(namesrv_addr)
    producer.start()
    topic = "TopicBatch"
    messages = [
        Message(topic, "TagA", "OrderID001", b"Hello world 0"),
        Message(topic, "TagA", "OrderID002", b"Hello world 1"),
        Message(topic, "TagA", "OrderID003", b"Hello world 2"),
    ]
    print(producer.send(messages))

    # Java programs cut large lists themselves (ListSplitter); here send does it, at set_max_message_size.
    producer.send([Message(topic, "TagA", f"OrderID{i}", b"x" * 1000) for i in range(10_000)])
    producer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
