import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.UUID;

/**
 * Says whether a hold is held, and until when: java Held.java PAGE SESSION HOLD SLOT. Exit status 0 if it is held, 1 if
 * not, 2 if the page cannot be read. For Linux; the names are those of ../tenure_page.h, docs/page.md has the contract.
 */
public final class Held {
    static final long MAGIC = word("TENUREP1".getBytes(StandardCharsets.US_ASCII), 0);
    static final int VERSION = 1, SLOTS_MAX = 4095, SLOT_SIZE = 64;
    static final int VERSION_AT = 8, SLOTS_AT = 12, SESSION_AT = 16, HOLD_AT = 0, VALID_UNTIL_AT = 24;
    /** A word of 8 bytes, by one load. */
    static final VarHandle WORD = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    /** /proc/uptime counts hundredths of a second. */
    static final long STEP_NS = 10_000_000;

    final ByteBuffer map;
    final int slots;

    Held(Path path, UUID session) throws IOException {
        try (FileChannel file = FileChannel.open(path)) {
            long size = Math.min(file.size(), SLOT_SIZE * (SLOTS_MAX + 1L));
            if (size < SLOT_SIZE) throw new IOException(path + " is shorter than a header");
            map = file.map(FileChannel.MapMode.READ_ONLY, 0, size).order(ByteOrder.LITTLE_ENDIAN);
        }
        slots = map.getInt(SLOTS_AT);
        boolean hasSlots = slots >= 0 && slots < map.capacity() / SLOT_SIZE;
        if (load(0) != MAGIC || map.getInt(VERSION_AT) != VERSION || !hasSlots)
            throw new IOException(path + " has not this layout: is the agent of another version?");
        if (!names(SESSION_AT, session)) throw new IOException(path + " is not of this session");
    }

    long load(int at) {
        return (long) WORD.getAcquire(map, at);
    }

    boolean names(int at, UUID id) {
        // Its bytes are in the order in which they are written.
        long high = Long.reverseBytes(id.getMostSignificantBits()), low = Long.reverseBytes(id.getLeastSignificantBits());
        return load(at) == high && load(at + 8) == low;
    }

    /** Until when the hold is valid, ns; 0 if it is not held at this instant. */
    long heldUntil(int slot, UUID hold) {
        if (slot < 0 || slot >= slots) return 0;
        int at = SLOT_SIZE * (slot + 1);
        // In this order: a valid-until that is read before the slot is seen to be this hold's can only be this hold's.
        // The clock comes last: a thread that was stopped in between must not compare with an earlier now.
        long until = load(at + VALID_UNTIL_AT);
        return names(at + HOLD_AT, hold) && latestNow() < until ? until : 0;
    }

    /**
     * The latest instant that it can be now, ns: Java has no clock that goes on while the machine sleeps, and
     * /proc/uptime is rounded down. A clock that fails is the end of time: nothing is held.
     */
    static long latestNow() {
        try {
            String uptime = Files.readString(Path.of("/proc/uptime"));
            String steps = uptime.substring(0, uptime.indexOf(' ')).replace(".", "");
            return (Long.parseLong(steps) + 1) * STEP_NS;
        } catch (IOException | RuntimeException unreadable) {
            return Long.MAX_VALUE;
        }
    }

    static long word(byte[] bytes, int at) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getLong(at);
    }

    public static void main(String[] arguments) {
        try {
            Held page = new Held(Path.of(arguments[0]), UUID.fromString(arguments[1]));
            long until = page.heldUntil(Integer.parseInt(arguments[3]), UUID.fromString(arguments[2]));
            System.out.println(until == 0 ? "not held" : "held until " + until);
            System.exit(until == 0 ? 1 : 0);
        } catch (IOException | RuntimeException error) {
            System.err.println(error + "; usage: Held PAGE SESSION HOLD SLOT");
            System.exit(2);
        }
    }
}
