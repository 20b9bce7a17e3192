import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * As much of a NATS client as an agent needs, on a plain socket: subscribe in a queue group, answer, stay connected.
 *
 * In a service of yours take the client of NATS's makers, io.nats:jnats: it has TLS, credentials and clusters.
 */
final class Nats {
    /** What is called with each message, on the thread that reads: it must hand over. */
    interface Call {
        void message(String reply, byte[] data);
    }

    private record Subscription(String subject, String queue, Call call) {}

    private static final int LINE_MAX = 1 << 20; // bytes; the server's INFO is the longest
    private static final int PAYLOAD_MAX = 8 << 20; // bytes of a message, with its headers
    private static final int CONNECT_MS = 5000;
    private static final int PAUSE_MS = 50; // before the first try to connect again; doubled up to the next
    private static final int PAUSE_MAX_MS = 2000;

    private final URI server;
    private final String name;
    private final List<Subscription> subscriptions = new ArrayList<>();
    private Socket socket; // guarded by this, as is closing; null: not connected
    private boolean closing;

    Nats(String url, String name) {
        this.server = URI.create(url);
        this.name = name;
    }

    /** To be called before run. */
    void subscribe(String subject, String queue, Call call) {
        subscriptions.add(new Subscription(subject, queue, call));
    }

    /** Serves until close, and connects again when the connection is lost. */
    void run(Runnable ready) throws InterruptedException {
        for (int pause = PAUSE_MS; !isClosing(); pause = Math.min(2 * pause, PAUSE_MAX_MS)) {
            try (Socket to = new Socket()) {
                to.connect(new InetSocketAddress(server.getHost(), server.getPort() < 0 ? 4222 : server.getPort()), CONNECT_MS);
                to.setTcpNoDelay(true);
                pause = PAUSE_MS;
                serve(to, ready);
            } catch (IOException lost) {
                if (!isClosing()) {
                    System.out.println("nats: " + lost.getMessage() + "; again in " + pause + " ms");
                    Thread.sleep(pause);
                }
            }
        }
    }

    private synchronized boolean isClosing() {
        return closing;
    }

    /** Takes no more messages; answers still leave. */
    synchronized void drain() {
        closing = true;
        StringBuilder all = new StringBuilder();
        for (int sid = 0; sid < subscriptions.size(); sid++) {
            all.append("UNSUB ").append(sid).append("\r\n");
        }
        send(all.toString().getBytes(UTF_8));
    }

    synchronized void close() {
        closing = true;
        try {
            if (socket != null) {
                socket.close();
            }
        } catch (IOException gone) {
            // that is what was wanted
        }
    }

    void respond(String reply, byte[] data) {
        respond(reply, Map.of(), data);
    }

    /** Answers once. An answer that the network loses is asked for again. */
    void respond(String reply, Map<String, String> headers, byte[] data) {
        if (reply.isEmpty()) {
            return;
        }
        StringBuilder head = new StringBuilder();
        if (!headers.isEmpty()) {
            head.append("NATS/1.0\r\n");
            headers.forEach((key, value) -> head.append(key).append(": ").append(value).append("\r\n"));
            head.append("\r\n");
        }
        byte[] first = head.toString().getBytes(UTF_8);
        String sizes = headers.isEmpty() ? "" + data.length : first.length + " " + (first.length + data.length);
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        all.writeBytes(((headers.isEmpty() ? "PUB " : "HPUB ") + reply + " " + sizes + "\r\n").getBytes(UTF_8));
        all.writeBytes(first);
        all.writeBytes(data);
        all.writeBytes("\r\n".getBytes(UTF_8));
        send(all.toByteArray());
    }

    private synchronized void send(byte[] data) {
        try {
            if (socket != null) {
                OutputStream out = socket.getOutputStream();
                out.write(data);
            }
        } catch (IOException lost) {
            // the thread that reads sees it too, and connects again
        }
    }

    private void serve(Socket to, Runnable ready) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(to.getInputStream(), 1 << 16));
        if (!line(in).startsWith("INFO ")) {
            throw new IOException("this is no NATS server");
        }
        synchronized (this) {
            socket = to;
        }
        StringBuilder hello = new StringBuilder("CONNECT " + Json.text(options()) + "\r\n");
        for (int sid = 0; sid < subscriptions.size(); sid++) {
            Subscription s = subscriptions.get(sid);
            hello.append("SUB ").append(s.subject).append(' ').append(s.queue).append(' ').append(sid).append("\r\n");
        }
        send(hello.append("PING\r\n").toString().getBytes(UTF_8));
        try {
            while (true) {
                String[] words = line(in).split(" +");
                switch (words[0].toUpperCase()) {
                    case "MSG", "HMSG" -> message(in, words);
                    case "PING" -> send("PONG\r\n".getBytes(UTF_8));
                    case "PONG" -> ready.run();
                    case "-ERR" -> throw new IOException(String.join(" ", words));
                    default -> { } // +OK, and INFO of a cluster that changes
                }
            }
        } finally {
            synchronized (this) {
                socket = null;
            }
        }
    }

    private Map<String, Object> options() {
        Map<String, Object> all = new java.util.HashMap<>(Map.of("verbose", false, "pedantic", false, "headers", true, "no_responders", true,
            "name", name, "lang", "java", "version", "0"));
        if (server.getUserInfo() != null) {
            String[] user = server.getUserInfo().split(":", 2);
            all.put("user", user[0]);
            all.put("pass", user.length > 1 ? user[1] : "");
        }
        return all;
    }

    private void message(DataInputStream in, String[] words) throws IOException {
        boolean headed = words[0].equalsIgnoreCase("HMSG");
        int size = Integer.parseInt(words[words.length - 1]);
        int head = headed ? Integer.parseInt(words[words.length - 2]) : 0;
        if (size > PAYLOAD_MAX || head > size) {
            throw new IOException("a message has " + size + " bytes, the limit is " + PAYLOAD_MAX);
        }
        in.skipNBytes(head);
        byte[] data = in.readNBytes(size - head);
        in.skipNBytes(2);
        boolean hasReply = words.length == (headed ? 6 : 5);
        subscriptions.get(Integer.parseInt(words[2])).call.message(hasReply ? words[3] : "", data);
    }

    private static String line(DataInputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int b = in.readUnsignedByte(); b != '\n'; b = in.readUnsignedByte()) {
            if (line.size() == LINE_MAX) {
                throw new IOException("a line is over " + LINE_MAX + " bytes");
            }
            line.write(b);
        }
        return line.toString(UTF_8).strip();
    }
}
