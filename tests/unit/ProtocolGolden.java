// Prints tests/unit/protocol_golden.txt with the classes of RocketMQ 4.9.8 and its fastjson 1.2.69:
//   javac -cp "<jars>" ProtocolGolden.java && TZ=UTC java -Dfile.encoding=UTF-8 -cp "<jars>:." ProtocolGolden
// One row a line: name, tab, content. A name that ends in ":hex" has bytes in hexadecimal; in other rows a line feed and
// a tab are written as \n and \t.
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.admin.OffsetWrapper;
import org.apache.rocketmq.common.admin.TopicOffset;
import org.apache.rocketmq.common.admin.TopicStatsTable;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageQueueForC;
import org.apache.rocketmq.common.protocol.body.*;
import org.apache.rocketmq.common.protocol.header.*;
import org.apache.rocketmq.common.protocol.header.namesrv.*;
import org.apache.rocketmq.common.protocol.heartbeat.*;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.common.protocol.topic.OffsetMovedEvent;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.SerializeType;

public class ProtocolGolden {
    static final SerializerFeature[] STRICT = {SerializerFeature.BrowserCompatible, SerializerFeature.QuoteFieldNames,
        SerializerFeature.SkipTransientField, SerializerFeature.MapSortField};
    static final Class<?>[] HEADERS = {
        SendMessageRequestHeader.class, SendMessageRequestHeaderV2.class, ReplyMessageRequestHeader.class,
        ConsumerSendMsgBackRequestHeader.class, PullMessageRequestHeader.class, UnregisterClientRequestHeader.class,
        GetConsumerListByGroupRequestHeader.class, QueryConsumerOffsetRequestHeader.class,
        UpdateConsumerOffsetRequestHeader.class, SearchOffsetRequestHeader.class, GetMaxOffsetRequestHeader.class,
        GetMinOffsetRequestHeader.class, GetEarliestMsgStoretimeRequestHeader.class, EndTransactionRequestHeader.class,
        CheckTransactionStateRequestHeader.class, ResumeCheckHalfMessageRequestHeader.class,
        NotifyConsumerIdsChangedRequestHeader.class, ResetOffsetRequestHeader.class,
        GetConsumerStatusRequestHeader.class, GetConsumerRunningInfoRequestHeader.class,
        ConsumeMessageDirectlyResultRequestHeader.class, QueryMessageRequestHeader.class,
        ViewMessageRequestHeader.class, CreateTopicRequestHeader.class, DeleteTopicRequestHeader.class,
        DeleteSubscriptionGroupRequestHeader.class, GetTopicStatsInfoRequestHeader.class,
        GetConsumerConnectionListRequestHeader.class, GetProducerConnectionListRequestHeader.class,
        GetAllProducerInfoRequestHeader.class, GetConsumeStatsRequestHeader.class,
        GetConsumeStatsInBrokerHeader.class, QueryTopicConsumeByWhoRequestHeader.class,
        QueryConsumeTimeSpanRequestHeader.class, QueryCorrectionOffsetHeader.class,
        CloneGroupOffsetRequestHeader.class, ViewBrokerStatsDataRequestHeader.class,
        QueryConsumeQueueRequestHeader.class, CreateAccessConfigRequestHeader.class,
        DeleteAccessConfigRequestHeader.class, UpdateGlobalWhiteAddrsConfigRequestHeader.class,
        PutKVConfigRequestHeader.class, GetKVConfigRequestHeader.class, DeleteKVConfigRequestHeader.class,
        GetKVListByNamespaceRequestHeader.class, RegisterBrokerRequestHeader.class,
        UnRegisterBrokerRequestHeader.class, QueryDataVersionRequestHeader.class, GetRouteInfoRequestHeader.class,
        WipeWritePermOfBrokerRequestHeader.class, AddWritePermOfBrokerRequestHeader.class,
        GetTopicsByClusterRequestHeader.class, DeleteTopicFromNamesrvRequestHeader.class,
        SendMessageResponseHeader.class, PullMessageResponseHeader.class, UnregisterClientResponseHeader.class,
        GetConsumerListByGroupResponseHeader.class, QueryConsumerOffsetResponseHeader.class,
        UpdateConsumerOffsetResponseHeader.class, SearchOffsetResponseHeader.class, GetMaxOffsetResponseHeader.class,
        GetMinOffsetResponseHeader.class, GetEarliestMsgStoretimeResponseHeader.class,
        QueryMessageResponseHeader.class, GetAllTopicConfigResponseHeader.class, GetBrokerConfigResponseHeader.class,
        GetBrokerAclConfigResponseHeader.class, GetKVConfigResponseHeader.class, RegisterBrokerResponseHeader.class,
        QueryDataVersionResponseHeader.class, WipeWritePermOfBrokerResponseHeader.class,
        AddWritePermOfBrokerResponseHeader.class};

