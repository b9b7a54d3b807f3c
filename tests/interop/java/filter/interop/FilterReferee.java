package interop;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Says what Apache's filter makes of expressions. Requests over stdin, answers over stdout, sizes as int32.
 *
 * An expression: its text, a count, so many properties texts. The answer: the refusal, or -1 as its size, and a byte
 * each: 0 false, 1 true, 2 null, 3 thrown. A size of -1 asks for bits instead: error rate, count, key; the answer is
 * their number, how many, and each. A flush after each.
 */
public final class FilterReferee {
    private static byte[] read(DataInputStream in) throws Exception {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    /** As RocketMQ 4.9 takes a properties text apart. */
    private static Map<String, String> properties(String text) {
        Map<String, String> map = new HashMap<>();
        for (String pair : text.split("\u0002")) {
            int at = pair.indexOf('\u0001');
            if (at > 0 && at < pair.length() - 1) {
                map.put(pair.substring(0, at), pair.substring(at + 1));
            }
        }
        return map;
    }

    private static int evaluate(Expression expression, final Map<String, String> map) {
        try {
            Object result = expression.evaluate(new EvaluationContext() {
                public Object get(String name) {
                    return map.get(name);
                }

                public Map<String, Object> keyValues() {
                    return new HashMap<String, Object>(map);
                }
            });
            return result == null ? 2 : result == Boolean.TRUE ? 1 : result instanceof Boolean ? 0 : 2;
        } catch (Throwable thrown) {
            return 3;
        }
    }

    private static void answerBits(DataInputStream in, DataOutputStream out) throws Exception {
        BloomFilter filter = BloomFilter.createByFn(in.readInt(), in.readInt());
        int[] bits = filter.calcBitPositions(new String(read(in), StandardCharsets.UTF_8));
        out.writeInt(filter.getM());
        out.writeInt(bits.length);
        for (int bit : bits) {
            out.writeInt(bit);
        }
    }

    private static void answer(String text, DataInputStream in, DataOutputStream out) throws Exception {
        Expression expression = null;
        try {
            expression = SelectorParser.parse(text);
            out.writeInt(-1);
        } catch (Throwable thrown) {
            byte[] message = String.valueOf(thrown.getMessage()).getBytes(StandardCharsets.UTF_8);
            out.writeInt(message.length);
            out.write(message);
        }
        for (int count = in.readInt(); count > 0; count--) {
            Map<String, String> map = properties(new String(read(in), StandardCharsets.UTF_8));
            if (expression != null) {
                out.writeByte(evaluate(expression, map));
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16));
        System.setOut(new PrintStream(System.err));
        while (true) {
            int size;
            try {
                size = in.readInt();
            } catch (EOFException end) {
                return;
            }
            if (size < 0) {
                answerBits(in, out);
            } else {
                byte[] text = new byte[size];
                in.readFully(text);
                answer(new String(text, StandardCharsets.UTF_8), in, out);
            }
            if (in.available() == 0) {
                out.flush();
            }
        }
    }
}
