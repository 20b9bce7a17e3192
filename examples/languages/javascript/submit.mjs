// A submitter in JavaScript, on a plain NATS connection: it submits a task, by one id until the answer is known, and waits for
// its end.
//
//   node submit.mjs TYPE ID INPUT [COMPLETE_BY]       NATS_URL, DULY_NAMESPACE
import { connect, createInbox, headers } from "@nats-io/transport-node";
import { setTimeout as sleep } from "node:timers/promises";
import { ask, readAnswer, readStatuses, submission } from "./wire.mjs";

const [type, id, input, completeBy] = process.argv.slice(2);
if (!input) {
  console.error("usage: node submit.mjs TYPE ID INPUT [COMPLETE_BY]");
  process.exit(2);
}
const namespace = process.env.DULY_NAMESPACE ?? "duly";
const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222", maxReconnectAttempts: -1 });

// send sends a message until its answer is known. No answer, and nobody who listens, leave open what is stored.
async function send({ subject, headers: named, data }) {
  const h = headers();
  for (const [name, value] of Object.entries(named)) h.set(name, value);
  for (let pause = 50; ; pause = Math.min(2 * pause, 2000)) {
    let after = 0;
    try {
      const answer = readAnswer((await nc.request(subject, data, { timeout: 5000, headers: h })).data);
      if (answer.ok || !answer.again) return answer;
      after = answer.after;
    } catch (err) {
      if (nc.isClosed()) throw err;
    }
    await sleep(after + pause * Math.random());
  }
}

// A status may be lost: then the task is looked at.
const inbox = createInbox();
let end;
const came = new Promise((resolve) => {
  nc.subscribe(inbox, {
    callback: (err, m) => {
      for (const one of err ? [] : readStatuses(m.data)) if (one.ended) resolve((end = one));
    },
  });
});
const named = { "Duly-Reply-To": inbox, ...(completeBy && { "Duly-Complete-By": completeBy }) };
const stored = await send(submission(type, id, JSON.parse(input), named, namespace));
if (!stored.ok) end = { status: "refused", code: stored.code, error: stored.text };
while (!end) {
  await Promise.race([came, sleep(2000)]);
  if (end) break;
  const task = await send(ask("get", type, { id }, namespace));
  if (task.ok && task.ended_at) end = { status: task.state, error: task.reason };
}
console.log([end.status, end.error].filter(Boolean).join(": "));
await nc.drain();
process.exit(end.status === "processed" ? 0 : 1);
