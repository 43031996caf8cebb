// Takes cells from the bridge and has the main thread's inspector evaluate them in REPL mode: const and let may be declared
// again, await works at the top. Lines of JSON on one socket; the main thread writes displays to it, whole lines at once.
import { Session } from "node:inspector";
import { stripTypeScriptTypes } from "node:module";
import { Socket } from "node:net";
import { createInterface } from "node:readline";
import { parentPort, workerData } from "node:worker_threads";

import { sayer } from "./say.mjs";

const socket = new Socket({ fd: workerData.fd, readable: true, writable: true });
const session = new Session();
session.connectToMainThread();
const post = (method, params) =>
  new Promise((resolve, reject) => session.post(method, params, (error, done) => (error ? reject(error) : resolve(done))));

const HIDDEN = "globalThis[Symbol.for('talon')]";
const INTERRUPTED = { name: "KeyboardInterrupt", value: "interrupted", traceback: ["interrupted"] };
const waiting = new Map();
let interrupted = null;

// Static imports are statements of modules; a cell is a script.
function imports(code) {
  const load = (name) => `await ${HIDDEN}.load(${JSON.stringify(name)})`;
  return code
    .replace(/^\s*import\s+(['"])([^'"\n]+)\1\s*;?/gm, (_, quote, name) => `${load(name)};`)
    .replace(/^\s*import\s+([^'"]+?)\s+from\s+(['"])([^'"\n]+)\2\s*;?/gm, (_, what, quote, name) => bind(what, load(name)))
    .replace(/(?<![\w.$])import\s*\(/g, `${HIDDEN}.load(`);
}

function bind(what, loaded) {
  const all = /^\*\s+as\s+([\w$]+)$/.exec(what);
  if (all) return `const ${all[1]} = ${loaded};`;
  const [, first, names] = /^([\w$]+)?\s*,?\s*(\{[\s\S]*\})?$/.exec(what) ?? [];
  const parts = first ? [`default: ${first}`] : [];
  if (names) parts.push(...names.slice(1, -1).split(",").map((one) => one.trim().replace(/\s+as\s+/, ": ")).filter(Boolean));
  return `const { ${parts.join(", ")} } = ${loaded};`;
}

function failure(details) {
  const told = details.exception ?? {};
  if (/Execution was terminated|terminated/.test(details.text) && !told.className) return INTERRUPTED;
  const lines = String(told.description ?? told.value ?? details.text).split("\n");
  const own = lines.filter((line) => !/node:|evalmachine|\/javascript\/(kernel|control)\.mjs/.test(line));
  const name = told.className ?? "Error";
  return { name, value: lines[0].replace(new RegExp(`^${name}:\\s*`), ""), traceback: own };
}

// The main thread evaluates in a session of its own: a session of this thread would dispatch nothing while a cell runs.
function evaluate(order) {
  let code;
  try {
    code = order.typescript ? stripTypeScriptTypes(order.code, { mode: "transform" }) : order.code;
  } catch (error) {
    return Promise.resolve({ error: syntax(error) });
  }
  const expression = `${imports(code)}\n//# sourceURL=cell-${order.count}`;
  parentPort.postMessage({ expression, count: order.count });
  return new Promise((resolve) => waiting.set(order.count, resolve));
}

parentPort.on("message", ({ count, details, told, stopped }) => {
  const resolve = waiting.get(count);
  waiting.delete(count);
  if (resolve) resolve(stopped ? { error: INTERRUPTED } : details ? { error: failure(details) } : told);
});

async function run(order) {
  const broken = new Promise((resolve) => { interrupted = resolve; });
  const told = await Promise.race([evaluate(order), broken]);
  interrupted = null;
  say({ done: true, ...told });
}

function syntax(error) {
  const words = String(error.message ?? error).trim();
  return { name: error.name ?? "SyntaxError", value: words, traceback: [words] };
}

function interrupt() {
  const settle = interrupted;
  if (!settle) return;
  post("Runtime.terminateExecution").catch(() => {});
  // A promise that never comes is not ended by that: the cell is left behind.
  setTimeout(() => settle({ error: INTERRUPTED }), 300);
}

const say = sayer(workerData.fd, workerData.lock);

createInterface({ input: socket }).on("line", (line) => {
  const order = JSON.parse(line);
  if (order.op === "run") run(order);
  else interrupt();
});
say({ ready: true });