    static void text(String name, String content) {
        System.out.println(name + "\t" + content.replace("\n", "\\n").replace("\t", "\\t"));
    }

    static void body(RemotingSerializable body) {
        body(body.getClass().getSimpleName(), body);
    }

    static void body(String name, RemotingSerializable body) {
        text(name, new String(body.encode(), StandardCharsets.UTF_8));
    }

    static void hex(String name, byte[] bytes) {
        StringBuilder digits = new StringBuilder();
        for (byte b : bytes) {
            digits.append(String.format("%02x", b));
        }
        text(name + ":hex", digits.toString());
    }

    static MessageQueue queue(int id) {
        return new MessageQueue("T", "broker-a", id);
    }

    public static void main(String[] args) throws Exception {
        json();
        headers();
        statistics();
        clients();
        topics();
        routes();
        callbacks();
        for (SerializeType type : SerializeType.values()) {
            frames(type);
        }
        messages();
    }

    static void json() throws Exception {
        StringBuilder characters = new StringBuilder();
        for (int unit = 0; unit < 0x180; unit++) {
            characters.append((char) unit);
        }
        characters.append("\u2028\u2029\u4e2d\ud83d\ude00/\ud800x");
        String all = characters.toString();
        hex("json.characters", JSON.toJSONString(all).getBytes(StandardCharsets.UTF_8));
        hex("json.characters.browser",
            JSON.toJSONString(all, SerializerFeature.BrowserCompatible).getBytes(StandardCharsets.UTF_8));
        double[] doubles = {0, -0.0, 1, -1.5, 0.001, 0.00099, 1e-5, 9999999.0, 1e7, 12345678.9, 1.0 / 3, 4.0 / 3, 1e300,
            -2.5e-300, 100, 1e22, Double.NaN, Double.POSITIVE_INFINITY, 1.7976931348623157e308, 123456.789, 1e-3, 1e16};
        for (double d : doubles) {
            text("json.double." + Double.doubleToRawLongBits(d), JSON.toJSONString(d));
        }
        Map<Integer, Long> offsets = new TreeMap<>(Map.of(0, 3L, 1, 6L));
        Map<MessageQueue, Long> queues = new TreeMap<>(Map.of(queue(0), 5L, queue(1), 6L));
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("offsetTable", Collections.singletonMap("t@g", offsets));
        document.put("emptyMap", new HashMap<>());
        document.put("list", Arrays.asList(1, 2));
        document.put("maps", Arrays.asList(Map.of("a", 1), Map.of("b", "x/y")));
        document.put("emptyList", new ArrayList<>());
        document.put("array", new int[] {45, 91});
        document.put("set", new TreeSet<>(Arrays.asList("a", "b")));
        document.put("queues", queues);
        document.put("nested", Collections.singletonMap("x", Arrays.asList(Arrays.asList(1, 2), true)));
        document.put("null", null);
        document.put("nullInList", Arrays.asList(1, null));
        text("json.compact", JSON.toJSONString(document));
        text("json.pretty", JSON.toJSONString(document, true));
        text("json.browser", JSON.toJSONString(new TreeMap<>(document), STRICT));
    }

    static void headers() {
        for (Class<?> header : HEADERS) {
            StringBuilder fields = new StringBuilder();
            for (Class<?> level = header; level != Object.class; level = level.getSuperclass()) {
                for (Field field : level.getDeclaredFields()) {
                    if (!Modifier.isStatic(field.getModifiers())) {
                        String mark = field.getAnnotation(CFNotNull.class) != null ? "!" : "?";
                        fields.append(field.getName()).append(' ').append(field.getType().getSimpleName()).append(mark)
                            .append(',');
                    }
                }
            }
            text("header." + header.getSimpleName(), fields.toString());
        }
    }

