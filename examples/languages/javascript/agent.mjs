// An agent in JavaScript, on a plain NATS connection: it charges cards, in a folder.
//
//   node agent.mjs FOLDER [AGENT]       NATS_URL, DULY_NAMESPACE
import { connect, headers } from "@nats-io/transport-node";
import { setTimeout as sleep } from "node:timers/promises";
import { Gone, Ledger } from "./ledger.mjs";
import { errorHeaders, readCommand, readReply, Refusal } from "./wire.mjs";

const [folder, agent = "payment.charge"] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node agent.mjs FOLDER [AGENT]");
  process.exit(2);
}
const inputMax = 64 << 10; // bytes of a do
const runningMax = 1024; // commands at a time; one more is told to come again
const namespace = process.env.DULY_NAMESPACE ?? "duly";
const ledger = new Ledger(folder);
let running = 0;

// charge is the do. It alone looks at the input: an undo is never refused for it.
async function charge(c, bytes) {
  if (bytes > inputMax) throw new Refusal(413, `the command has ${bytes} bytes, the limit is ${inputMax}`);
  const { cents, card } = c.input ?? {};
  if (!Number.isInteger(cents) || cents <= 0) throw new Refusal(422, `cents: ${JSON.stringify(cents)}, want a whole number above 0`);
  ledger.begin(c.key, Date.parse(c.complete_by));
  try {
    if (card === "slow") await sleep(100); // the bank thinks
    return ledger.do(c.key, { number: `r-${c.key}`, cents });
  } finally {
    ledger.end(c.key);
  }
}

function probe(c) {
  const is = ledger.read(c.key);
  return is && !is.undone ? { v: 1, outcome: "done", result: is.result } : { v: 1, outcome: ledger.working(c.key) ? "in_progress" : "absent" };
}

// codeOf is what an error is answered with. What the system refuses may pass; any other error is the program's own, and would
// come again: an undo takes back what was done until then.
function codeOf(err) {
  if (err instanceof Gone) return 410;
  if (err instanceof Refusal) return err.code;
  return err.syscall === undefined ? 512 : 500;
}

// answer carries one command out, and answers it once or, when its time is over, not at all.
async function answer(m, work) {
  const came = Date.now();
  let until = Infinity;
  let code = 0;
  let said = "";
  running++;
  try {
    if (running > runningMax) throw new Refusal(429, `${runningMax} commands are at work`);
    const c = readCommand(m.data);
    until = Math.min(came + c.left_ms, Date.parse(c.complete_by));
    if (Date.now() >= until) return;
    said = JSON.stringify(await work(c, m.data.length)) ?? "";
    const counts = readReply({}, Buffer.from(said)); // what it would be read as: too large a result fails for good
    if (counts.code !== 0) throw new Refusal(counts.code, counts.error);
  } catch (err) {
    code = codeOf(err);
    said = err.message;
    if (code === 512) console.error(err.stack);
  } finally {
    running--;
  }
  if (Date.now() >= until) return; // another try has begun
  if (code === 0) {
    m.respond(said);
    return;
  }
  const h = headers();
  for (const [name, value] of Object.entries(errorHeaders(code, said))) h.set(name, value);
  m.respond("", { headers: h });
}

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222", maxReconnectAttempts: -1 });
const serve = (verb, work) =>
  nc.subscribe(`${namespace}.${verb}.${agent}`, {
    queue: "q", // so that each command comes to one instance
    callback: (err, m) => {
      if (err) console.error(`${verb}: ${err.message}`);
      else answer(m, work).catch((err) => console.error(`${verb}: ${err.message}`));
    },
  });
serve("do", charge);
serve("undo", async (c) => ledger.undo(c.key));
serve("probe", async (c) => probe(c));
await nc.flush();
console.log(`agent ${agent} is ready`);
process.on("SIGTERM", () => nc.drain()); // answers what it has, and takes no more
await nc.closed();
