package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;

import org.apache.rocketmq.common.message.Message;

/**
 * Messages made from a file: the bytes of line <i>n</i>, counted from 0, without the line feed, are the body of message <i>n</i>.
 *
 * <p>Its key is the prefix and <i>n</i>; its tag is taken from the given tags in turn.
 */
final class Corpus {
    private final byte[] bytes;
    private final int[] starts;
    private final int first;
    private final String topic;
    private final String[] tags;
    private final String keyPrefix;
    private final int delayLevel;
    final int count;

    Corpus(Options options) throws IOException {
        bytes = Files.readAllBytes(Paths.get(options.text("corpus")));
        starts = lineStarts(bytes);
        first = options.number("first", 0);
        count = Math.min(options.number("count", Integer.MAX_VALUE), starts.length - 1 - first);
        topic = options.text("topic");
        tags = options.text("tags", "*").split(",");
        keyPrefix = options.text("key-prefix", "L");
        delayLevel = options.number("delay-level", 0);
    }

    private static int[] lineStarts(byte[] bytes) {
        int[] starts = new int[1024];
        int used = 1;
        for (int at = 0; at < bytes.length; at++) {
            if (bytes[at] == '\n') {
                if (used == starts.length) {
                    starts = Arrays.copyOf(starts, used * 2);
                }
                starts[used++] = at + 1;
            }
        }
        return Arrays.copyOf(starts, used);
    }

    /** The message for the <i>index</i>th of the chosen lines. */
    Message message(int index) {
        int line = first + index;
        Message message = new Message(topic, Arrays.copyOfRange(bytes, starts[line], starts[line + 1] - 1));
        String tag = tags[line % tags.length];
        if (!tag.equals("*")) {
            message.setTags(tag);
        }
        message.setKeys(keyPrefix + line);
        if (delayLevel > 0) {
            message.setDelayTimeLevel(delayLevel);
        }
        return message;
    }

    int line(int index) {
        return first + index;
    }
}