    static void statistics() throws Exception {
        TopicOffset offset = new TopicOffset();
        offset.setMinOffset(1);
        offset.setMaxOffset(9);
        offset.setLastUpdateTimestamp(1795245418426L);
        TopicStatsTable topicStats = new TopicStatsTable();
        topicStats.getOffsetTable().put(queue(0), offset);
        body(topicStats);
        OffsetWrapper wrapper = new OffsetWrapper();
        wrapper.setBrokerOffset(9);
        wrapper.setConsumerOffset(7);
        wrapper.setLastTimestamp(5);
        ConsumeStats stats = new ConsumeStats();
        stats.getOffsetTable().put(queue(0), wrapper);
        stats.setConsumeTps(4.0 / 3);
        body(stats);
        ConsumeStatsList list = new ConsumeStatsList();
        list.setBrokerAddr("127.0.0.1:10911");
        list.setTotalDiff(2);
        list.getConsumeStatsList().add(Collections.singletonMap("g", new ArrayList<>(Arrays.asList(stats))));
        body(list);
        GroupList groups = new GroupList();
        groups.getGroupList().add("g");
        body(groups);
        QueueTimeSpan span = new QueueTimeSpan();
        span.setMessageQueue(queue(0));
        span.setMinTimeStamp(1795245418426L);
        span.setMaxTimeStamp(1795245418999L);
        span.setConsumeTimeStamp(1795245418005L);
        span.setDelayTime(994);
        QueryConsumeTimeSpanBody spans = new QueryConsumeTimeSpanBody();
        spans.setConsumeTimeSpanSet(Arrays.asList(span));
        body(spans);
        QueryCorrectionOffsetBody correction = new QueryCorrectionOffsetBody();
        correction.setCorrectionOffsets(new HashMap<>(Map.of(0, 3L, 1, 6L)));
        body(correction);
        BrokerStatsItem item = new BrokerStatsItem();
        item.setSum(5);
        item.setTps(0.5);
        item.setAvgpt(1);
        BrokerStatsData data = new BrokerStatsData();
        data.setStatsMinute(item);
        data.setStatsHour(new BrokerStatsItem());
        data.setStatsDay(new BrokerStatsItem());
        body(data);
        ConsumeQueueData unit = new ConsumeQueueData();
        unit.setPhysicOffset(7);
        unit.setPhysicSize(8);
        unit.setTagsCode(-9);
        QueryConsumeQueueResponseBody units = new QueryConsumeQueueResponseBody();
        units.setQueueData(Arrays.asList(unit));
        units.setMaxQueueIndex(1);
        body(units);
    }

    static SubscriptionData subscription() throws Exception {
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("TopicT1", "TagA || TagB");
        subscription.setSubVersion(1795245418616L);
        return subscription;
    }

    static void clients() throws Exception {
        ProducerData producer = new ProducerData();
        producer.setGroupName("CLIENT_INNER_PRODUCER");
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("g_push");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.getSubscriptionDataSet().add(subscription());
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("192.0.2.2@1#2");
        heartbeat.getProducerDataSet().add(producer);
        heartbeat.getConsumerDataSet().add(consumer);
        body(heartbeat);
        CheckClientRequestBody check = new CheckClientRequestBody();
        check.setClientId("c");
        check.setGroup("g");
        check.setSubscriptionData(subscription());
        body(check);
        Connection connection = new Connection();
        connection.setClientAddr("127.0.0.1:5");
        connection.setClientId("c");
        connection.setLanguage(LanguageCode.JAVA);
        connection.setVersion(409);
        ConsumerConnection consumers = new ConsumerConnection();
        consumers.getConnectionSet().add(connection);
        consumers.getSubscriptionTable().put("TopicT1", subscription());
        consumers.setConsumeType(ConsumeType.CONSUME_ACTIVELY);
        consumers.setMessageModel(MessageModel.BROADCASTING);
        consumers.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        body(consumers);
        ProducerConnection producers = new ProducerConnection();
        producers.getConnectionSet().add(connection);
        body(producers);
        ProducerInfo info = new ProducerInfo("c", "/127.0.0.1:5", LanguageCode.GO, 317, 77L);
        body(new ProducerTableInfo(new HashMap<>(Map.of("g", Arrays.asList(info)))));
        GetConsumerListByGroupResponseBody ids = new GetConsumerListByGroupResponseBody();
        ids.setConsumerIdList(Arrays.asList("a", "b"));
        body("ConsumerList", ids);
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setClientId("c");
        lock.setConsumerGroup("g");
        lock.getMqSet().add(queue(0));
        body(lock);
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.getLockOKMQSet().add(queue(0));
        body(locked);
    }

