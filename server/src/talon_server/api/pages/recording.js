// The replay page of one recording: terminals in asciinema-player, the timeline beside it.
// Its data is embedded (an export) or fetched from /v2/recordings/{id} with an API key or a link's token.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { records: [], meta: {}, begun: 0, items: [], player: null, terminal: null };

async function start() {
  const embedded = $("data");
  if (embedded) return show(JSON.parse(embedded.textContent));
  const fragment = new URLSearchParams(location.hash.slice(1));
  const key = fragment.get("token") || sessionStorage.getItem("talon-key");
  if (fragment.has("token")) history.replaceState(null, "", location.pathname);
  return key ? load(key) : ask("");
}

function ask(reason) {
  $("ask").hidden = false;
  $("refused").textContent = reason;
  $("ask").onsubmit = (event) => { event.preventDefault(); load($("key").value.trim()); };
  $("key").focus();
}

async function load(key) {
  const base = "/v2/recordings/" + encodeURIComponent(location.pathname.split("/").pop());
  const headers = { Authorization: "Bearer " + key };
  const [meta, timeline] = await Promise.all([fetch(base, { headers }), fetch(base + "/timeline", { headers })]);
  const bad = [meta, timeline].find((answer) => !answer.ok);
  if (bad) {
    sessionStorage.removeItem("talon-key");
    const error = await bad.json().catch(() => ({}));
    return ask([error.message || "The server answered " + bad.status + ".", error.remedy].filter(Boolean).join(" "));
  }
  sessionStorage.setItem("talon-key", key);
  $("ask").hidden = true;
  const lines = (await timeline.text()).split("\n").filter((line) => line.endsWith("}"));
  show({ meta: await meta.json(), records: lines.map((line) => JSON.parse(line)) });
}

function show({ meta, records }) {
  Object.assign(state, { meta, records, begun: records.length ? records[0].at : 0 });
  $("title").textContent = "Recording of " + (meta.sandbox_name || meta.sandbox_id || meta.id);
  $("facts").textContent = facts(meta, records);
  badge(meta);
  state.items = itemsOf(records);
  terminals();
  $("search").oninput = $("kind").onchange = list;
  list();
  $("view").hidden = false;
}

function facts(meta, records) {
  const seconds = records.length ? records[records.length - 1].at - state.begun : 0;
  const when = state.begun ? new Date(state.begun * 1000).toLocaleString() : "";
  return [when, clock(seconds), records.length + " records"].filter(Boolean).join(" · ");
}

function badge(meta) {
  const sound = meta.verified;
  $("seal").hidden = sound === undefined;
  $("seal").textContent = sound === false ? "altered: " + (meta.reason || "") : meta.state === "live" ? "live, chain holds" : "verified";
  $("seal").className = "badge" + (sound === false ? " bad" : meta.state === "live" ? " live" : "");
}

// One item of the timeline per command (with its output and end) and per other record, terminals' output left out.
function itemsOf(records) {
  const items = [], commands = new Map();
  for (const record of records) {
    if (record.kind === "cmd.start") {
      const item = { record, kind: "cmd", text: words(record.command), output: "", failed: false };
      commands.set(record.id, item);
      items.push(item);
    } else if (record.kind === "cmd.out" && commands.has(record.id)) {
      commands.get(record.id).output += textOf(record);
    } else if (record.kind === "cmd.exit" && commands.has(record.id)) {
      Object.assign(commands.get(record.id), { exit: record, failed: record.exit_code !== 0 });
    } else if (!["term.out", "term.in", "cmd.out", "cmd.exit"].includes(record.kind)) {
      items.push({ record, kind: record.kind.split(".")[0], text: describe(record), failed: record.allowed === false });
    }
  }
  return items;
}

function describe(record) {
  switch (record.kind) {
    case "open": return "recording begins";
    case "term.open": return "terminal " + record.id + ": " + words(record.command || "shell");
    case "term.resize": return "terminal " + record.id + " is now " + record.cols + "×" + record.rows;
    case "term.exit": return "terminal " + record.id + " ended with " + record.exit_code;
    case "file": return [record.action, record.path, record.size === undefined ? "" : record.size + " bytes"].join(" ");
    case "life": return "sandbox " + record.state + (record.reason ? ": " + record.reason : "");
    case "net": return (record.allowed ? "allowed " : "denied ") + [record.name, record.address, record.port || ""].filter(Boolean).join(" ");
    case "port": return "port " + record.port + " " + record.action + (record.process ? " by " + record.process : "");
    case "gap": return "gap: " + record.lost + " records lost, " + record.reason;
    default: return record.text || record.kind;
  }
}

