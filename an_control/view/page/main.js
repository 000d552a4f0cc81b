// The page: receives the server's updates, draws them once a frame, and sends the visitor's commands.

import { WiringPanel } from "./wiring_panel.js";
import { Clusters, drawChart, drawMatrix } from "./charts.js";
import { Connection } from "./connection.js";
import { shown } from "./draw.js";
import { showAttention, showDiagnostics, showDoctor, showMonitor } from "./text_panels.js";
import { RobotView } from "./robot.js";

const byId = (id) => document.getElementById(id);
const KEPT = 1200, TRIES = 3;
const state = { ids: [], parts: [], wires: [], signals: [], scores: [], marks: [], robot: {} };
const robot = new RobotView(byId("robot"), (from, to) => {
  const signal = state.wires.find((one) => one.slot === from)?.signal;
  if (signal) panel.connectTo(signal, to);
});
const clusters = new Clusters(byId("clusters"));
const dirty = new Set();

const connection = new Connection({
  // A server that was started again does not accept the token in this page's address.
  gone(tries) {
    const next = tries < TRIES ? "connecting again" : "if it was started again, open the new address that it printed";
    showState("silent", `the page's server is gone; ${next}`);
  },
  robot(update) {
    state.robot = update;
    byId("name").textContent = update.name || "No robot";
    document.title = update.name ? `${update.name}: an_control live` : "an_control: live";
    byId("restart").disabled = !update.simulated;
    const others = update.others.length ? ` (also here: ${update.others.join(", ")})` : "";
    const how = update.recorded ? "recorded" : update.lockstep ? "lockstep" : "real time";
    const model = update.model ? `${update.model}, ${how}: ` : "";
    const safe = update.text.startsWith("safe command");
    showState(safe ? "safe" : update.state, `${model}${update.text || update.state}${others}`);
  },
  wiring(update) {
    Object.assign(state, { wires: update.wires, signals: update.signals, wiring: update });
    showWiring(update);
    mark("monitor");
  },
  channels({ ids }) {
    state.ids = ids;
    if (!ids.length) clear();
  },
  drawing(update) {
    robot.setDrawing(update);
    const hint = update.kind === "camera" ? "orange: attended patches; drag one to another place" : "";
    byId("robot-hint").textContent = update.problem || hint;
    mark("robot");
  },
  picture(data) {
    robot.setPicture(data);
    mark("robot");
  },
  tick(update) {
    state.tick = update;
    mark("robot", "figures");
  },
  matrix(update) {
    state.matrix = update;
    mark("matrix", "wiring");
  },
  clusters({ points }) {
    clusters.see(points);
    mark("clusters");
  },
  diagnostics({ parts }) {
    state.parts = parts;
    mark("monitor", "diagnostics");
  },
  score({ rows, fresh }) {
    state.scores = [...(fresh ? [] : state.scores), ...rows].slice(-KEPT);
    mark("charts");
  },
  marks({ marks }) {
    state.marks = marks;
    mark("charts");
  },
  recording(update) {
    document.body.dataset.recorded = "yes";
    byId("player").hidden = false;
    state.recording = update;
    showPlace();
  },
  health({ clients, refused, load }) {
    const browsers = `${clients} ${clients === 1 ? "browser" : "browsers"}`;
    byId("health").textContent = `page process ${shown(100 * load, 0)} % of a core, ${browsers}, ${refused} messages refused`;
  },
  reply({ ok, text, took_ms: ms }) {
    byId("reply").textContent = ok ? `${text} (${shown(ms, 0)} ms)` : text;
    byId("reply").classList.toggle("bad", !ok);
  },
});

const announced = () => document.querySelector("input[name=announced]:checked").value === "yes";
const act = (command, values) => connection.send(command, values);
const panel = new WiringPanel(byId("wiring"), { act, announced, tool: () => byId("tool").value });

// Without channels, remove what was drawn of them.
function clear() {
  state.tick = state.matrix = undefined;
  robot.clear();
  clusters.clear();
  mark("robot", "figures", "matrix", "clusters");
}

function showState(kind, text) {
  byId("lamp").dataset.state = kind;
  if (byId("state").textContent !== text) byId("state").textContent = text;
}

function showWiring(update) {
  panel.set(update);
  const [yes, no] = document.querySelectorAll("input[name=announced]");
  yes.disabled = update.why_not_announced !== "";
  no.disabled = update.why_not_unannounced !== "";
  const yesWanted = state.announced !== false;
  yes.checked = no.disabled || (yesWanted && !yes.disabled);
  no.checked = !yes.checked;
  byId("why").textContent = update.why_not_unannounced || update.why_not_announced;
  byId("undo").disabled = !update.undo;
  for (const id of ["jitter", "missing", "reshuffle", "every"]) byId(id).disabled = no.disabled;
  for (const id of ["shuffle", "restore"]) byId(id).disabled = yes.disabled && no.disabled;
  for (const option of byId("tool").options) option.disabled = option.value !== "connect" && no.disabled;
  showSettings(update.settings);
}

// An input that the visitor is changing stays as it is.
function showSettings({ jitter = 0, missing = 0, shuffle = 0 }, held = document.activeElement) {
  for (const [name, value, text] of [
    ["jitter", jitter, shown(jitter, 2)],
    ["missing", missing, `${shown(100 * missing)} %`],
  ]) {
    if (held === byId(name)) continue;
    byId(name).value = value;
    byId(`${name}-value`).textContent = text;
  }
  if (shuffle && held !== byId("every")) byId("every").value = shuffle;
  byId("reshuffle").checked = shuffle > 0;
}

