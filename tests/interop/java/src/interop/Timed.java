package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages that wait for a time: one by its delay in seconds, one in milliseconds, one by its date, and again. Then each line of standard
 * input names the key of one that is to be taken back.
 *
 * <p>Release 5 has methods for that; in 4.9, whose clients do not know the properties, an application may set them itself.
 */
final class Timed {
    private final Options options;
    private final DefaultMQProducer producer;
    private final Map<String, String> handles = new HashMap<>();
    private final List<Event> sent = new ArrayList<>();

    Timed(Options options) throws Exception {
        this.options = options;
        producer = new DefaultMQProducer("INTEROP_TIMERS");
        producer.setNamesrvAddr(options.text("name-server"));
        producer.setSendMsgTimeout(60_000);
    }

    void run() throws Exception {
        producer.start();
        String topic = options.text("topic");
        for (int index = 0; index < options.number("count", 1); index++) {
            send(topic, options.text("prefix") + index, index % 3, options.wide("delay-ms", 1000));
        }
        Event.named("sent").with("messages", sent).print();
        BufferedReader input = new BufferedReader(new InputStreamReader(Talk.in(), StandardCharsets.UTF_8));
        for (String key = input.readLine(); key != null && !key.isEmpty(); key = input.readLine()) {
            Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class).invoke(producer, topic, handles.get(key));
            Event.named("recalled").with("key", key).with("id", id).print();
        }
        producer.shutdown();
    }

    private void send(String topic, String key, int kind, long delayMs) throws Exception {
        Message message = new Message(topic, "*", key, key.getBytes(StandardCharsets.UTF_8));
        long due = System.currentTimeMillis() + delayMs;
        if (kind == 0) {
            set(message, "setDelayTimeSec", "TIMER_DELAY_SEC", delayMs / 1000);
        } else if (kind == 1) {
            set(message, "setDelayTimeMs", "TIMER_DELAY_MS", delayMs);
        } else {
            set(message, "setDeliverTimeMs", "TIMER_DELIVER_MS", due);
        }
        SendResult result = producer.send(message);
        Object handle = null;
        try {
            handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
            handles.put(key, (String) handle);
        } catch (NoSuchMethodException missing) {
            // This release does not read it.
        }
        sent.add(new Event().with("key", key).with("due", due).with("handle", handle).with("id", result.getMsgId()));
    }

    private static void set(Message message, String method, String property, long value) throws Exception {
        try {
            Message.class.getMethod(method, long.class).invoke(message, value);
        } catch (NoSuchMethodException missing) {
            message.putUserProperty(property, Long.toString(value));
        }
    }
}
