package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends the corpus. Modes: sync (threads), async (a bound on sends in flight), batch (threads), oneway.
 *
 * <p>With shards, message <i>n</i> belongs to shard <i>n mod shards</i>; a shard goes to one queue, and in mode sync one thread sends it in order.
 *
 * <p>The option poll-ms shortens the pauses between looks at routes. In mode sync, pause-ms is waited after a send that failed.
 */
final class Produce {
    private static final MessageQueueSelector BY_SHARD = (queues, message, shard) -> queues.get((Integer) shard % queues.size());

    private final Options options;
    private final Corpus corpus;
    private final DefaultMQProducer producer;
    private final Report report;
    private final int shards;
    private final AtomicInteger accepted = new AtomicInteger();
    private final AtomicInteger failures = new AtomicInteger();

    Produce(Options options) throws Exception {
        this.options = options;
        corpus = new Corpus(options);
        // Read when a producer is made; both releases have this property, only the younger one has a method.
        System.setProperty("rocketmq.message.compressType", options.text("compress-type", "ZLIB"));
        producer = new DefaultMQProducer(options.text("group", "INTEROP_PRODUCER"), Keys.hook(options), options.has("trace"), null);
        if (options.has("namespace")) {
            producer.setNamespace(options.text("namespace"));
        }
        producer.setUnitMode(options.has("unit-mode"));
        producer.setNamesrvAddr(options.text("name-server"));
        producer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        producer.setPollNameServerInterval(options.number("poll-ms", 30_000));
        producer.setSendMsgTimeout(options.number("timeout-ms", 60_000));
        producer.setRetryTimesWhenSendFailed(options.number("retries", 0));
        producer.setRetryTimesWhenSendAsyncFailed(options.number("retries", 0));
        producer.setDefaultTopicQueueNums(options.number("queues", 4));
        producer.setCompressMsgBodyOverHowmuch(options.number("compress-over", 4096));
        shards = options.number("shards", 0);
        report = new Report(options.text("report"));
    }

    void run() throws Exception {
        producer.start();
        Event.named("ready").with("messages", corpus.count).print();
        long begin = System.nanoTime();
        String mode = options.text("mode", "async");
        switch (mode) {
            case "sync":
                inThreads(this::sendSync);
                break;
            case "batch":
                inThreads(this::sendBatches);
                break;
            case "async":
                sendAsync();
                break;
            case "oneway":
                sendOneway();
                break;
            default:
                throw new IllegalArgumentException("unknown mode " + mode);
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        report.close();
        producer.shutdown();
        Event.named("produced").with("messages", corpus.count).with("accepted", accepted.get()).with("failures", failures.get())
            .with("seconds", seconds).print();
    }

    private interface Share {
        void send(int thread, int threads);
    }

    private void inThreads(Share share) throws Exception {
        int threads = options.number("threads", 1);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<?>> parts = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            int mine = thread;
            parts.add(pool.submit(() -> share.send(mine, threads)));
        }
        for (Future<?> part : parts) {
            part.get();
        }
        pool.shutdown();
    }

    private void sendSync(int thread, int threads) {
        for (int index = 0; index < corpus.count; index++) {
            int line = corpus.line(index);
            int owner = shards > 0 ? line % shards % threads : index % threads;
            if (owner != thread) {
                continue;
            }
            Message message = corpus.message(index);
            try {
                success(message.getKeys(), shards > 0 ? producer.send(message, BY_SHARD, line % shards) : producer.send(message));
            } catch (Exception failure) {
                failed(message.getKeys(), failure);
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(options.number("pause-ms", 0)));
            }
        }
    }

    private void sendBatches(int thread, int threads) {
        int size = options.number("batch-size", 32);
        for (int from = thread * size; from < corpus.count; from += threads * size) {
            List<Message> batch = new ArrayList<>();
            for (int index = from; index < Math.min(from + size, corpus.count); index++) {
                batch.add(corpus.message(index));
            }
            try {
                successes(batch, producer.send(batch));
            } catch (Exception failure) {
                batch.forEach(message -> failed(message.getKeys(), failure));
            }
        }
    }

    private void sendAsync() throws Exception {
        int limit = options.number("in-flight", 256);
        Semaphore room = new Semaphore(limit);
        for (int index = 0; index < corpus.count; index++) {
            Message message = corpus.message(index);
            String key = message.getKeys();
            room.acquire();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    success(key, result);
                    room.release();
                }

                @Override
                public void onException(Throwable failure) {
                    failed(key, failure);
                    room.release();
                }
            };
            try {
                if (shards > 0) {
                    producer.send(message, BY_SHARD, corpus.line(index) % shards, callback);
                } else {
                    producer.send(message, callback);
                }
            } catch (Exception failure) {
                callback.onException(failure);
            }
        }
        room.acquire(limit);
    }

    private void sendOneway() {
        for (int index = 0; index < corpus.count; index++) {
            Message message = corpus.message(index);
            try {
                producer.sendOneway(message);
                accepted.incrementAndGet();
            } catch (Exception failure) {
                failed(message.getKeys(), failure);
            }
        }
    }

    private void success(String key, SendResult result) {
        MessageQueue queue = result.getMessageQueue();
        count(result.getSendStatus());
        report.sent(key, result.getSendStatus().name(), result.getMsgId(), result.getOffsetMsgId(), queue.getBrokerName(), queue.getQueueId(),
            result.getQueueOffset());
    }

    /** A batch has one answer: ids are joined by commas, the offset is the first message's. */
    private void successes(List<Message> batch, SendResult result) {
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        MessageQueue queue = result.getMessageQueue();
        for (int at = 0; at < batch.size(); at++) {
            count(result.getSendStatus());
            report.sent(batch.get(at).getKeys(), result.getSendStatus().name(), at < ids.length ? ids[at] : "",
                at < offsetIds.length ? offsetIds[at] : "", queue.getBrokerName(), queue.getQueueId(), result.getQueueOffset() + at);
        }
    }

    private void count(SendStatus status) {
        (status == SendStatus.SEND_OK ? accepted : failures).incrementAndGet();
    }

    private void failed(String key, Throwable failure) {
        failures.incrementAndGet();
        report.sent(key, failure.toString(), "", "", "", -1, -1);
    }
}
