import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.roaringbitmap.RoaringBitmap;

/**
 * Writes or checks the sets of sets.txt with org.roaringbitmap.
 *
 * <pre>
 * Interop write SETS DIR    one file a set
 * Interop check SETS DIR    every file holds its set, and nothing else
 * </pre>
 */
public final class Interop {
  private static Map<String, RoaringBitmap> sets(Path path) throws IOException {
    Map<String, RoaringBitmap> out = new TreeMap<>();
    for (String line : Files.readAllLines(path)) {
      if (line.isEmpty() || line.startsWith("#")) {
        continue;
      }
      String[] field = line.split(" ");
      RoaringBitmap set = out.computeIfAbsent(field[0], name -> new RoaringBitmap());
      long step = Long.parseLong(field[3]);
      for (long slot = Long.parseLong(field[1]); slot <= Long.parseLong(field[2]); slot += step) {
        set.add((int) slot);
      }
    }
    return out;
  }

  public static void main(String[] args) throws IOException {
    for (Map.Entry<String, RoaringBitmap> entry : sets(Path.of(args[1])).entrySet()) {
      Path file = Path.of(args[2], entry.getKey() + ".bin");
      RoaringBitmap want = entry.getValue();
      want.runOptimize();
      if (args[0].equals("write")) {
        try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(file))) {
          want.serialize(out);
        }
        continue;
      }
      RoaringBitmap got = new RoaringBitmap();
      try (InputStream in = Files.newInputStream(file)) {
        DataInputStream data = new DataInputStream(in);
        got.deserialize(data);
        if (!got.equals(want) || data.read() != -1) {
          System.err.println(entry.getKey() + ": " + got.getLongCardinality() + " members, want " + want.getLongCardinality());
          System.exit(1);
        }
      }
    }
  }
}
