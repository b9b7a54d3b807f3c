package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply through a topic: the asker gets its own body back with {@code "re: "} in front of it. */
final class Exchange {
    private static final String PREFIX = "re: ";

    private Exchange() {
    }

    static void request(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("INTEROP_ASKER");
        producer.setNamesrvAddr(options.text("name-server"));
        producer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        producer.start();
        Corpus corpus = new Corpus(options);
        for (int index = 0; index < corpus.count; index++) {
            Message question = corpus.message(index);
            Message reply = ask(producer, question, options.wide("timeout-ms", 10_000));
            Event.named("reply").with("key", question.getKeys()).with("body", new String(reply.getBody(), StandardCharsets.UTF_8)).print();
        }
        producer.shutdown();
    }

    /**
     * Asks with a callback: since 5.3.1 the blocking form takes the acknowledgement of the question for the reply.
     *
     * <p>So does the callback of 4.9, but it says so by a missing message and is called again for the reply.
     */
    private static Message ask(DefaultMQProducer producer, Message question, long timeoutMs) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(question, new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                if (message != null) {
                    reply.complete(message);
                }
            }

            @Override
            public void onException(Throwable failure) {
                reply.completeExceptionally(failure);
            }
        }, timeoutMs);
        return reply.get(timeoutMs * 2, TimeUnit.MILLISECONDS);
    }

    static void answer(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("INTEROP_ANSWERER");
        producer.setNamesrvAddr(options.text("name-server"));
        producer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        producer.setSendMsgTimeout(options.number("timeout-ms", 30_000));
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("name-server"));
        consumer.setMqClientApiTimeout(options.number("api-timeout-ms", 30_000));
        consumer.setPullTimeDelayMillsWhenException(100);
        // It takes its queues after start has returned: a question may be there by then.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> reply(producer, messages, context));
        consumer.start();
        Event.named("ready").print();
        while (Talk.in().read() >= 0) {
            continue;
        }
        consumer.shutdown();
        producer.shutdown();
    }

    private static ConsumeConcurrentlyStatus reply(DefaultMQProducer producer, List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        for (MessageExt message : messages) {
            String body = PREFIX + new String(message.getBody(), StandardCharsets.UTF_8);
            try {
                producer.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)));
            } catch (Exception failure) {
                Event.named("unanswered").with("key", message.getKeys()).with("reason", failure.toString()).print();
            }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }
}