function list() {
  const wanted = $("search").value.toLowerCase(), kind = $("kind").value;
  const found = state.items.filter((item) =>
    (!kind || item.kind === kind) && (!wanted || (item.text + "\n" + (item.output || "")).toLowerCase().includes(wanted)));
  $("count").textContent = found.length + " of " + state.items.length;
  $("timeline").replaceChildren(...found.slice(0, 2000).map(row));
}

function row(item) {
  const button = document.createElement("button");
  button.append(
    cell("time", clock(item.record.at - state.begun)), cell("span", item.kind, "kind"),
    cell("span", item.text + (item.exit ? "  → " + item.exit.exit_code : ""), "what"));
  button.onclick = () => open(item);
  const place = document.createElement("li");
  place.className = item.kind + (item.failed ? " failed" : "");
  place.append(button);
  return place;
}

function cell(tag, text, name) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

// A command shows its output; anything else seeks the terminal that was running then.
function open(item) {
  if (item.kind === "cmd") return output(item);
  const running = terminalAt(item.record);
  if (running) play(running, item.record.at - running.at);
}

function output(item) {
  if (state.player) state.player.pause();
  $("player").hidden = true;
  $("output").hidden = false;
  const end = item.exit ? "exit " + item.exit.exit_code + (item.exit.timed_out ? ", timed out" : "") + (item.exit.oom_killed ? ", out of memory" : "") : "still running";
  $("output").textContent = "$ " + item.text + "\n" + item.output + "\n[" + end + "]";
}

function terminalAt(record) {
  const opened = state.records.filter((one) => one.kind === "term.open" && one.at <= record.at + 0.001);
  return opened.find((one) => one.id === record.id) || opened[opened.length - 1];
}

function terminals() {
  const opened = state.records.filter((record) => record.kind === "term.open");
  $("terminals").replaceChildren(...opened.map((record) => {
    const button = cell("button", record.id + " " + words(record.command || "shell"));
    button.dataset.terminal = record.id;
    button.onclick = () => play(record, 0);
    return button;
  }));
  if (opened.length) play(opened[0], 0, false);
  else { $("player").textContent = "No terminal was opened. Commands and events are in the timeline."; }
}

function play(opened, at, run = true) {
  $("output").hidden = true;
  $("player").hidden = false;
  if (state.terminal !== opened.id) {
    if (state.player) state.player.dispose();
    $("player").replaceChildren();
    if (typeof AsciinemaPlayer === "undefined") return plain(opened);
    const options = { idleTimeLimit: 2, fit: "width", preload: true, markers: markers(opened) };
    state.player = AsciinemaPlayer.create({ data: cast(opened) }, $("player"), options);
    state.terminal = opened.id;
    for (const button of $("terminals").children) button.setAttribute("aria-pressed", String(button.dataset.terminal === opened.id));
  }
  state.player.seek(Math.max(0, at)).then(() => { if (run) state.player.play(); });
}

// The terminal's text, where the server has no player installed.
function plain(opened) {
  const text = state.records.filter((record) => record.id === opened.id && record.kind === "term.out").map(textOf).join("");
  $("player").hidden = true;
  $("output").hidden = false;
  $("output").textContent = "(no player is installed on the server; the text alone)\n\n" + text.replace(/\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*(\x07|\x1b\\)|[()][A-Z0-9]|.)/g, "");
}

function cast(opened) {
  const mine = state.records.filter((record) => record.id === opened.id);
  const lines = [JSON.stringify({ version: 2, width: opened.cols || 80, height: opened.rows || 24 })];
  for (const record of mine) {
    const at = record.at - opened.at;
    if (record.kind === "term.out") lines.push(JSON.stringify([at, "o", textOf(record)]));
    if (record.kind === "term.resize") lines.push(JSON.stringify([at, "r", record.cols + "x" + record.rows]));
  }
  return lines.join("\n") + "\n";
}

function markers(opened) {
  return state.items.filter((item) => item.kind === "cmd" && item.record.at >= opened.at)
    .slice(0, 200).map((item) => [item.record.at - opened.at, item.text.slice(0, 60)]);
}

function textOf(record) {
  if (record.data !== undefined) return record.data;
  const bytes = Uint8Array.from(atob(record.b64 || ""), (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}

function words(command) { return Array.isArray(command) ? command.join(" ") : String(command ?? ""); }

function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds)), two = (n) => String(n).padStart(2, "0");
  return (whole >= 3600 ? Math.floor(whole / 3600) + ":" : "") + two(Math.floor(whole / 60) % 60) + ":" + two(whole % 60);
}

start();
