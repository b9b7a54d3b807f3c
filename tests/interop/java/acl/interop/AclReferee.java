package interop;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.acl.plain.PlainAccessValidator;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Says what Apache's access control makes of requests. Over stdin and stdout, sizes as int32.
 *
 * A size of -1: read the files under rocketmq.home.dir anew. Else an address with its port, and a frame without its
 * length: may it be served? The answer is -1 for yes, or the size of a text and the text: why not. A flush after each.
 */
public final class AclReferee {
    private static byte[] read(DataInputStream in, int size) throws Exception {
        byte[] bytes = new byte[size];
        in.readFully(bytes);
        return bytes;
    }

    private static void answer(DataOutputStream out, Throwable thrown) throws Exception {
        if (thrown == null) {
            out.writeInt(-1);
        } else {
            byte[] text = String.valueOf(thrown.getMessage()).getBytes(StandardCharsets.UTF_8);
            out.writeInt(text.length);
            out.write(text);
        }
        out.flush();
    }

    private static Throwable judge(PlainAccessValidator validator, String address, byte[] frame) {
        try {
            RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame));
            validator.validate(validator.parse(command, address));
            return null;
        } catch (Throwable thrown) {
            return thrown;
        }
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.err), true));
        PlainAccessValidator validator = null;
        while (true) {
            int size;
            try {
                size = in.readInt();
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            if (size >= 0) {
                String address = new String(read(in, size), StandardCharsets.UTF_8);
                answer(out, judge(validator, address, read(in, in.readInt())));
                continue;
            }
            Throwable thrown = null;
            try {
                validator = new PlainAccessValidator();
            } catch (Throwable caught) {
                thrown = caught;
            }
            answer(out, thrown);
        }
    }
}
