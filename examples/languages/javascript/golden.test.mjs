// The golden messages of Duly's protocol, played against the agent of this folder, which has to run, and read and written as
// a client does.
//
//   node --test golden.test.mjs       NATS_URL; DULY_SOURCE: Duly's source, three folders up unless it is said
import { connect, createInbox, headers } from "@nats-io/transport-node";
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, test } from "node:test";
import { ask, errorHeaders, readAnswer, readCommand, readProbe, readReply, readStatuses, Refusal, submission } from "./wire.mjs";

const source = process.env.DULY_SOURCE ?? new URL("../../..", import.meta.url).pathname;
const folder = `${source}/testdata/protocol`;
const golden = new Map();
for (const file of readdirSync(folder).filter((file) => file.endsWith(".json"))) {
  golden.set(file.slice(0, -5), JSON.parse(readFileSync(`${folder}/${file}`, "utf8")));
}

// What the examples in JavaScript neither send nor read: batches, which an agent need not take, books, plans, what people
// watch, and dead letters.
const left = /^(batch|books|plan)-|^(books|watched|steps|dead-letter)$/;
const seen = new Set();

// message is a golden message that is held to something.
function message(name) {
  const m = golden.get(name);
  assert.ok(m, `there is no golden message ${name}`);
  seen.add(name);
  return m;
}

// names are those that begin so and are from somebody.
const names = (from, ...prefixes) => [...golden.keys()].filter((n) => golden.get(n).from === from && prefixes.some((p) => n.startsWith(p)));

// bytes are the payload of a message.
function bytes(m) {
  if (m.payload_hex !== undefined) return Buffer.from(m.payload_hex, "hex");
  return Buffer.from(m.payload_text ?? (m.payload === undefined ? "" : JSON.stringify(m.payload)));
}

const code = (name) => Number(message(name).headers["Nats-Service-Error-Code"]);

// table is the table below a heading of the protocol's page: its rows, without a backtick.
function table(heading) {
  const page = readFileSync(`${source}/docs/reference/protocol.md`, "utf8");
  const lines = page.slice(page.indexOf(`\n### ${heading}\n`)).split("\n");
  const begin = lines.findIndex((line) => line.startsWith("|---"));
  const end = lines.findIndex((line, i) => i > begin && !line.startsWith("|"));
  return lines.slice(begin + 1, end).map((line) => line.replaceAll("`", "").split("|").slice(1, -1).map((cell) => cell.trim()));
}

// has is whether a cell such as "408, 5xx but 501, 503" or "7001, 7003–7011" has a number.
function has(cell, n) {
  const [these, but] = cell.split(" but ");
  const in_ = (list) => list.split(", ").some((part) => {
    const [first, last = first] = part.split("–");
    return part.endsWith("xx") ? Math.floor(n / 100) === Number(part[0]) : Number(first) <= n && n <= Number(last);
  });
  return in_(these) && (but === undefined || !in_(but));
}

// answers is the row of an agent's code, doors that of a door's code and cause.
const answers = table("Answers");
const rowOf = (n) => answers.filter(([cell]) => (n === 0 ? cell === "a result, or nothing" : /\d/.test(cell) && has(cell, n)));
const doors = table("What a door answers");

test("a command is read, or is refused by its code", () => {
  for (const name of names("duly", "do", "undo", "probe")) {
    const m = message(name);
    if (m.refused) {
      assert.throws(() => readCommand(bytes(m)), (err) => err instanceof Refusal && [m.refused.code, m.refused.or].includes(err.code), name);
      continue;
    }
    assert.deepEqual(readCommand(bytes(m)), m.payload, name);
    assert.match(m.subject, /^duly\.(do|undo|probe)\.payment\.charge$/, name);
  }
});

test("an answer of an agent counts as what the file and the table say", () => {
  const met = new Set();
  for (const name of names("agent", "reply")) {
    const m = message(name);
    const most = name === "reply-large" ? Number(/result_max of (\d+)/.exec(m.what)[1]) : undefined;
    const { error, ...is } = readReply(m.headers ?? {}, bytes(m), most);
    const { error: want, ...means } = m.means;
    assert.deepEqual(is, means, name);
    if (m.headers?.["Nats-Service-Error"]) assert.equal(error, want, name);
    const rows = rowOf(is.code);
    assert.equal(rows.length, 1, `${name}: rows of code ${is.code}`);
    met.add(rows[0]);
  }
  for (const row of answers) assert.ok(met.has(row) || ["silence", "no responder"].includes(row[0]), `no golden message is answered ${row[0]}`);
});

