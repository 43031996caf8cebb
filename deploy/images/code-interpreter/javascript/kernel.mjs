// The node process of a JavaScript or TypeScript context. The main thread runs the cells; control.mjs, in a thread of its
// own, takes them from the bridge and has the main thread's inspector evaluate them, so that a loop can be interrupted.
import { Session } from "node:inspector";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";
import { runInThisContext } from "node:vm";
import { Worker } from "node:worker_threads";

import { sayer } from "./say.mjs";

const fd = Number(process.env.TALON_KERNEL_FD);
delete process.env.TALON_KERNEL_FD;

const lock = new Int32Array(new SharedArrayBuffer(4));
const say = sayer(fd, lock);

// What a value is shown as: its own idea of it, by the conventions of Jupyter kernels, and text.
function bundle(value) {
  const own = value?.[Symbol.for("Jupyter.display")] ?? value?._toMime ?? value?._toHtml;
  const text = { "text/plain": typeof value === "string" ? inspect(value) : inspect(value, { depth: 4 }) };
  if (typeof own !== "function") return text;
  const shown = own.call(value);
  return { ...text, ...(typeof shown === "string" ? { "text/html": shown } : shown) };
}

function display(value) {
  say({ kind: "display", data: bundle(value) });
}
display.mime = (data) => say({ kind: "display", data });
for (const [name, type] of Object.entries({
  html: "text/html", markdown: "text/markdown", latex: "text/latex", svg: "image/svg+xml", json: "application/json",
})) display[name] = (data) => display.mime({ [type]: data });
display.png = (data) => display.mime({ "image/png": Buffer.from(data).toString("base64") });

const require = createRequire(process.cwd() + "/");
const load = async (name) => {
  const found = name.startsWith("node:") ? name : require.resolve(name);
  return import(found.startsWith("/") ? pathToFileURL(found).href : found);
};
const hidden = { value: { say, bundle, load }, enumerable: false, configurable: false };
Object.defineProperty(globalThis, Symbol.for("talon"), hidden);
Object.assign(globalThis, { display, require });


const session = new Session();
session.connect();
const hiddenName = "globalThis[Symbol.for('talon')]";

function show(result, answer) {
  if (result.type === "undefined") return answer({});
  const { objectId, unserializableValue, value } = result;
  const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
  session.post("Runtime.evaluate", { expression: "globalThis" }, (_, home) => {
    const functionDeclaration = `function (value) { return ${hiddenName}.bundle(value); }`;
    const call = { objectId: home.result.objectId, functionDeclaration, arguments: [argument], returnByValue: true };
    session.post("Runtime.callFunctionOn", call, (error, shown) => {
      const plain = { "text/plain": result.description ?? String(value) };
      answer({ kind: "result", data: error || shown.exceptionDetails ? plain : shown.result.value });
    });
  });
}

function evaluate({ expression, count }) {
  const answer = (told) => {
    session.post("Runtime.releaseObjectGroup", { objectGroup: "cell" });
    worker.postMessage({ count, ...told });
  };
  const asked = { expression, replMode: true, awaitPromise: true, objectGroup: "cell" };
  session.post("Runtime.evaluate", asked, (error, done) => {
    if (error) answer({ stopped: true });
    else if (done.exceptionDetails) answer({ details: done.exceptionDetails });
    else show(done.result, (told) => answer({ told }));
  });
}

process.on("SIGINT", () => {});
process.on("uncaughtException", (error) => console.error(error));
const worker = new Worker(new URL("./control.mjs", import.meta.url), { workerData: { fd, lock }, stdout: false, stderr: false });
worker.on("message", (order) => {
  hidden.value.step = () => evaluate(order);
  try {
    // SIGINT ends what runs inside of this call, and nothing else.
    runInThisContext(`${hiddenName}.step()`, { breakOnSigint: true });
  } catch (error) {
    if (error?.code !== "ERR_SCRIPT_EXECUTION_INTERRUPTED") console.error(error);
    worker.postMessage({ count: order.count, stopped: true });
  }
});
