// What goes over the wire between Duly, a submitter and an agent, without a connection: docs/reference/protocol.md has the
// meaning, and golden.test.mjs holds all of it to the golden messages.

export const resultMax = 64 << 10; // bytes of a result, unless the plan says less
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
// Task, type, step and key of a command, a space between two; in the id of a task ~ stands before what a child is called.
const names = /^([A-Za-z0-9_~-]{1,255}) [A-Za-z0-9_-]{1,64} ([A-Za-z0-9_-]{1,64}) \1\/\2\/\d{1,10}$/;

// Refusal is an answer with a code: 4xx is final, 512 is final and undone, other 5xx are tried again.
export class Refusal extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

const parse = (data) => JSON.parse(utf8.decode(data));
const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);

// readCommand reads a command: members that are not known are passed over.
export function readCommand(data) {
  let c;
  try {
    c = parse(data);
  } catch (err) {
    throw new Refusal(400, `not a command: ${err.message}`);
  }
  if (!isObject(c)) throw new Refusal(400, "not a command: want an object");
  if (c.v !== 1) throw new Refusal(501, `version ${JSON.stringify(c.v)} of a command, want 1`);
  const said = [c.task, c.type, c.step, c.key];
  if (said.some((s) => typeof s !== "string") || !names.test(said.join(" "))) throw new Refusal(400, "task, type, step: want names; key: want <task>/<step>/<round>");
  if (typeof c.left_ms !== "number" || Number.isNaN(Date.parse(c.complete_by))) throw new Refusal(400, "complete_by, left_ms: want a time and a number");
  return c;
}

// errorHeaders are those of an answer that is an error.
export const errorHeaders = (code, text) => ({ "Nats-Service-Error": text.replace(/[\r\n]+/g, " ").slice(0, 400), "Nats-Service-Error-Code": String(code) });

// readReply is what an agent's answer counts as: a code, 0 for success, and a result or the words of an error.
export function readReply(headers, data, most = resultMax) {
  const { "Duly-Instance": instance } = headers;
  const { "nats-service-error": error = "", "nats-service-error-code": code = "" } = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  const said = instance === undefined ? {} : { instance };
  if (error !== "" || code !== "") return { code: /^[45]\d\d$/.test(code) ? Number(code) : 500, error, ...said };
  const bad = (text) => ({ code: 512, error: `bad_result: ${text}`, ...said });
  if (data.length > most) return bad(`${data.length} bytes, the limit is ${most}`);
  if (data.length === 0) return { code: 0, result: null, ...said };
  try {
    if (/(^|[^\\])(\\\\)*\\u0000/.test(utf8.decode(data))) return bad("result holds a NUL");
    return { code: 0, result: parse(data), ...said };
  } catch (err) {
    return bad(err.message);
  }
}

// readProbe is what an agent says became of a do: one that cannot tell, or says what there is not, is unknown.
export function readProbe(headers, data) {
  const { code, result } = readReply(headers, data);
  if (code !== 0 || !isObject(result) || result.v !== 1) return { outcome: "unknown" };
  return ["done", "absent", "in_progress"].includes(result.outcome) ? result : { v: 1, outcome: "unknown" };
}

// request is what a submitter sends: a subject, headers and a payload.
const request = (subject, payload, headers = {}) => ({ subject, headers, data: new TextEncoder().encode(JSON.stringify(payload)) });

// submission is a task of a type: the id is chosen before the first try, and kept for each further one. JSON.stringify keeps
// no number beyond 2^53: send such an amount as text.
export const submission = (type, id, input, headers, namespace = "duly") => request(`${namespace}.submit.${type}.${id}`, input, headers);

// ask is a request about a task: cancel, undo, resubmit, edit, accept, resolve, extend, signal, migrate, or get and list,
// which change nothing and name no kind.
export function ask(kind, type, members, namespace = "duly") {
  const about = kind === "get" || kind === "list" ? { v: 1, type } : { v: 1, kind, type };
  return request(`${namespace}.ask.${kind}.${type}`, { ...about, ...members });
}

// readAnswer is what a door answers. Where it is not ok, again says whether the same may be sent again, after so many
// milliseconds; stored is undefined where that is not known.
export function readAnswer(data) {
  const a = parse(data);
  if (!isObject(a)) throw new Error("an answer is an object");
  if (!isObject(a.error)) return { ok: true, ...a };
  const { code, err_code: cause = 0, description: text = "" } = a.error;
  const again = code === 408 || code === 425 || code === 429 || code >= 500;
  return { ok: false, stored: code === 504 ? undefined : false, again, after: a.retry_ms ?? 0, code, cause, text };
}

// readStatuses are the statuses or ends in a message. One of which the word is not known changes nothing.
export function readStatuses(data) {
  const { events, ...all } = parse(data);
  if (all.v !== 1) throw new Error(`version ${JSON.stringify(all.v)} of a status, want 1`);
  const ended = ["processed", "undone", "error", "refused"].includes(all.status);
  return (events ?? [{}]).map((one) => ({ ...all, ...one, ended }));
}
