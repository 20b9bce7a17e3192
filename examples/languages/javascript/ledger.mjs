// A ledger in a folder: one file for each key. To make the file is the effect, so that there is no moment in which an effect
// stands and the ledger does not say so, whatever dies when and however many instances there are.
import { createHash, randomUUID } from "node:crypto";
import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";

export class Gone extends Error {}

export class Ledger {
  constructor(folder) {
    this.folder = folder;
    mkdirSync(folder, { recursive: true });
  }

  // do makes the effect of a key, once: another do of the key gets the first one's result. Gone: the key was undone.
  do(key, result) {
    const written = this.#write({ key, result });
    try {
      linkSync(written, this.#file(key)); // fails where the file is there: the kernel decides between two
      this.#sync(this.folder);
      return result;
    } catch (err) {
      if (err.code !== "EEXIST") throw err;
    } finally {
      unlinkSync(written);
    }
    const is = this.read(key);
    if (is.undone) throw new Gone(`key ${key} was undone`);
    return is.result;
  }

  // undo takes the effect of a key away, if there is one, and leaves a tombstone in its place.
  undo(key) {
    renameSync(this.#write({ key, undone: true }), this.#file(key));
    this.#sync(this.folder);
  }

  // read is what there is of a key; undefined: nothing.
  read(key) {
    try {
      return JSON.parse(readFileSync(this.#file(key), "utf8"));
    } catch (err) {
      if (err.code === "ENOENT") return undefined;
      throw err;
    }
  }

  // begin says that a do of the key is at work until then, in milliseconds, for probes of all instances.
  begin(key, until) {
    renameSync(this.#write({ key, until }), this.#file(key, ".work"));
  }

  // end says that it is not any more.
  end(key) {
    rmSync(this.#file(key, ".work"), { force: true }); // another do of the key may have ended
  }

  // working is whether a do of the key may be at work.
  working(key) {
    try {
      return Date.now() < JSON.parse(readFileSync(this.#file(key, ".work"), "utf8")).until;
    } catch (err) {
      if (err.code === "ENOENT") return false;
      throw err;
    }
  }

  #file(key, kind = ".json") {
    return join(this.folder, createHash("sha256").update(key).digest("hex") + kind);
  }

  // write writes a file of its own, which is on disk before it gets the name of a key.
  #write(what) {
    const name = join(this.folder, `.${randomUUID()}`);
    const file = openSync(name, "wx");
    try {
      writeSync(file, JSON.stringify(what));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    return name;
  }

  #sync(folder) {
    const file = openSync(folder, "r");
    fsyncSync(file);
    closeSync(file);
  }
}
