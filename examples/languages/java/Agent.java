import com.google.gson.JsonElement;
import com.google.gson.JsonObject;

import java.io.IOException;
import java.math.BigDecimal;
import java.sql.SQLException;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * An agent in Java, by NATS's protocol alone: it charges cards, in PostgreSQL.
 *
 *     java -cp out:gson.jar:postgresql.jar Agent DATABASE_URL [AGENT]       NATS_URL, DULY_NAMESPACE
 */
public final class Agent {
    private static final int INPUT_MAX = 64 << 10; // bytes of a do
    private static final int RESULT_MAX = 64 << 10; // bytes of an answer
    private static final int WORKERS = 16; // commands at work at a time, each with a connection to the database
    private static final int WAITING_MAX = 1024; // commands that wait; one more is told to come again
    private static final int STOP_SECONDS = 30;
    /** Task, type, step and key of a command, a space between two; in the id of a task ~ stands before what a child is called. */
    private static final Pattern NAMES = Pattern.compile("([A-Za-z0-9_~-]{1,255}) [A-Za-z0-9_-]{1,64} ([A-Za-z0-9_-]{1,64}) \\1/\\2/[0-9]{1,10}");

    private record Command(String key, JsonElement input, long left, Instant completeBy, int size) {}

    private interface Work {
        /** Carries a command out: JSON, or nothing. */
        String on(Ledger ledger, Command c) throws SQLException, Refusal;
    }

    private final Nats nats;
    private final ThreadPoolExecutor pool = new ThreadPoolExecutor(WORKERS, WORKERS, 0, TimeUnit.SECONDS, new ArrayBlockingQueue<>(WAITING_MAX));
    private final ThreadLocal<Ledger> ledgers;

    private Agent(Nats nats, String database) {
        this.nats = nats;
        this.ledgers = ThreadLocal.withInitial(() -> new Ledger(database));
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 1) {
            System.err.println("usage: Agent DATABASE_URL [AGENT]");
            System.exit(2);
        }
        String name = args.length > 1 ? args[1] : "payment.charge";
        String namespace = System.getenv().getOrDefault("DULY_NAMESPACE", "duly");
        try (Ledger ledger = new Ledger(args[0])) {
            ledger.tables();
        }
        Nats nats = new Nats(System.getenv().getOrDefault("NATS_URL", "nats://127.0.0.1:4222"), name);
        Agent agent = new Agent(nats, args[0]);
        Map<String, Work> verbs = Map.of("do", Agent::charge, "undo", Agent::refund, "probe", (l, c) -> l.probe(c.key));
        verbs.forEach((verb, work) -> nats.subscribe(namespace + "." + verb + "." + name, "q", agent.take(work))); // to one instance
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            agent.stop();
            Runtime.getRuntime().halt(0); // a signal is how it ends
        }));
        nats.run(() -> System.out.println("agent " + name + " is ready"));
    }

    /** Answers what it has, and ends the connection. */
    private void stop() {
        nats.drain();
        pool.shutdown();
        try {
            pool.awaitTermination(STOP_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException now) {
            // what is left is sent again to another instance
        }
        nats.close();
    }

    /** The do. It alone looks at the input: an undo is never refused for it. */
    private static String charge(Ledger ledger, Command c) throws SQLException, Refusal {
        if (c.size > INPUT_MAX) {
            throw new Refusal(413, "the command has " + c.size + " bytes, the limit is " + INPUT_MAX);
        }
        BigDecimal cents = Json.number(c.input, "cents");
        try {
            if (cents != null && cents.longValueExact() > 0) {
                return ledger.charge(c.key, cents.longValueExact(), "slow".equals(Json.string(c.input, "card")));
            }
        } catch (ArithmeticException notWhole) {
            // refused below
        }
        throw new Refusal(422, "cents: want a whole number above 0");
    }

    private static String refund(Ledger ledger, Command c) throws SQLException, Refusal {
        ledger.refund(c.key);
        return "";
    }

    private Nats.Call take(Work work) {
        return (reply, data) -> {
            long came = System.nanoTime();
            try {
                pool.execute(() -> answer(work, reply, data, came));
            } catch (RejectedExecutionException full) {
                fail(reply, 429, WAITING_MAX + " commands wait");
            }
        };
    }

    /** Carries one command out, and answers it once or, when its time is over, not at all. */
    private void answer(Work work, String reply, byte[] data, long came) {
        Command c;
        try {
            c = command(data);
        } catch (Refusal err) {
            fail(reply, err.code, err.getMessage());
            return;
        }
        if (isOver(c, came)) {
            return;
        }
        int code = 0;
        String said;
        try {
            said = work.on(ledgers.get(), c);
            if (said.getBytes(UTF_8).length > RESULT_MAX) {
                throw new Refusal(512, "the result is over " + RESULT_MAX + " bytes");
            }
        } catch (Refusal err) {
            code = err.code;
            said = err.getMessage();
        } catch (SQLException err) { // it may pass: tried again
            code = 500;
            said = err.toString();
        } catch (RuntimeException err) { // the program's own, which would come again: an undo takes back what was done until then
            err.printStackTrace();
            code = 512;
            said = err.toString();
        }
        if (isOver(c, came)) {
            return; // another try has begun
        }
        if (code == 0) {
            nats.respond(reply, said.getBytes(UTF_8));
        } else {
            fail(reply, code, said);
        }
    }

    /** The time that was left counts by a clock that does not jump, the instant by the clock of the day. */
    private static boolean isOver(Command c, long came) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - came) >= c.left || !Instant.now().isBefore(c.completeBy);
    }

    /** Reads a command: members that are not known are passed over. */
    private static Command command(byte[] data) throws Refusal {
        JsonObject is;
        try {
            is = Json.object(data);
        } catch (IOException err) {
            throw new Refusal(400, "not a command: " + err.getMessage());
        }
        BigDecimal version = Json.number(is, "v");
        BigDecimal left = Json.number(is, "left_ms");
        String key = Json.string(is, "key");
        String names = Json.string(is, "task") + " " + Json.string(is, "type") + " " + Json.string(is, "step") + " " + key;
        String completeBy = Json.string(is, "complete_by");
        if (version == null || version.compareTo(BigDecimal.ONE) != 0) {
            throw new Refusal(501, "another version of a command, want 1");
        }
        if (!NAMES.matcher(names).matches()) {
            throw new Refusal(400, "task, type, step: want names; key: want <task>/<step>/<round>");
        }
        if (left == null || completeBy == null) {
            throw new Refusal(400, "left_ms, complete_by: missing");
        }
        try {
            return new Command(key, is.get("input"), left.longValue(), Instant.parse(completeBy), data.length);
        } catch (DateTimeParseException err) {
            throw new Refusal(400, "complete_by: " + err.getMessage());
        }
    }

    private void fail(String reply, int code, String text) {
        String line = text == null ? "" : text.replaceAll("\\s+", " ").replaceAll("\\p{Cntrl}", "");
        String words = line.substring(0, Math.min(line.length(), 400));
        nats.respond(reply, Map.of("Nats-Service-Error", words, "Nats-Service-Error-Code", "" + code), new byte[0]);
    }
}
