package interop;

import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;

/**
 * With whom a sub-command talks: by standard input and output, or, as one of several in a JVM, by a connection of its own.
 *
 * <p>Threads that a sub-command starts talk with whom it does.
 */
final class Talk {
    private static final InheritableThreadLocal<Talk> OWN = new InheritableThreadLocal<>();

    private final InputStream in;
    private final PrintStream out;

    private Talk(InputStream in, PrintStream out) {
        this.in = in;
        this.out = out;
    }

    /** Have this thread talk by these from now on. Who breaks the input off has ended it. */
    static void by(InputStream in, PrintStream out) {
        OWN.set(new Talk(new Ending(in), out));
    }

    static InputStream in() {
        return OWN.get() == null ? System.in : OWN.get().in;
    }

    static PrintStream out() {
        return OWN.get() == null ? System.out : OWN.get().out;
    }

    private static final class Ending extends FilterInputStream {
        Ending(InputStream in) {
            super(in);
        }

        @Override
        public int read() {
            try {
                return super.read();
            } catch (IOException broken) {
                return -1;
            }
        }

        @Override
        public int read(byte[] into, int offset, int length) {
            try {
                return super.read(into, offset, length);
            } catch (IOException broken) {
                return -1;
            }
        }
    }
}