    static void topics() throws Exception {
        DataVersion version = new DataVersion();
        version.setTimestamp(1795245418426L);
        version.setCounter(new AtomicLong(2));
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.getTopicConfigTable().put("T", new TopicConfig("T", 8, 8, 6));
        topics.setDataVersion(version);
        body(topics);
        text("TopicConfigSerializeWrapper.pretty", topics.toJson(true));
        RegisterBrokerBody registration = new RegisterBrokerBody();
        registration.setTopicConfigSerializeWrapper(topics);
        body(registration);
        hex("RegisterBrokerBody.compressed", registration.encode(true));
        text("RegisterBrokerBody.crc32", "" + UtilAll.crc32(registration.encode()));
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("g");
        text("SubscriptionGroupConfig", RemotingSerializable.toJson(group, false));
        SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
        groups.getSubscriptionGroupTable().put("g", group);
        groups.setDataVersion(version);
        body(groups);
        ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();
        offsets.getOffsetTable().put("topic@group", new ConcurrentHashMap<>(Map.of(0, 3L, 1, 6L)));
        body(offsets);
        text("ConsumerOffsetSerializeWrapper.pretty", offsets.toJson(true));
        KVTable table = new KVTable();
        table.getTable().put("k", "v");
        body(table);
    }

    static void routes() {
        QueueData queues = new QueueData();
        queues.setBrokerName("broker-a");
        queues.setPerm(6);
        queues.setReadQueueNums(8);
        queues.setWriteQueueNums(8);
        HashMap<Long, String> addresses = new HashMap<>(Map.of(0L, "127.0.0.1:10911", 1L, "127.0.0.1:30911"));
        BrokerData broker = new BrokerData("DefaultCluster", "broker-a", addresses);
        TopicRouteData route = new TopicRouteData();
        route.setQueueDatas(new ArrayList<>(Arrays.asList(queues)));
        route.setBrokerDatas(new ArrayList<>(Arrays.asList(broker)));
        route.setFilterServerTable(new HashMap<>());
        body(route);
        text("TopicRouteData.strict", new String(route.encode(STRICT), StandardCharsets.UTF_8));
        route.setOrderTopicConf("broker-a:4");
        body("TopicRouteData.order", route);
        ClusterInfo info = new ClusterInfo();
        info.setBrokerAddrTable(new HashMap<>(Map.of("broker-a", broker)));
        info.setClusterAddrTable(new HashMap<>(Map.of("DefaultCluster", new HashSet<>(Arrays.asList("broker-a")))));
        body(info);
        TopicList list = new TopicList();
        list.getTopicList().add("T");
        body(list);
        list.setBrokerAddr("127.0.0.1:10911");
        body("TopicList.address", list);
    }

