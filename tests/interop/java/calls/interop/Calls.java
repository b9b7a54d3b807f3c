package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.serializer.SerializerFeature;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Single calls of Apache's admin client and pull consumer, as programs make them that watch a cluster: name server, object ({@code admin}
 * or {@code puller}), method and a JSON array of arguments on each line of standard input, separated by tabs; a line {@code
 * {"event":"answered","value":...}} for each, whose value is JSON, or with {@code thrown}, {@code code} and {@code message}.
 *
 * <p>A method that has several forms with so many arguments is named with the simple names of their types, as in {@code
 * pull(MessageQueue,String,long,int)}. Objects live as long as this, one of each for each name server.
 */
public final class Calls {
    private static final long TIMEOUT_MILLIS = 30_000;
    private static final Map<String, Object> TARGETS = new HashMap<>();

    private Calls() {
    }

    public static void main(String[] arguments) throws Exception {
        try {
            answerAll();
        } catch (Exception wrong) {
            wrong.printStackTrace();
            System.exit(1); // as threads of the clients would live on
        }
        System.exit(0);
    }

    private static void answerAll() throws Exception {
        PrintStream own = System.out;
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Event answer = answer(line.split("\t"));
            System.setOut(own);
            answer.print();
            System.setOut(System.err);
        }
    }

    private static Event answer(String[] words) throws Exception {
        Event event = Event.named("answered");
        try {
            Object value = call(target(words[0], words[1]), words[2], JSON.parseArray(words[3]));
            Object plain = JSON.toJSON(shown(value));
            return event.with("value", JSON.toJSONString(plain, SerializerFeature.MapSortField, SerializerFeature.WriteMapNullValue));
        } catch (InvocationTargetException wrapped) {
            Throwable thrown = wrapped.getCause();
            event.with("thrown", thrown.getClass().getSimpleName()).with("message", String.valueOf(thrown.getMessage()));
            if (thrown instanceof MQClientException) {
                event.with("code", ((MQClientException) thrown).getResponseCode());
            } else if (thrown instanceof MQBrokerException) {
                event.with("code", ((MQBrokerException) thrown).getResponseCode());
            }
            return event;
        }
    }

    private static Object target(String nameServer, String kind) throws Exception {
        String key = kind + "@" + nameServer;
        Object found = TARGETS.get(key);
        if (found == null) {
            found = "admin".equals(kind) ? admin(nameServer, key) : puller(nameServer, key);
            TARGETS.put(key, found);
        }
        return found;
    }

    private static DefaultMQAdminExt admin(String nameServer, String name) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MILLIS);
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName(name.replace(':', '_'));
        admin.start();
        return admin;
    }

    private static DefaultMQPullConsumer puller(String nameServer, String name) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("TOOLS_CONSUMER");
        puller.setNamesrvAddr(nameServer);
        puller.setInstanceName(name.replace(':', '_'));
        puller.start();
        return puller;
    }

    private static Object call(Object target, String name, JSONArray values) throws Exception {
        if ("messageTrackDetail".equals(name)) {
            Object message = call(target, "viewMessage", values);
            return target.getClass().getMethod(name, MessageExt.class).invoke(target, message);
        }
        Method method = method(target, name, values.size());
        Type[] types = method.getGenericParameterTypes();
        Object[] arguments = new Object[types.length];
        for (int at = 0; at < types.length; at++) {
            arguments[at] = values.getObject(at, types[at]);
        }
        return method.invoke(target, arguments);
    }

    private static Method method(Object target, String name, int count) {
        List<Method> found = new ArrayList<>();
        for (Method method : target.getClass().getMethods()) {
            boolean fits = method.getParameterCount() == count && method.getName().equals(name);
            if (fits || signature(method).equals(name)) {
                found.add(method);
            }
        }
        if (found.size() != 1) {
            throw new IllegalArgumentException(name + " with " + count + " arguments: there are " + found);
        }
        return found.get(0);
    }

    private static String signature(Method method) {
        List<String> types = new ArrayList<>();
        for (Class<?> type : method.getParameterTypes()) {
            types.add(type.getSimpleName());
        }
        return method.getName() + "(" + String.join(",", types) + ")";
    }

    /** What is no bean: messages have buffers among their members, and results that are made of them. */
    private static Object shown(Object value) {
        if (value instanceof MessageExt) {
            return value.toString();
        }
        if (value instanceof QueryResult) {
            return texts(((QueryResult) value).getMessageList());
        }
        if (value instanceof PullResult) {
            PullResult result = (PullResult) value;
            Map<String, Object> members = new LinkedHashMap<>();
            members.put("pullStatus", result.getPullStatus());
            members.put("nextBeginOffset", result.getNextBeginOffset());
            members.put("minOffset", result.getMinOffset());
            members.put("maxOffset", result.getMaxOffset());
            members.put("messages", texts(result.getMsgFoundList()));
            return members;
        }
        return value;
    }

    private static List<String> texts(List<MessageExt> messages) {
        List<String> texts = new ArrayList<>();
        if (messages != null) {
            for (MessageExt message : messages) {
                texts.add(message.toString());
            }
        }
        return texts;
    }
}
