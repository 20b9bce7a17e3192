// Every command is answered once, whatever its handler does.
import assert from "node:assert/strict";
import test from "node:test";
import { answer, charge } from "./least.mjs";

// said is what a command is answered with: its data, code and words.
async function said(input, work) {
  const answers = [];
  await answer({ json: () => ({ key: "k", input }), respond: (data, options) => answers.push([data, options?.headers]) }, work);
  assert.equal(answers.length, 1);
  const [data, h] = answers[0];
  return [data, h?.get("Nats-Service-Error-Code"), h?.get("Nats-Service-Error")];
}

test("a result", async () => assert.deepEqual(await said({ cents: 5 }, charge), ['{"number":"r-k"}', undefined, undefined]));
test("no result", async () => assert.deepEqual(await said({}, async () => {}), ["null", undefined, undefined]));
test("refused", async () => assert.deepEqual(await said({ cents: "5" }, charge), ["", "422", "cents: want a whole number"]));
test("thrown", async () => assert.deepEqual(await said({}, () => { throw new Error("two\r\nlines"); }), ["", "500", "two lines"]));
test("the system's", async () => assert.equal((await said({}, async () => { throw Object.assign(new Error("away"), { code: "ECONNREFUSED" }); }))[1], "ECONNREFUSED"));