    static void callbacks() throws Exception {
        Map<MessageQueue, Long> offsets = new TreeMap<>(Map.of(queue(0), 5L, queue(1), 6L));
        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(offsets);
        body(reset);
        ResetOffsetBodyForC resetForC = new ResetOffsetBodyForC();
        resetForC.setOffsetTable(Arrays.asList(new MessageQueueForC("T", "broker-a", 1, 5L)));
        body(resetForC);
        GetConsumerStatusBody status = new GetConsumerStatusBody();
        status.getConsumerTable().put("cid", offsets);
        body(status);
        ConsumeStatus rates = new ConsumeStatus();
        rates.setPullRT(1.5);
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        info.getProperties().put("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY");
        info.getSubscriptionSet().add(subscription());
        info.getMqTable().put(queue(0), new ProcessQueueInfo());
        info.getStatusTable().put("T", rates);
        body(info);
        info.setJstack("two words");
        body("ConsumerRunningInfo.jstack", info);
        ConsumeMessageDirectlyResult result = new ConsumeMessageDirectlyResult();
        result.setConsumeResult(CMResult.CR_SUCCESS);
        result.setSpentTimeMills(1);
        body(result);
        result.setRemark("r");
        body("ConsumeMessageDirectlyResult.remark", result);
        OffsetMovedEvent moved = new OffsetMovedEvent();
        moved.setConsumerGroup("g");
        moved.setMessageQueue(queue(0));
        moved.setOffsetNew(5);
        moved.setOffsetRequest(9);
        body(moved);
    }

    static void frame(String name, SerializeType type, int opaque, RemotingCommand command) {
        command.setOpaque(opaque);
        command.setVersion(409);
        command.setSerializeTypeCurrentRPC(type);
        ByteBuffer buffer = command.encode();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        hex("frame." + name + "." + type, bytes);
    }

    static void frames(SerializeType type) {
        GetMaxOffsetResponseHeader offset = new GetMaxOffsetResponseHeader();
        offset.setOffset(7L);
        RemotingCommand response = RemotingCommand.createResponseCommand(GetMaxOffsetResponseHeader.class);
        response.writeCustomHeader(offset);
        response.setCode(0);
        response.setRemark(null);
        frame("response", type, 5, response);
        RemotingCommand refusal = RemotingCommand.createResponseCommand(1, "remark \u4e2d\"\n");
        refusal.setBody("body".getBytes(StandardCharsets.UTF_8));
        frame("refusal", type, -1, refusal);
        RemotingCommand heartbeat = RemotingCommand.createRequestCommand(34, null);
        heartbeat.setLanguage(LanguageCode.GO);
        heartbeat.markOnewayRPC();
        frame("oneway", type, 6, heartbeat);
        RemotingCommand empty = RemotingCommand.createResponseCommand(RegisterBrokerResponseHeader.class);
        empty.setCode(0);
        empty.setRemark(null);
        frame("emptyExtFields", type, 8, empty);
    }

    static void messages() throws Exception {
        Message message = new Message("T", "hello".getBytes(StandardCharsets.UTF_8));
        message.getProperties().clear();
        message.putUserProperty("a", "1");
        message.setFlag(3);
        Message second = new Message("T", new byte[0]);
        second.getProperties().clear();
        hex("batch", MessageDecoder.encodeMessages(Arrays.asList(message, second)));
        MessageExt stored = new MessageExt();
        stored.setTopic("TopicT1");
        stored.setBody("hello".getBytes(StandardCharsets.UTF_8));
        stored.setQueueId(2);
        stored.setBodyCRC(0x3610a686);
        stored.setBornTimestamp(0x1A1FCF72706L);
        stored.setBornHost(new InetSocketAddress("127.0.0.1", 0xA2CC));
        stored.setStoreTimestamp(0x1A1FCF727DDL);
        stored.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        stored.setCommitLogOffset(77);
        stored.setQueueOffset(3);
        stored.setReconsumeTimes(1);
        stored.setPreparedTransactionOffset(5);
        stored.setFlag(9);
        MessageAccessor.putProperty(stored, "KEYS", "k1 k2");
        hex("record", MessageDecoder.encode(stored, false));
        stored.setBornHost(new InetSocketAddress(InetAddress.getByName("2001:db8::1"), 5));
        stored.setSysFlag(0x311);
        hex("record.v6.zlib", MessageDecoder.encode(stored, true));
        text("offsetMessageId", MessageDecoder.createMessageId(new InetSocketAddress("127.0.0.1", 10911), 0x123456789L));
        InetAddress v6 = InetAddress.getByName("2001:db8::1");
        text("offsetMessageId.v6", MessageDecoder.createMessageId(new InetSocketAddress(v6, 10911), 5L));
        for (String text : List.of("", "TagA", "\u4e2d\u6587", "\ud83d\ude00", "a-long-tag-that-wraps-around")) {
            text("hash." + text, "" + text.hashCode());
        }
    }
}
