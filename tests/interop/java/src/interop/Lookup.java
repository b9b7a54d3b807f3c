package interop;

import java.util.TreeSet;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What a client may ask about a topic without consuming: offsets, a message by its id, messages by a key. */
final class Lookup {
    private Lookup() {
    }

    private static DefaultMQProducer started(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("INTEROP_LOOKUP");
        producer.setNamesrvAddr(options.text("name-server"));
        producer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        producer.start();
        return producer;
    }

    static void offsets(Options options) throws Exception {
        DefaultMQProducer producer = started(options);
        for (MessageQueue queue : new TreeSet<>(producer.fetchPublishMessageQueues(options.text("topic")))) {
            Event line = Event.named("queue").with("broker", queue.getBrokerName()).with("queueId", queue.getQueueId())
                .with("min", producer.minOffset(queue)).with("max", producer.maxOffset(queue));
            if (options.has("time-ms")) {
                line.with("at", producer.searchOffset(queue, options.wide("time-ms", 0)));
            }
            line.with("earliestStoreTimeMs", producer.earliestMsgStoreTime(queue)).print();
        }
        producer.shutdown();
    }

    static void view(Options options) throws Exception {
        DefaultMQProducer producer = started(options);
        found(producer.viewMessage(options.text("topic"), options.text("id"))).print();
        producer.shutdown();
    }

    static void query(Options options) throws Exception {
        DefaultMQProducer producer = started(options);
        for (MessageExt message : producer.queryMessage(options.text("topic"), options.text("key"), options.number("max", 32),
            options.wide("begin-ms", 0), options.wide("end-ms", Long.MAX_VALUE)).getMessageList()) {
            found(message).print();
        }
        producer.shutdown();
    }

    private static Event found(MessageExt message) {
        return Event.named("message").with("key", message.getKeys()).with("tags", message.getTags()).with("topic", message.getTopic())
            .with("queueId", message.getQueueId()).with("queueOffset", message.getQueueOffset()).with("sha1", Report.sha1(message.getBody()))
            .with("size", message.getBody().length).with("messageId", message.getMsgId())
            .with("physicalOffset", message.getCommitLogOffset()).with("storeTimeMs", message.getStoreTimestamp());
    }
}
