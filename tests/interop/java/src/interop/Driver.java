package interop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/**
 * Apache's Java client as a command: one sub-command per process, JSON lines on standard output.
 *
 * <p>The sub-command host runs others side by side until its input ends: one for each connection to the port that it names, whose first line has the
 * words, separated by tabs, and by which it is talked with; its last event is {@code ended}. What JVMs have one of is shared by them: where the pauses
 * of rebalancing are concerned, they must agree.
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
            System.err.println("usage: Driver produce|consume|liteconsume|pull|litepull|offsets|view|query|transact|timed|request|answer|allocate|host --name value ...");
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

    private static void host() throws Exception {
        ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Event.named("listening").with("port", listener.getLocalPort()).print();
        Thread taker = new Thread(() -> take(listener), "taker");
        taker.setDaemon(true);
        taker.start();
        while (System.in.read() >= 0) {
            continue;
        }
    }

    private static void take(ServerSocket listener) {
        try {
            while (true) {
                Socket connection = listener.accept();
                Thread guest = new Thread(() -> attend(connection), "guest");
                guest.setDaemon(true);
                guest.start();
            }
        } catch (IOException failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void attend(Socket connection) {
        try (Socket own = connection) {
            Talk.by(own.getInputStream(), new PrintStream(own.getOutputStream(), false, "UTF-8"));
            String[] words = firstLine(own.getInputStream()).split("\t");
            try {
                run(words[0], new Options(words, 1));
                Event.named("ended").print();
            } catch (Throwable failure) {
                failure.printStackTrace();
                Event.named("failed").with("reason", failure.toString()).print();
            }
        } catch (IOException gone) {
            gone.printStackTrace();
        }
    }

    /** What is behind the line stays to be read by others. */
    private static String firstLine(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int next = in.read(); next >= 0 && next != '\n'; next = in.read()) {
            line.write(next);
        }
        return line.toString("UTF-8");
    }

    private static void run(String command, Options options) throws Exception {
        switch (command) {
            case "host":
                host();
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