test("an answer is written as an agent writes it", () => {
  for (const name of names("agent", "reply").filter((n) => golden.get(n).headers?.["Nats-Service-Error"] && !n.startsWith("reply-code"))) {
    const m = message(name);
    assert.deepEqual(errorHeaders(m.means.code, m.means.error), m.headers, name);
  }
});

test("a probe's answer is read", () => {
  const read = (name) => readProbe(message(name).headers ?? {}, bytes(message(name)));
  for (const name of ["probe-done", "probe-absent", "probe-in-progress"]) assert.deepEqual(read(name), message(name).payload, name);
  for (const name of ["probe-not-known", "probe-wrong"]) assert.equal(read(name).outcome, "unknown", name);
});

test("what a submitter sends is written", () => {
  const by = { id: "order-17", actor: "desk", reason: "the customer has called" };
  const input = { Cents: 1999 };
  const at = "0.5b1f6e0c2d9a47838e61c0f4a7d25b93";
  const answer = { id: "order-17", actor: "desk", step: "approve" };
  const sent = {
    submit: submission("order", "order-17", input),
    "submit-headers": submission("order", "order-18", input, {
      "Duly-Complete-By": "2h", "Duly-Labels": "tenant=acme,tier=gold", "Duly-Plan-Version": "newest", "Duly-Reply-To": "_INBOX.shop.status",
      "Duly-Start-At": "1h", traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }),
    "ask-cancel": ask("cancel", "order", by),
    "ask-cancel-unknown": ask("cancel", "order", { ...by, even_if_unknown: true }),
    "ask-undo": ask("undo", "order", { ...by, if_seq: 12 }),
    "ask-resubmit": ask("resubmit", "order", by),
    "ask-edit": ask("edit", "order", { ...by, if_seq: 12, input: { Cents: 999 } }),
    "ask-accept": ask("accept", "order", { ...by, step: "charge", if_seq: 12, result: { Number: "by hand" } }),
    "ask-resolve": ask("resolve", "order", { ...by, as: "undone" }),
    "ask-extend": ask("extend", "order", { ...by, until: "2026-11-25T11:00:00.000000Z" }),
    "ask-migrate": ask("migrate", "order", { ...by, version: 2 }),
    "ask-signal": ask("signal", "order", { ...answer, result: { by: "desk" } }),
    "ask-signal-ask": ask("signal", "order", { ...answer, ask: at, result: { by: "desk" } }),
    "ask-signal-no": ask("signal", "order", { ...answer, reason: "too dear" }),
    "ask-signal-no-ask": ask("signal", "order", { ...answer, ask: at, reason: "too dear" }),
    get: ask("get", "order", { id: "order-17" }),
    list: ask("list", "order", { state: "error", label: "tenant=acme", limit: 50, after: "c-1" }),
  };
  for (const [name, is] of Object.entries(sent)) {
    const { subject, headers: named = {}, payload } = message(name);
    assert.deepEqual({ ...is, data: JSON.parse(Buffer.from(is.data)) }, { subject, headers: named, data: payload }, name);
  }
  const stream = message("submit-stream"); // the same, by JetStream
  assert.deepEqual([stream.subject.replace(".in.", ".submit."), stream.payload], [message("submit").subject, message("submit").payload]);
});

test("what a door answers is read, and says what to do", () => {
  for (const name of names("duly", "submit-", "ask-", "get-", "task", "page")) {
    const m = message(name);
    const is = readAnswer(bytes(m));
    if (!m.payload.error) {
      assert.deepEqual(is, { ok: true, ...m.payload }, name);
      continue;
    }
    const { code, err_code, description } = m.payload.error;
    assert.deepEqual([is.ok, is.code, is.cause, is.text, is.after], [false, code, err_code, description, m.payload.retry_ms ?? 0], name);
    const rows = doors.filter((row) => has(row[0], code) && has(row[1], err_code));
    assert.ok(rows.length > 0 || err_code === 0, `${name}: no row has ${code} ${err_code}`);
    for (const [, , known, todo] of rows) {
      assert.equal(is.again, todo.includes("again"), `${name}: ${todo}`);
      assert.equal(is.stored === undefined, known.startsWith("not known"), `${name}: ${known}`);
    }
  }
  assert.equal(readAnswer(bytes(message("task-asks"))).steps[0].ask, message("ask-signal-ask").payload.ask);
  for (const name of names("submitter", "submit", "ask", "list", "get")) {
    const { refused } = message(name);
    if (refused) assert.equal(readAnswer(Buffer.from(JSON.stringify({ error: refused }))).again, false, name);
  }
});

