package interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends each line in a transaction. By line number modulo four: 0 commits, 1 rolls back, 2 says nothing and commits when the broker asks,
 * 3 says nothing and rolls back when asked. Ends when every silent one has been asked about, or at the deadline.
 */
final class Transact implements TransactionListener {
    private final Options options;
    private final Corpus corpus;
    private final TransactionMQProducer producer;
    private final Map<String, Integer> waiting = new ConcurrentHashMap<>();
    private final AtomicInteger checks = new AtomicInteger();

    Transact(Options options) throws Exception {
        this.options = options;
        corpus = new Corpus(options);
        producer = new TransactionMQProducer(options.text("group", "INTEROP_TRANSACTIONS"), Keys.hook(options));
        producer.setNamesrvAddr(options.text("name-server"));
        producer.setSendMsgTimeout(60_000);
        producer.setTransactionListener(this);
    }

    void run() throws Exception {
        producer.start();
        Report report = new Report(options.text("report"));
        for (int index = 0; index < corpus.count; index++) {
            Message message = corpus.message(index);
            TransactionSendResult result = producer.sendMessageInTransaction(message, corpus.line(index));
            report.sent(message.getKeys(), result.getLocalTransactionState().name(), result.getMsgId(), result.getOffsetMsgId(),
                result.getMessageQueue().getBrokerName(), result.getMessageQueue().getQueueId(), result.getQueueOffset());
        }
        report.close();
        long end = System.nanoTime() + options.wide("deadline-ms", 60_000) * 1_000_000;
        synchronized (this) {
            while (!waiting.isEmpty() && System.nanoTime() < end) {
                wait(200);
            }
        }
        // The decision on the last check is sent by another thread after the listener has returned, and it is one-way: only a consumer can see
        // that it arrived. Staying until standard input ends lets the owner look first.
        Event.named("transacted").with("messages", corpus.count).with("checks", checks.get()).with("unasked", waiting.size()).print();
        while (Talk.in().read() >= 0) {
            continue;
        }
        producer.shutdown();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object line) {
        int plan = (Integer) line % 4;
        if (plan < 2) {
            return plan == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
        waiting.put(message.getKeys(), plan);
        return LocalTransactionState.UNKNOW;
    }

    @Override
    public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
        checks.incrementAndGet();
        Integer plan = waiting.remove(message.getKeys());
        notifyAll();
        boolean commit = plan == null ? Integer.parseInt(message.getKeys().replaceAll("\\D", "")) % 4 == 2 : plan == 2;
        return commit ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }
}
