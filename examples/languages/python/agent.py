"""An agent in Python, by NATS's protocol alone: it charges cards, in a folder.

    python3 agent.py FOLDER [AGENT]       NATS_URL, DULY_NAMESPACE
"""

import concurrent.futures
import datetime
import json
import os
import re
import signal
import sys
import threading
import time
import traceback

import ledger
import nats

INPUT_MAX = 64 << 10  # bytes of a do
RESULT_MAX = 64 << 10  # bytes of an answer
WORKERS = 64  # commands at work at a time
WAITING_MAX = 1024  # commands at work or waiting; one more is told to come again
# Task, type, step and key of a command, a space between two; in the id of a task ~ stands before what a child is called.
NAMES = re.compile(r"([A-Za-z0-9_~-]{1,255}) [A-Za-z0-9_-]{1,64} ([A-Za-z0-9_-]{1,64}) \1/\2/[0-9]{1,10}")


class Refusal(Exception):
    """An answer with a code: 4xx is final, 512 is final and undone, other 5xx are tried again."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def command(data):
    """Reads a command: members that are not known are passed over."""
    try:
        c = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as err:
        raise Refusal(400, f"not a command: {err}") from err
    if not isinstance(c, dict):
        raise Refusal(400, "not a command: want an object")
    if c.get("v") != 1:
        raise Refusal(501, f"version {c.get('v')!r} of a command, want 1")
    names = [c.get(name) for name in ("task", "type", "step", "key")]
    if not all(isinstance(name, str) for name in names) or not NAMES.fullmatch(" ".join(names)):
        raise Refusal(400, "task, type, step: want names; key: want <task>/<step>/<round>")
    try:
        c["until"] = datetime.datetime.fromisoformat(c["complete_by"]).timestamp()
        c["left"] = float(c["left_ms"]) / 1000
    except (KeyError, TypeError, ValueError) as err:
        raise Refusal(400, f"complete_by, left_ms: {err}") from err
    return c


class Agent:
    def __init__(self, connection, book):
        self.connection, self.book = connection, book
        self.pool = concurrent.futures.ThreadPoolExecutor(WORKERS)
        self.room = threading.Semaphore(WAITING_MAX)

    def charge(self, c, size):
        """The do. It alone looks at the input: an undo is never refused for it."""
        if size > INPUT_MAX:
            raise Refusal(413, f"the command has {size} bytes, the limit is {INPUT_MAX}")
        given = c["input"] if isinstance(c.get("input"), dict) else {}
        cents = given.get("cents")
        if not isinstance(cents, int) or isinstance(cents, bool) or cents <= 0:
            raise Refusal(422, f"cents: {cents!r}, want a whole number above 0")
        self.book.begin(c["key"], c["until"])
        try:
            if given.get("card") == "slow":
                time.sleep(0.1)  # the bank thinks
            return self.book.do(c["key"], {"number": "r-" + c["key"], "cents": cents})
        finally:
            self.book.end(c["key"])

    def refund(self, c, _):
        self.book.undo(c["key"])

    def probe(self, c, _):
        found = self.book.read(c["key"])
        if found and not found.get("undone"):
            return {"v": 1, "outcome": "done", "result": found["result"]}
        return {"v": 1, "outcome": "in_progress" if self.book.working(c["key"]) else "absent"}

    def take(self, work):
        def call(reply, data):
            came = time.time()
            if not self.room.acquire(blocking=False):
                self.fail(reply, 429, f"{WAITING_MAX} commands are at work")
                return
            self.pool.submit(self.answer, work, reply, data, came).add_done_callback(lambda _: self.room.release())

        return call

    def answer(self, work, reply, data, came):
        """Carries one command out, and answers it once or, when its time is over, not at all."""
        until, code, said = float("inf"), 0, b""
        try:
            c = command(data)
            until = min(came + c["left"], c["until"])
            if time.time() >= until:
                return
            is_done = work(c, len(data))
            said = b"" if is_done is None else json.dumps(is_done).encode()
            if len(said) > RESULT_MAX:
                raise Refusal(512, f"the result is over {RESULT_MAX} bytes")
        except ledger.Gone as err:
            code, said = 410, str(err)
        except Refusal as err:
            code, said = err.code, str(err)
        except OSError as err:  # it may pass: tried again
            code, said = 500, str(err)
        except Exception as err:  # the program's own, which would come again: an undo takes back what was done until then
            traceback.print_exc()
            code, said = 512, str(err)
        if time.time() >= until:
            return  # another try has begun
        if code:
            self.fail(reply, code, said)
        else:
            self.connection.respond(reply, said)

    def fail(self, reply, code, text):
        text = " ".join(text.split())[:400]
        self.connection.respond(reply, headers={"Nats-Service-Error": text, "Nats-Service-Error-Code": code})


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: python3 agent.py FOLDER [AGENT]")
    name = sys.argv[2] if len(sys.argv) > 2 else "payment.charge"
    namespace = os.environ.get("DULY_NAMESPACE", "duly")
    connection = nats.Connection(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), name)
    agent = Agent(connection, ledger.Ledger(sys.argv[1]))
    for verb, work in (("do", agent.charge), ("undo", agent.refund), ("probe", agent.probe)):
        connection.subscribe(f"{namespace}.{verb}.{name}", "q", agent.take(work))  # each command comes to one instance

    def stop():
        connection.drain()
        agent.pool.shutdown()  # what it has is answered
        connection.close()

    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop).start())
    connection.run(lambda: print(f"agent {name} is ready", flush=True))


if __name__ == "__main__":
    main()
