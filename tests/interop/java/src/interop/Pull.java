package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

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

    static void withLitePullConsumer(Options options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.text("group", "INTEROP_LITE"));
        consumer.setNamesrvAddr(options.text("name-server"));
        consumer.setAutoCommit(false);
        consumer.start();
        Report report = new Report(options.text("report"));
        List<MessageQueue> queues = chosen(options, consumer.fetchMessageQueues(options.text("topic")));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seek(queue, options.wide("from", 0));
        }
        int received = 0;
        Set<MessageQueue> sought = new HashSet<>();
        int emptyPolls = 0;
        long end = System.nanoTime() + options.wide("deadline-ms", 20_000) * 1_000_000;
        while (received < options.number("count", Integer.MAX_VALUE) && System.nanoTime() < end) {
            List<MessageExt> polled = consumer.poll(500);
            emptyPolls = polled.isEmpty() ? emptyPolls + 1 : 0;
            if (emptyPolls == EMPTY_POLLS_MAX) {
                emptyPolls = 0;
                for (MessageQueue queue : queues) {
                    if (!sought.contains(queue)) {
                        consumer.seek(queue, options.wide("from", 0));
                    }
                }
            }
            if (!polled.isEmpty() && !isWhereSought(polled.get(0), queues, options.wide("from", 0), sought, consumer)) {
                continue;
            }
            for (MessageExt message : polled) {
                report.received(message, "POLLED");
                received++;
            }
        }
        consumer.commitSync();
        consumer.shutdown();
        finish(report, received);
    }

    /**
     * Looks whether a queue's first message lies behind the offset sought; if not, seeks again.
     *
     * <p>The client may lose a seek: the task that pulled the queue before may still take the new offset, see that it has been cancelled and end, and its
     * successor then begins at the offset before, where there may be nothing (DefaultLitePullConsumerImpl.nextPullOffset and seek do not exclude each other).
     */
    private static boolean isWhereSought(
        MessageExt first, List<MessageQueue> queues, long from, Set<MessageQueue> sought, DefaultLitePullConsumer consumer) throws Exception {
        for (MessageQueue queue : queues) {
            if (queue.getQueueId() == first.getQueueId() && queue.getBrokerName().equals(first.getBrokerName()) && !sought.contains(queue)) {
                if (first.getQueueOffset() < from) {
                    consumer.seek(queue, from);
                    return false;
                }
                sought.add(queue);
            }
        }
        return true;
    }

    @SuppressWarnings("deprecation")
    static void withPullConsumer(Options options) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.text("group", "INTEROP_PULL"));
        consumer.setNamesrvAddr(options.text("name-server"));
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
