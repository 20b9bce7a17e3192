import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * The effects and what is known of keys in one PostgreSQL, so that they are committed together: there is no moment in which
 * an effect stands and the ledger does not say so.
 *
 * A ledger is one connection, for one thread.
 */
final class Ledger implements AutoCloseable {
    /** Instances that start together make the tables in turn. A result is NULL where the key was undone. */
    private static final String[] TABLES = {
        "SELECT pg_advisory_xact_lock(7310)",
        "CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, cents BIGINT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS charge_ledger (key TEXT PRIMARY KEY, result JSONB)",
    };

    /** A key's turn: dos and undos of one key come one after the other, on all instances. */
    private static final String LOCKED = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))";
    private static final String FREE = "SELECT pg_try_advisory_xact_lock(hashtextextended(?, 0))";

    private final String url;
    private Connection connection; // null: none yet, or it was lost

    Ledger(String url) {
        this.url = url;
    }

    private interface Work<T> {
        T in(Connection c) throws SQLException, Refusal;
    }

    private <T> T transaction(Work<T> work) throws SQLException, Refusal {
        if (connection == null || !connection.isValid(1)) {
            close();
            connection = DriverManager.getConnection(url);
            connection.setAutoCommit(false);
        }
        try {
            T result = work.in(connection);
            connection.commit();
            return result;
        } catch (SQLException | Refusal | RuntimeException err) {
            try {
                connection.rollback();
            } catch (SQLException lost) {
                err.addSuppressed(lost);
            }
            throw err;
        }
    }

    void tables() throws SQLException, Refusal {
        transaction(c -> {
            for (String statement : TABLES) {
                try (PreparedStatement s = c.prepareStatement(statement)) {
                    s.execute();
                }
            }
            return null;
        });
    }

    /** Makes the effect of a key, once: another do of the key gets the first one's result. */
    String charge(String key, long cents, boolean slow) throws SQLException, Refusal {
        return transaction(c -> {
            first(c, LOCKED, key);
            String known = first(c, "SELECT coalesce(result::text, '') FROM charge_ledger WHERE key = ?", key);
            if (known != null) {
                if (known.isEmpty()) {
                    throw new Refusal(410, "the key was undone");
                }
                return known;
            }
            if (slow) {
                first(c, "SELECT pg_sleep(0.1)::text"); // the bank thinks
            }
            first(c, "INSERT INTO charges (key, cents) VALUES (?, ?) RETURNING key", key, cents);
            return first(c, "INSERT INTO charge_ledger (key, result) VALUES (?, jsonb_build_object('number', 'r-' || ?::text, 'cents', ?::bigint)) RETURNING result::text",
                key, key, cents);
        });
    }

    /** Takes the effect of a key away, if there is one, and leaves a tombstone. */
    void refund(String key) throws SQLException, Refusal {
        transaction(c -> {
            first(c, LOCKED, key);
            first(c, "DELETE FROM charges WHERE key = ? RETURNING key", key);
            return first(c, "INSERT INTO charge_ledger (key) VALUES (?) ON CONFLICT (key) DO UPDATE SET result = NULL RETURNING key", key);
        });
    }

    /** What became of a key, without waiting for those that work on it: a probe's answer. */
    String probe(String key) throws SQLException, Refusal {
        return transaction(c -> {
            if (!"t".equals(first(c, FREE, key))) {
                return "{\"v\":1,\"outcome\":\"in_progress\"}";
            }
            String result = first(c, "SELECT result::text FROM charge_ledger WHERE key = ?", key);
            return result == null ? "{\"v\":1,\"outcome\":\"absent\"}" : "{\"v\":1,\"outcome\":\"done\",\"result\":" + result + "}";
        });
    }

    /** The first value of what a statement returns; null: it returns nothing, or NULL. */
    private static String first(Connection c, String statement, Object... values) throws SQLException {
        try (PreparedStatement s = c.prepareStatement(statement)) {
            for (int i = 0; i < values.length; i++) {
                s.setObject(i + 1, values[i]);
            }
            try (ResultSet rows = s.executeQuery()) {
                return rows.next() ? rows.getString(1) : null;
            }
        }
    }

    @Override
    public void close() {
        try {
            if (connection != null) {
                connection.close();
            }
            connection = null;
        } catch (SQLException gone) {
            // that is what was wanted
        }
    }
}
