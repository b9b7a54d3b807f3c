package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's mqadmin, many commands in one process: the words of one on each line of standard input, separated by tabs, and a line {@code
 * {"event":"printed","text":...}} for each when it has ended. An empty line is mqadmin without words, which lists its commands.
 *
 * <p>They run one after the other: mqadmin keeps its commands in a static list, which is emptied in between, as some work once only, and
 * tells its clients apart by the millisecond. A first word {@code within=MILLISECONDS} is for those that never end: when the time is over
 * they are interrupted, and what they have printed counts.
 */
public final class Admin {
    private static final String LIMIT = "within=";
    private static final long ENDING_MILLIS = 20_000;

    private Admin() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream own = System.out;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream sink = new PrintStream(printed, true, "UTF-8");
            System.setOut(sink);
            System.setErr(sink);
            forgetCommands();
            run(line);
            System.setOut(own);
            Event.named("printed").with("text", new String(printed.toByteArray(), StandardCharsets.UTF_8)).print();
        }
        System.exit(0);
    }

    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static void run(String line) throws InterruptedException {
        if (!line.startsWith(LIMIT)) {
            MQAdminStartup.main0(line.isEmpty() ? new String[0] : line.split("\t"), null);
            return;
        }
        String[] both = line.split("\t", 2);
        Thread command = new Thread(() -> MQAdminStartup.main0(both[1].split("\t"), null));
        command.setDaemon(true);
        command.start();
        command.join(Long.parseLong(both[0].substring(LIMIT.length())));
        command.interrupt();
        command.join(ENDING_MILLIS);
    }
}
