package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads queues of a topic from chosen offsets, by both of the client's pull interfaces, until {@code count} messages came or time is up. */
final class Pull {
    private static final int EMPTY_POLLS_MAX = 4;

    private Pull() {
    }

    private static List<MessageQueue> chosen(Options options, Collection<MessageQueue> queues) {
        List<MessageQueue> wanted = new ArrayList<>();
        for (MessageQueue queue : queues) {
            if (!options.has("queue-id") || queue.getQueueId() == options.number("queue-id", 0)) {
                wanted.add(queue);
            }
        }
        return wanted;
    }

    private static void finish(Report report, int received) throws Exception {
        report.close();
        Event.named("pulled").with("messages", received).print();
    }

    /**
     * Polls after a seek in each queue, and takes each message in its turn.
     *
     * <p>The client may lose a seek: the task that pulled the queue before may still take the new offset, see that it has been cancelled and end, and its
     * successor then begins at the offset before, where there may be nothing; and what such a task has under way may still come afterwards
     * (DefaultLitePullConsumerImpl.nextPullOffset and seek do not exclude each other, whatever the broker). So the queue is sought anew at the
     * message that is next, when another one comes or nothing does; what a broker gives wrongly comes wrong again and never makes up the count.
     */
    static void withLitePullConsumer(Options options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.text("group", "INTEROP_LITE"), Keys.hook(options));
        consumer.setNamesrvAddr(options.text("name-server"));
        consumer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        consumer.setAutoCommit(false);
        consumer.start();
        Report report = new Report(options.text("report"));
        Map<String, MessageQueue> queues = new HashMap<>();
        Map<MessageQueue, Long> next = new HashMap<>();
        for (MessageQueue queue : chosen(options, consumer.fetchMessageQueues(options.text("topic")))) {
            queues.put(queue.getBrokerName() + "/" + queue.getQueueId(), queue);
            next.put(queue, options.wide("from", 0));
        }
        consumer.assign(queues.values());
        seekAll(consumer, next);
        int received = 0;
        int emptyPolls = 0;
        long end = System.nanoTime() + options.wide("deadline-ms", 60_000) * 1_000_000;
        while (received < options.number("count", Integer.MAX_VALUE) && System.nanoTime() < end) {
            List<MessageExt> polled = consumer.poll(500);
            emptyPolls = polled.isEmpty() ? emptyPolls + 1 : 0;
            if (emptyPolls == EMPTY_POLLS_MAX) {
                emptyPolls = 0;
                seekAll(consumer, next);
            }
            for (MessageExt message : polled) {
                MessageQueue queue = queues.get(message.getBrokerName() + "/" + message.getQueueId());
                if (message.getQueueOffset() != next.get(queue)) {
                    consumer.seek(queue, next.get(queue));
                    break;
                }
                next.merge(queue, 1L, Long::sum);
                report.received(message, "POLLED");
                received++;
            }
        }
        consumer.commitSync();
        consumer.shutdown();
        finish(report, received);
    }

    private static void seekAll(DefaultLitePullConsumer consumer, Map<MessageQueue, Long> offsets) throws Exception {
        for (Map.Entry<MessageQueue, Long> entry : offsets.entrySet()) {
            consumer.seek(entry.getKey(), entry.getValue());
        }
    }

    @SuppressWarnings("deprecation")
    static void withPullConsumer(Options options) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group", "INTEROP_PULL"), Keys.hook(options));
        consumer.setNamesrvAddr(options.text("name-server"));
        consumer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        consumer.setConsumerPullTimeoutMillis(30_000);
        consumer.start();
        Report report = new Report(options.text("report"));
        int received = 0;
        for (MessageQueue queue : chosen(options, consumer.fetchSubscribeMessageQueues(options.text("topic")))) {
            received += pullToEnd(consumer, queue, options, report, received);
        }
        consumer.shutdown();
        finish(report, received);
    }

    @SuppressWarnings("deprecation")
    private static int pullToEnd(DefaultMQPullConsumer consumer, MessageQueue queue, Options options, Report report, int before) throws Exception {
        int limit = options.number("count", Integer.MAX_VALUE) - before;
        int received = 0;
        PullResult result = consumer.pull(queue, options.text("tags", "*"), options.wide("from", 0), 32);
        while (received < limit && result.getPullStatus() != PullStatus.NO_NEW_MSG && result.getPullStatus() != PullStatus.OFFSET_ILLEGAL) {
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    report.received(message, result.getPullStatus().name());
                    received++;
                }
            }
            result = consumer.pull(queue, options.text("tags", "*"), result.getNextBeginOffset(), 32);
        }
        return received;
    }
}
