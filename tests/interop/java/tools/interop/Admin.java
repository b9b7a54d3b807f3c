package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's mqadmin, many commands in one process: the words of one on each line of standard input, separated by tabs, and a line {@code
 * {"event":"printed","text":...}} for each when it has ended.
 *
 * <p>They run one after the other: mqadmin keeps its commands in a static list, and tells its clients apart by the millisecond.
 */
public final class Admin {
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
            MQAdminStartup.main0(line.split("\t"), null);
            System.setOut(own);
            Event.named("printed").with("text", new String(printed.toByteArray(), StandardCharsets.UTF_8)).print();
        }
        System.exit(0);
    }
}