// The place in a recording; while the visitor drags it, it stays where it is dragged to.
function showPlace() {
  const { at_s: at, length_s: length, playing, computed, speed, event } = state.recording;
  byId("place").max = length;
  if (!state.sought) byId("place").value = at;
  byId("at").textContent = `${shown(at, 1)} of ${shown(length, 1)} s${computed ? "" : ", being replayed"}`;
  byId("play").textContent = playing ? "Pause" : "Play";
  if (document.activeElement !== byId("speed")) byId("speed").value = speed;
  if (byId("event").textContent !== event) byId("event").textContent = event;
}

// Seek to where the slider is; while a reply is awaited, only the newest place waits.
async function seek() {
  if (state.sought) return;
  do {
    state.sought = byId("place").value;
    await act("seek", { seconds: +state.sought });
  } while (state.sought !== byId("place").value);
  state.sought = undefined;
}

function mark(...names) {
  if (!dirty.size) requestAnimationFrame(draw);
  for (const name of names) dirty.add(name);
}

function draw() {
  const { tick, ids, scores, marks } = state;
  if (dirty.has("robot")) robot.draw(tick, ids);
  if (dirty.has("wiring") && tick) panel.attend(new Map(ids.map((id, i) => [id, tick.attention[i] ?? 0])));
  if (dirty.has("figures")) showFigures(tick, ids);
  if (dirty.has("matrix")) drawMatrix(byId("matrix"), state.matrix);
  if (dirty.has("clusters")) drawClusters();
  if (dirty.has("monitor")) showMonitor(state.parts, state.wires, !state.wiring?.why_not_unannounced);
  if (dirty.has("diagnostics")) showDiagnostics(state.parts);
  if (dirty.has("diagnostics")) showAttention(state.parts);
  if (dirty.has("diagnostics")) showDoctor(state.parts);
  if (dirty.has("diagnostics")) showStop();
  if (dirty.has("charts")) {
    drawChart(byId("chart-difference"), scores, [6], marks);
    drawChart(byId("chart-return"), scores, [1], marks);
    drawChart(byId("chart-reward"), scores, [2], marks);
    drawChart(byId("chart-tick"), scores, [3, 4], marks);
    drawChart(byId("chart-present"), scores, [5], marks, [0, 100]);
  }
  dirty.clear();
}

function drawClusters() {
  const signal = new Map(state.wires.map((one) => [one.channel, state.signals.indexOf(one.signal)]));
  const places = state.ids.map((id, i) => (signal.size ? (signal.get(id) ?? -1) : i));
  clusters.draw(places, state.signals.length || state.ids.length, state.ids);
}

function showFigures({ episode, expected } = { episode: {} }, ids) {
  byId("episode").textContent = shown(episode.episode);
  byId("step").textContent = shown(episode.step);
  byId("return").textContent = shown(episode.return);
  byId("distance").textContent = episode.distance === undefined ? "–" : `${shown(episode.distance, 1)} m`;
  byId("present").textContent = expected === undefined ? "–" : `${ids.length} of ${expected}`;
}

function showStop() {
  const latched = state.parts.some((one) => one.name === "e-stop" && one.text.startsWith("e-stop"));
  byId("estop").classList.toggle("latched", latched);
  byId("reset-estop").disabled = !latched;
}

byId("announced").addEventListener("change", () => (state.announced = announced()));
byId("estop").addEventListener("click", () => act("estop"));
byId("reset-estop").addEventListener("click", () => act("resetestop"));
byId("restart").addEventListener("click", () => act("restart"));
byId("correct").addEventListener("click", () => act("correct", { on: true }));
byId("uncorrect").addEventListener("click", () => act("correct", { on: false }));
byId("undo").addEventListener("click", () => act("undo"));
byId("restore").addEventListener("click", () => act("restore"));
byId("shuffle").addEventListener("click", () => act("shuffle", { announced: announced() }));
const play = (on) => act("play", { on, speed: +byId("speed").value });
byId("play").addEventListener("click", () => play(!state.recording.playing));
byId("speed").addEventListener("change", () => play(state.recording.playing));
byId("place").addEventListener("input", seek);
byId("back").addEventListener("click", () => act("jump", { forward: false }));
byId("forward").addEventListener("click", () => act("jump", { forward: true }));
// Set a disturbance, or show its present value if that is refused.
const set = async (name, value) => {
  if (!(await act("set", { name, value })).ok) showSettings(state.wiring?.settings ?? {}, null);
};
for (const name of ["jitter", "missing"]) {
  byId(name).addEventListener("input", () => showSettings({ ...state.wiring?.settings, [name]: +byId(name).value }, null));
  byId(name).addEventListener("change", () => set(name, +byId(name).value));
}
const reshuffle = () =>
  set("shuffle", byId("reshuffle").checked ? Math.max(1, Math.round(+byId("every").value)) : 0);
byId("reshuffle").addEventListener("change", reshuffle);
byId("every").addEventListener("change", () => byId("reshuffle").checked && reshuffle());
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.repeat) return;
  if (!state.recording) act("estop"); // before anything that could fail
  panel.release();
  panel.untake();
});
