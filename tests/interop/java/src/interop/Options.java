package interop;

import java.util.HashMap;
import java.util.Map;

/** The command line as {@code --name value} pairs; every option that a command reads has a default or is required. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments, int from) {
        for (int at = from; at < arguments.length; at += 2) {
            if (!arguments[at].startsWith("--") || at + 1 == arguments.length) {
                throw new IllegalArgumentException("wanted --name value, got " + arguments[at]);
            }
            values.put(arguments[at].substring(2), arguments[at + 1]);
        }
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("option --" + name + " is required");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(values.getOrDefault(name, Integer.toString(otherwise)));
    }

    long wide(String name, long otherwise) {
        return Long.parseLong(values.getOrDefault(name, Long.toString(otherwise)));
    }
}
