package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A push consumer that reports each delivery and obeys lines on standard input: {@code queues}, {@code count}, {@code commit}, {@code stop}; end of input
 * stops too.
 *
 * <p>The answer to {@code queues} also says how many queues of the group's retry topic it has. On {@code commit} it sends its offsets to the broker,
 * which it does by itself every five seconds, but not in its first ten.
 *
 * <p>It leaves when the listener has returned and its offsets have moved: without that a client may leave behind the back of its own listener.
 *
 * <p>The option poll-ms shortens the pauses between looks at routes and at the shares of the group, which decide how soon a retry topic is found.
 *
 * <p>With the option broadcasting it keeps its offsets in a file below user.home, as Java clients do.
 *
 * <p>The option from says where a new group begins (a name of ConsumeFromWhere, with timestamp as yyyyMMddHHmmss); trace, namespace and unit-mode
 * are the client's.
 *
 * <p>With the option live the report is written line by line, so that the process may be killed.
 *
 * <p>A file of refusals (key, tab, how many times) makes it ask for a later delivery of those messages; it then takes messages one by one.
 * With one thread, the report of a concurrent consumer keeps the order in which each queue was pulled.
 *
 * <p>The option answers, statuses joined by commas, makes an orderly listener commit by hand and answer one call after the other so, and then
 * SUCCESS; null is one of them.
 */
final class Consume {
    private final Options options;
    private final Report report;
    private final DefaultMQPushConsumer consumer;
    private final Map<String, Integer> refusals = new HashMap<>();
    private final AtomicInteger deliveries = new AtomicInteger();
    private final List<String> answers;

    Consume(Options options) throws Exception {
        this.options = options;
        if (options.has("poll-ms")) {
            System.setProperty("rocketmq.client.rebalance.waitInterval", options.text("poll-ms"));
        }
        report = new Report(options.text("report"), options.has("live"));
        answers = options.has("answers") ? new ArrayList<>(Arrays.asList(options.text("answers").split(","))) : null;
        consumer = new DefaultMQPushConsumer(options.text("group"), Keys.hook(options), new AllocateMessageQueueAveragely(), options.has("trace"), null);
        if (options.has("namespace")) {
            consumer.setNamespace(options.text("namespace"));
        }
        consumer.setUnitMode(options.has("unit-mode"));
        consumer.setNamesrvAddr(options.text("name-server"));
        consumer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        consumer.setAwaitTerminationMillisWhenShutdown(30_000);
        consumer.setPollNameServerInterval(options.number("poll-ms", 30_000));
        consumer.setInstanceName(options.text("instance", "DEFAULT"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(options.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        if (options.has("timestamp")) {
            consumer.setConsumeTimestamp(options.text("timestamp"));
        }
        consumer.setConsumeThreadMin(options.number("threads", 1));
        consumer.setConsumeThreadMax(options.number("threads", 1));
        consumer.setConsumeMessageBatchMaxSize(options.number("batch-size", 32));
        consumer.setPullBatchSize(options.number("pull-batch-size", 32));
        if (options.text("strategy", "AVG").equals("CONSISTENT_HASH")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
        } else if (options.text("strategy", "AVG").equals("AVG_BY_CIRCLE")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
        }
        consumer.setMaxReconsumeTimes(options.number("max-reconsume-times", -1));
        if (options.has("broadcasting")) {
            broadcast();
            consumer.setPersistConsumerOffsetInterval(500);
        }
        if (options.has("refusals")) {
            consumer.setConsumeMessageBatchMaxSize(1);
            for (String line : Files.readAllLines(Paths.get(options.text("refusals")), StandardCharsets.UTF_8)) {
                String[] fields = line.split("\t");
                refusals.put(fields[0], Integer.parseInt(fields[1]));
            }
        }
    }

    /** Sets the message model, whose class has moved to another package between the releases. */
    private void broadcast() throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    void run() throws Exception {
        if (options.has("sql")) {
            consumer.subscribe(options.text("topic"), MessageSelector.bySql(options.text("sql")));
        } else {
            consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        }
        if (options.text("listener", "concurrent").equals("orderly")) {
            consumer.setSuspendCurrentQueueTimeMillis(options.number("suspend-ms", 100));
            consumer.registerMessageListener((MessageListenerOrderly) this::inOrder);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) this::concurrently);
        }
        consumer.start();
        Event.named("ready").with("client", consumer.buildMQClientId()).print();
        obey();
        consumer.shutdown();
        report.close();
        Event.named("stopped").with("deliveries", deliveries.get()).print();
    }

    private boolean refuses(MessageExt message) {
        return message.getReconsumeTimes() < refusals.getOrDefault(message.getKeys(), 0);
    }

    private ConsumeConcurrentlyStatus concurrently(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        ConsumeConcurrentlyStatus outcome = ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        if (refuses(messages.get(0))) {
            context.setDelayLevelWhenNextConsume(options.number("delay-level", 1));
            outcome = ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
        report(messages, outcome.name());
        return outcome;
    }

    private ConsumeOrderlyStatus inOrder(List<MessageExt> messages, ConsumeOrderlyContext context) {
        if (answers != null) {
            return byHand(messages, context);
        }
        ConsumeOrderlyStatus outcome =
            refuses(messages.get(0)) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        report(messages, outcome.name());
        return outcome;
    }

    private ConsumeOrderlyStatus byHand(List<MessageExt> messages, ConsumeOrderlyContext context) {
        context.setAutoCommit(false);
        String answer = answers.isEmpty() ? "SUCCESS" : answers.remove(0);
        report(messages, answer);
        return answer.equals("null") ? null : ConsumeOrderlyStatus.valueOf(answer);
    }

    private void report(List<MessageExt> messages, String outcome) {
        for (MessageExt message : messages) {
            report.received(message, outcome);
        }
        deliveries.addAndGet(messages.size());
    }

    private void obey() throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(Talk.in(), StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null && !line.equals("stop"); line = input.readLine()) {
            if (line.equals("queues")) {
                Event.named("queues").with("queues", queues()).with("retryQueues", retryQueues()).print();
            } else if (line.equals("count")) {
                Event.named("count").with("deliveries", deliveries.get()).print();
            } else if (line.equals("commit")) {
                consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
                Event.named("commit").print();
            } else {
                Event.named("failed").with("reason", "unknown order " + line).print();
            }
        }
    }

    /** All queues that rebalancing has given to this consumer. */
    private TreeSet<MessageQueue> held() {
        return new TreeSet<>(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
    }

    private long retryQueues() {
        String retryTopic = MixAll.getRetryTopic(consumer.getConsumerGroup());
        return held().stream().filter(queue -> queue.getTopic().equals(retryTopic)).count();
    }

    /** The queues of the topic that rebalancing has given to this consumer. */
    private List<Event> queues() {
        List<Event> queues = new ArrayList<>();
        for (MessageQueue queue : held()) {
            if (queue.getTopic().equals(options.text("topic"))) {
                queues.add(new Event().with("broker", queue.getBrokerName()).with("queueId", queue.getQueueId()));
            }
        }
        return queues;
    }
}
