package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Apache's Java client as a command: one sub-command per process, JSON lines on standard output.
 *
 * <p>The sub-command serve runs others, one after the other, in a JVM that is warm: the words of one on each line of standard input, separated by
 * tabs, and a last event {@code ended} for each. They must be such as end by themselves and do not read standard input.
 *
 * <p>Results that grow with the number of messages go to tab-separated files, see {@link Report}. A failure ends the process with exit code 1 and a
 * last line {@code {"event":"failed","reason":...}}. The same source is compiled against every client release under test, so it uses only what
 * they have in common.
 */
public final class Driver {
    private Driver() {
    }

    public static void main(String[] arguments) {
        if (arguments.length == 0) {
            System.err.println("usage: Driver produce|consume|liteconsume|pull|litepull|offsets|view|query|transact|timed|request|answer|allocate|serve --name value ...");
            System.exit(2);
        }
        try {
            run(arguments[0], new Options(arguments, 1));
        } catch (Throwable failure) {
            failure.printStackTrace();
            Event.named("failed").with("reason", failure.toString()).print();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void serve() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            run(words[0], new Options(words, 1));
            Event.named("ended").print();
        }
    }

    private static void run(String command, Options options) throws Exception {
        switch (command) {
            case "serve":
                serve();
                break;
            case "produce":
                new Produce(options).run();
                break;
            case "consume":
                new Consume(options).run();
                break;
            case "liteconsume":
                new LiteConsume(options).run();
                break;
            case "pull":
                Pull.withPullConsumer(options);
                break;
            case "litepull":
                Pull.withLitePullConsumer(options);
                break;
            case "offsets":
                Lookup.offsets(options);
                break;
            case "view":
                Lookup.view(options);
                break;
            case "query":
                Lookup.query(options);
                break;
            case "transact":
                new Transact(options).run();
                break;
            case "timed":
                new Timed(options).run();
                break;
            case "request":
                Exchange.request(options);
                break;
            case "answer":
                Exchange.answer(options);
                break;
            case "allocate":
                Allocate.run(options);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }
}
