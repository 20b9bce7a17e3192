// The least that an agent in JavaScript has: it answers each command, with a result or with an error. It keeps no ledger; agent.mjs
// does, and holds every rule.
//
//   node least.mjs       NATS_URL
import { connect, headers } from "@nats-io/transport-node";
import { pathToFileURL } from "node:url";

// answer carries out a command. What work throws is answered too: a promise that no one catches would end the process, and the
// step would wait for its complete-by.
export async function answer(m, work) {
  try {
    m.respond(JSON.stringify((await work(m.json())) ?? null));
  } catch (err) {
    const h = headers();
    h.set("Nats-Service-Error", String(err.message).replace(/\s+/g, " ").slice(0, 1000));
    h.set("Nats-Service-Error-Code", String(err.code ?? 500));
    m.respond("", { headers: h });
  }
}

// charge is a do; nothing is charged for what it refuses, so 422 says that there is nothing to undo.
export async function charge(c) {
  if (!Number.isInteger(c.input.cents)) throw Object.assign(new Error("cents: want a whole number"), { code: 422 });
  return { number: `r-${c.key}` };
}

async function main() {
  const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222", maxReconnectAttempts: -1 });
  const serve = (subject, work) => nc.subscribe(subject, { queue: "q", callback: (_, m) => answer(m, work) });
  serve("duly.do.payment.charge", charge);
  serve("duly.undo.payment.charge", async () => {});
  await nc.closed();
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await main();
