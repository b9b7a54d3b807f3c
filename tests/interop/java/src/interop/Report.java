package interop;

import java.io.BufferedWriter;
import java.io.Closeable;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

import org.apache.rocketmq.common.message.MessageExt;

/**
 * A file with one line per message, fields separated by tabs, in the order of the calls.
 *
 * <p>Sent: key, status or error, message id, offset message id, broker, queue id, queue offset.
 * Received: key, topic, queue id, queue offset, SHA-1 of the body, body size in bytes, reconsume times, broker, tags, outcome, message id.
 */
final class Report implements Closeable {
    private static final char[] HEX = "0123456789abcdef".toCharArray();
    private final BufferedWriter out;
    private final boolean isLive;

    Report(String path) throws IOException {
        this(path, false);
    }

    /** A live report is written line by line, so that it tells what a killed process has done, and shows after each outcome when that was. */
    Report(String path, boolean isLive) throws IOException {
        this.isLive = isLive;
        out = Files.newBufferedWriter(Paths.get(path), StandardCharsets.UTF_8);
    }

    synchronized void sent(String key, String status, String messageId, String offsetMessageId, String broker, int queueId, long queueOffset) {
        line(key, status, messageId, offsetMessageId, broker, queueId, queueOffset);
    }

    void received(MessageExt message, String outcome) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        String digest = sha1(body);
        String answer = isLive ? outcome + "@" + System.currentTimeMillis() : outcome;
        synchronized (this) {
            line(message.getKeys(), message.getTopic(), message.getQueueId(), message.getQueueOffset(), digest, body.length,
                message.getReconsumeTimes(), message.getBrokerName(), message.getTags(), answer, message.getMsgId());
        }
    }

    private void line(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (int at = 0; at < fields.length; at++) {
            if (at > 0) {
                line.append('\t');
            }
            if (fields[at] != null) {
                append(line, fields[at].toString());
            }
        }
        try {
            out.append(line.append('\n'));
            if (isLive) {
                out.flush();
            }
        } catch (IOException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Tabs and line ends would break the format; only the text of an error can have them. */
    private static void append(StringBuilder line, String text) {
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            line.append(c < ' ' ? ' ' : c);
        }
    }

    static String sha1(byte[] body) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-1").digest(body);
            char[] text = new char[digest.length * 2];
            for (int at = 0; at < digest.length; at++) {
                text[at * 2] = HEX[(digest[at] >> 4) & 15];
                text[at * 2 + 1] = HEX[digest[at] & 15];
            }
            return new String(text);
        } catch (NoSuchAlgorithmException failure) {
            throw new IllegalStateException(failure);
        }
    }

    @Override
    public synchronized void close() throws IOException {
        out.close();
    }
}
