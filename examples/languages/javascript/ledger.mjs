// A ledger in a folder: one file for each key. To make the file is the effect, so that there is no moment in which an effect
// stands and the ledger does not say so, whatever dies when and however many instances there are.
import { createHash, randomUUID } from "node:crypto";
import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, readFileSync, renameSync, unlinkSync, writeSync } from "node:fs";
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

  #file(key) {
    return join(this.folder, createHash("sha256").update(key).digest("hex") + ".json");
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
