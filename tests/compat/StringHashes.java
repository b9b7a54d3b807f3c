import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Reads lines of hexadecimal bytes; prints for each the hashCode of the string that they are in UTF-8. */
public class StringHashes {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] raw = HexFormat.of().parseHex(line);
            out.append(new String(raw, StandardCharsets.UTF_8).hashCode()).append('\n');
        }
        System.out.print(out);
    }
}
