"""As much of a NATS client as an agent needs, on a plain socket: subscribe in a queue group, answer, stay connected.

It is here so that the example needs nothing but Python. In a service of yours take a client that is kept, such as nats-py:
it has TLS, credentials and clusters.
"""

import json
import socket
import threading
import time
import urllib.parse

PAYLOAD_MAX = 8 << 20  # bytes of a message, with its headers


class Connection:
    def __init__(self, url, name):
        at = urllib.parse.urlparse(url)
        self.address = (at.hostname, at.port or 4222)
        self.options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "name": name, "lang": "python", "version": "0"}
        if at.username:
            self.options |= {"user": at.username, "pass": at.password or ""}
        self.subscriptions = []  # subject, queue and what is called with (reply, data)
        self.socket = None
        self.closing = False
        self.writing = threading.Lock()

    def subscribe(self, subject, queue, call):
        """To be called before run."""
        self.subscriptions.append((subject, queue, call))

    def run(self, ready):
        """Serves until close, and connects again when the connection is lost."""
        pause = 0.05
        while not self.closing:
            try:
                with socket.create_connection(self.address, timeout=5) as connection:
                    connection.settimeout(None)
                    self._serve(connection, ready)
                    pause = 0.05
            except OSError as err:
                if not self.closing:
                    print(f"nats: {err}; again in {pause:.2f} s", flush=True)
                    time.sleep(pause)
                    pause = min(pause * 2, 2)

    def drain(self):
        """Takes no more messages; answers still leave."""
        self.closing = True
        self._send("".join(f"UNSUB {sid}\r\n" for sid in range(len(self.subscriptions))).encode())

    def close(self):
        self.closing = True
        if self.socket:
            self.socket.shutdown(socket.SHUT_RDWR)

    def respond(self, reply, data=b"", headers=None):
        if not reply:
            return
        if headers is None:
            self._send(f"PUB {reply} {len(data)}\r\n".encode() + data + b"\r\n")
            return
        head = ("NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode()
        self._send(f"HPUB {reply} {len(head)} {len(head) + len(data)}\r\n".encode() + head + data + b"\r\n")

    def _send(self, data):
        with self.writing:
            if self.socket:
                self.socket.sendall(data)

    def _serve(self, connection, ready):
        lines = connection.makefile("rb")
        if not lines.readline().startswith(b"INFO "):
            raise OSError("this is no NATS server")
        self.socket = connection
        hello = f"CONNECT {json.dumps(self.options)}\r\n"
        for sid, (subject, queue, _) in enumerate(self.subscriptions):
            hello += f"SUB {subject} {queue} {sid}\r\n"
        self._send((hello + "PING\r\n").encode())
        try:
            while line := lines.readline():
                words = line.split()
                match words[0].upper() if words else b"":
                    case b"MSG" | b"HMSG":
                        self._message(lines, words)
                    case b"PING":
                        self._send(b"PONG\r\n")
                    case b"PONG":
                        ready()
                    case b"-ERR":
                        raise OSError(line.decode(errors="replace").strip())
            raise OSError("the connection has ended")
        finally:
            self.socket = None

    def _message(self, lines, words):
        headed = words[0].upper() == b"HMSG"
        size, head = int(words[-1]), int(words[-2]) if headed else 0
        if size > PAYLOAD_MAX:
            raise OSError(f"a message has {size} bytes, the limit is {PAYLOAD_MAX}")
        data = lines.read(size + 2)[head:-2]
        has_reply = len(words) == (6 if headed else 5)
        self.subscriptions[int(words[2])][2](words[3].decode() if has_reply else "", data)
