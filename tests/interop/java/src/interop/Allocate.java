package interop;

import java.io.BufferedReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;

import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Divides queues as rebalancing does: sorts both lists, then asks the strategy for each member's part.
 *
 * <p>A case is one line of the file {@code cases}: strategy, its parameter, client ids and queues, separated by tabs; ids are separated by commas,
 * queues too, each being topic:broker:id. The line of the report is the case, and the members' parts in the order of their ids: queues by
 * their number in the sorted list, separated by commas, {@code -} for none, {@code !} for an exception.
 *
 * <p>The machine room of a broker or client is its name up to the first hyphen.
 */
final class Allocate {
    private Allocate() {
    }

    static void run(Options options) throws Exception {
        int cases = 0;
        try (BufferedReader input = Files.newBufferedReader(Paths.get(options.text("cases")), StandardCharsets.UTF_8);
            PrintStream out = new PrintStream(options.text("report"), "UTF-8")) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] fields = line.split("\t", -1);
                out.print(line + "\t" + divide(fields[0], fields[1], list(fields[2]), queues(fields[3])) + "\n");
                cases++;
            }
        }
        Event.named("allocated").with("cases", cases).print();
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? new ArrayList<>() : new ArrayList<>(Arrays.asList(text.split(",", -1)));
    }

    private static List<MessageQueue> queues(String text) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String queue : list(text)) {
            String[] parts = queue.split(":", -1);
            queues.add(new MessageQueue(parts[0], parts[1], Integer.parseInt(parts[2])));
        }
        return queues;
    }

    private static String divide(String name, String parameter, List<String> members, List<MessageQueue> queues) {
        Collections.sort(queues);
        Collections.sort(members);
        List<String> parts = new ArrayList<>();
        for (String member : members) {
            parts.add(part(name, parameter, member, members, queues));
        }
        return String.join(" ", parts);
    }

    private static String part(String name, String parameter, String member, List<String> members, List<MessageQueue> queues) {
        List<String> mine = new ArrayList<>();
        try {
            for (MessageQueue queue : strategy(name, parameter, queues).allocate("G", member, queues, members)) {
                mine.add(String.valueOf(queues.indexOf(queue)));
            }
        } catch (Exception failure) {
            return "!";
        }
        return mine.isEmpty() ? "-" : String.join(",", mine);
    }

    private static AllocateMessageQueueStrategy strategy(String name, String parameter, List<MessageQueue> queues) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(parameter.isEmpty() ? 10 : Integer.parseInt(parameter));
            case "CONFIG":
                AllocateMessageQueueByConfig fixed = new AllocateMessageQueueByConfig();
                fixed.setMessageQueueList(queues(parameter));
                return fixed;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(list(parameter)));
                return rooms;
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(strategy(parameter, "", queues), new AllocateMachineRoomNearby.MachineRoomResolver() {
                    @Override
                    public String brokerDeployIn(MessageQueue queue) {
                        return room(queue.getBrokerName());
                    }

                    @Override
                    public String consumerDeployIn(String client) {
                        return room(client);
                    }
                });
            default:
                throw new IllegalArgumentException("unknown strategy " + name);
        }
    }

    private static String room(String name) {
        int end = name.indexOf('-');
        return end < 0 ? "" : name.substring(0, end);
    }
}
