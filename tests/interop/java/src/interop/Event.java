package interop;

import java.io.PrintStream;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/** One JSON object, printed as one line. Values are text, numbers, booleans, null, events and collections of these. */
final class Event {
    private final Map<String, Object> members = new LinkedHashMap<>();

    static Event named(String name) {
        return new Event().with("event", name);
    }

    Event with(String name, Object value) {
        members.put(name, value);
        return this;
    }

    void print() {
        StringBuilder line = new StringBuilder();
        write(line, this);
        PrintStream out = Talk.out();
        synchronized (out) {
            out.println(line);
            out.flush();
        }
    }

    private static void write(StringBuilder out, Object value) {
        if (value instanceof Event) {
            out.append('{');
            String comma = "";
            for (Map.Entry<String, Object> member : ((Event) value).members.entrySet()) {
                out.append(comma);
                quote(out, member.getKey());
                out.append(':');
                write(out, member.getValue());
                comma = ",";
            }
            out.append('}');
        } else if (value instanceof Collection) {
            out.append('[');
            String comma = "";
            for (Object element : (Collection<?>) value) {
                out.append(comma);
                write(out, element);
                comma = ",";
            }
            out.append(']');
        } else if (value instanceof Number || value instanceof Boolean || value == null) {
            out.append(value);
        } else {
            quote(out, value.toString());
        }
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
