package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A lite pull consumer that shares a topic with its group, polls in a thread of its own, reports each message and obeys the lines of {@link Consume}.
 *
 * <p>It commits what it has polled each second, and once more before it leaves.
 */
final class LiteConsume {
    private final Options options;
    private final Report report;
    private final DefaultLitePullConsumer consumer;
    private final AtomicInteger deliveries = new AtomicInteger();
    private volatile boolean stopping;

    LiteConsume(Options options) throws Exception {
        this.options = options;
        if (options.has("poll-ms")) {
            System.setProperty("rocketmq.client.rebalance.waitInterval", options.text("poll-ms"));
        }
        report = new Report(options.text("report"));
        consumer = new DefaultLitePullConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("name-server"));
        consumer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        consumer.setInstanceName(options.text("instance", "DEFAULT"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommitIntervalMillis(1_000);
    }

    void run() throws Exception {
        consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        consumer.start();
        Event.named("ready").with("client", consumer.buildMQClientId()).print();
        Thread poller = new Thread(this::poll, "poller");
        poller.start();
        obey();
        stopping = true;
        poller.join();
        consumer.commitSync();
        consumer.shutdown();
        report.close();
        Event.named("stopped").with("deliveries", deliveries.get()).print();
    }

    private void poll() {
        while (!stopping) {
            for (MessageExt message : consumer.poll(100)) {
                report.received(message, "POLLED");
                deliveries.incrementAndGet();
            }
        }
    }

    private void obey() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(Talk.in(), StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null && !line.equals("stop"); line = input.readLine()) {
            if (line.equals("queues")) {
                Event.named("queues").with("queues", queues()).print();
            } else if (line.equals("count")) {
                Event.named("count").with("deliveries", deliveries.get()).print();
            } else {
                Event.named("failed").with("reason", "unknown order " + line).print();
            }
        }
    }

    private List<Event> queues() throws Exception {
        List<Event> queues = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(consumer.assignment())) {
            queues.add(new Event().with("broker", queue.getBrokerName()).with("queueId", queue.getQueueId()));
        }
        return queues;
    }
}