test("statuses and ends are read", () => {
  const open = ["status-received", "status-newer", "live-undoing"]; // change nothing
  for (const name of names("duly", "status-", "live-", "event")) {
    const m = message(name);
    const { events = [{}], ...all } = m.payload;
    const ended = !open.includes(name);
    assert.deepEqual(readStatuses(bytes(m)), events.map((one) => ({ ...all, ...one, ended })), name);
    if (name.startsWith("event")) assert.equal(m.subject, `duly.events.${all.type}.${all.status}`, name);
  }
});

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222" });
after(() => nc.close());

// live is a command as its file has it, with the input of this agent, and time until a minute from now; task is another id.
function live(m, task) {
  const until = new Date(Date.now() + 60_000).toISOString();
  const text = bytes(m).toString().replace('"Cents"', '"cents"').replaceAll("order-17", task);
  return text.replace(/"complete_by":"[^"]*"/, `"complete_by":"${until}"`).replace(/"left_ms":\d+/, '"left_ms":60000');
}

// play sends a command to the agent, and is what its answer counts as.
async function play(name, task) {
  const m = message(name);
  const h = headers();
  for (const [header, value] of Object.entries(m.headers ?? {})) h.set(header, value);
  const answer = await nc.request(m.subject, live(m, task), { timeout: 60_000, headers: h });
  const named = Object.fromEntries((answer.headers?.keys() ?? []).map((key) => [key, answer.headers.get(key)]));
  return { ...readReply(named, answer.data), probe: readProbe(named, answer.data), empty: answer.data.length === 0 };
}

test("the agent: one effect a key, and none after its undo", async () => {
  const first = await play("do", "js-1");
  assert.equal(first.code, 0, first.error);
  for (const name of ["do-again", "do-newer", "do-traced"]) assert.deepEqual(await play(name, "js-1"), first, name);
  assert.deepEqual((await play("probe", "js-1")).probe, { ...message("probe-done").payload, result: first.result });
  for (const name of ["undo", "undo", "undo-unseen"]) {
    const is = await play(name, "js-1");
    assert.deepEqual([is.code, is.empty], [message("reply-undone").means.code, true], name);
  }
  assert.equal((await play("do-again", "js-1")).code, code("reply-gone"));
  assert.deepEqual((await play("probe", "js-1")).probe, message("probe-absent").payload);
  const child = await play("do-child", "js-1");
  assert.ok(child.code === 0 && child.result.number !== first.result.number, "a child's do has a key of its own");
  assert.equal((await play("undo-unseen", "js-1~parcels~2")).code, 0);
});

test("the agent: an undo before its do", async () => {
  assert.equal((await play("undo-unseen", "js-2")).code, 0);
  assert.equal((await play("do", "js-2")).code, code("reply-gone"));
});

test("the agent: what is no command is refused, and has no effect", async () => {
  for (const name of names("duly", "do").filter((n) => golden.get(n).refused)) {
    const { refused } = message(name);
    const is = await play(name, "js-3");
    assert.ok([refused.code, refused.or].includes(is.code), `${name} is answered ${is.code}, ${JSON.stringify(is.result)}`);
  }
  assert.deepEqual((await play("probe", "js-3")).probe, message("probe-absent").payload);
});

test("the agent: no answer once the time is over", async () => {
  const inbox = createInbox();
  let late = 0;
  nc.subscribe(inbox, { callback: () => late++ });
  for (const name of ["do", "undo", "do-again"]) nc.publish(message(name).subject, bytes(message(name)), { reply: inbox });
  for (const name of ["do", "undo"]) assert.equal((await play(name, "js-4")).code, 0, name); // come after those, and are answered
  await nc.flush();
  assert.equal(late, 0);
});

test("every golden message is held, but those that are left", () => {
  assert.deepEqual([...golden.keys()].filter((name) => !seen.has(name) && !left.test(name)), []);
});
