"""A ledger in a folder: one file for each key.

To make the file is the effect, so that there is no moment in which an effect stands and the ledger does not say so,
whatever dies when and however many instances there are.
"""

import hashlib
import json
import os
import time
import uuid


class Gone(Exception):
    """The key was undone."""


class Ledger:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def do(self, key, result):
        """Makes the effect of a key, once: another do of the key gets the first one's result."""
        written = self._write({"key": key, "result": result})
        try:
            os.link(written, self._file(key))  # fails where the file is there: the kernel decides between two
            self._sync()
            return result
        except FileExistsError:
            pass
        finally:
            os.unlink(written)
        found = self.read(key)
        if found.get("undone"):
            raise Gone(f"key {key} was undone")
        return found["result"]

    def undo(self, key):
        """Takes the effect of a key away, if there is one, and leaves a tombstone in its place."""
        os.rename(self._write({"key": key, "undone": True}), self._file(key))
        self._sync()

    def read(self, key):
        """What there is of a key; None: nothing."""
        try:
            with open(self._file(key), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def begin(self, key, until):
        """Says that a do of the key is at work until then, for probes of all instances."""
        os.rename(self._write({"key": key, "until": until}), self._file(key, ".work"))

    def end(self, key):
        """Says that it is not any more."""
        try:
            os.unlink(self._file(key, ".work"))
        except FileNotFoundError:
            pass  # another do of the key has ended

    def working(self, key):
        """Whether a do of the key may be at work."""
        try:
            with open(self._file(key, ".work"), encoding="utf-8") as file:
                return time.time() < json.load(file)["until"]
        except FileNotFoundError:
            return False

    def _file(self, key, kind=".json"):
        return os.path.join(self.folder, hashlib.sha256(key.encode()).hexdigest() + kind)

    def _write(self, what):
        """Writes a file of its own, which is on disk before it gets the name of a key."""
        name = os.path.join(self.folder, "." + str(uuid.uuid4()))
        with open(name, "x", encoding="utf-8") as file:
            json.dump(what, file)
            file.flush()
            os.fsync(file.fileno())
        return name

    def _sync(self):
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
