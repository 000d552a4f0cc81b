// The monitor's estimate and the diagnostics, as text.

const LEVELS = ["fine", "warning", "error", "stale"];

function cell(row, text, name = "td", kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  if (name === "th") made.scope = "row";
  row.append(made);
}

function table(rows) {
  const made = document.createElement("table");
  for (const cells of rows) {
    const row = made.insertRow();
    cells.forEach(([text, kind], i) => cell(row, text, i ? "td" : "th", kind));
  }
  return made;
}

// A policy that needs its channels in order has neither attention nor keys: say so, not an empty picture.
export function showAttention(parts) {
  const policy = parts.find((one) => one.name === "policy");
  const why = policy?.values.attention ?? "";
  for (const id of ["matrix", "clusters"]) document.getElementById(id).hidden = why !== "";
  for (const id of ["no-matrix", "no-clusters"]) document.getElementById(id).textContent = why;
}

// wires: the true wiring by the scrambler; an estimate is right if it names the signal there.
export function showMonitor(parts, wires, scrambled) {
  const monitor = parts.find((one) => one.name === "monitor");
  const text = document.getElementById("monitor-text"), moves = document.getElementById("monitor-moves");
  const figures = document.getElementById("monitor-figures");
  if (!monitor) {
    text.textContent = parts.length ? "The policy has no monitor." : "no monitor";
    text.className = "";
    figures.replaceChildren();
    moves.replaceChildren();
    return;
  }
  text.textContent = monitor.text;
  text.className = `level${monitor.level}`;
  figures.replaceChildren(
    ...[
      ["moves noticed", "rewires detected"],
      ["excess NLL, nats", "excess NLL [nats]"],
      ["readings late, ticks", "readings late [ticks]"],
      ["setting", "setting"],
    ].map(([label, key]) => {
      const one = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = label;
      dd.textContent = monitor.values[key] ?? "–";
      one.append(dt, dd);
      return one;
    }),
  );
  const truth = new Map(wires.map((one) => [one.channel, one.signal]));
  const rows = Object.entries(monitor.values).filter(([key]) => key.endsWith(" carries"));
  moves.replaceChildren(
    table(rows.map(([key, signal]) => {
      const slot = key.slice(0, -" carries".length), right = truth.get(slot) === signal;
      const judged = !scrambled || !truth.has(slot) ? ["", ""] : right ? ["right", "level0"] : ["wrong", "level2"];
      return [[slot, ""], [`carries ${signal}`, ""], judged];
    })),
  );
}

// The doctor's findings: shown only if there are some; the buttons can be pressed if they change something.
const COLUMNS = ["what", "is wrong", "how sure", "would become", "change", "corrected"];

export function showDoctor(parts) {
  const values = parts.find((one) => one.name === "doctor")?.values ?? {};
  const count = Number(values.findings ?? 0), numbers = Array.from({ length: count }, (_, i) => i + 1);
  const byId = (id) => document.getElementById(id);
  byId("doctor-card").hidden = count === 0;
  if (count === 0) return;
  byId("doctor-file").textContent = values.file ?? "";
  const made = document.createElement("table"), head = made.createTHead().insertRow();
  for (const name of COLUMNS) {
    cell(head, name, "th");
    head.lastChild.scope = "col";
  }
  const body = made.createTBody();
  for (const number of numbers) {
    const row = body.insertRow();
    COLUMNS.forEach((name, i) => cell(row, values[`${number} ${name}`] ?? "", i ? "td" : "th"));
  }
  byId("doctor-findings").replaceChildren(made);
  const states = numbers.map((number) => values[`${number} corrected`]);
  byId("correct").disabled = !states.includes("no");
  byId("uncorrect").disabled = !states.includes("yes");
}

export function showDiagnostics(parts) {
  const home = document.getElementById("diagnostics");
  const open = new Set([...home.querySelectorAll("details[open]")].map((one) => one.dataset.name));
  const kept = home.scrollTop, active = document.activeElement?.closest?.("details")?.dataset.name;
  home.replaceChildren(
    ...parts.map(({ name, level, text, values }) => {
      const details = document.createElement("details"), summary = document.createElement("summary");
      details.dataset.name = name;
      details.open = open.has(name);
      const state = document.createElement("b");
      state.className = `level${level}`;
      state.textContent = LEVELS[level] ?? "unknown";
      summary.append(`${name}: `, state, ` – ${text}`);
      details.append(summary, table(Object.entries(values).map(([key, value]) => [[key, ""], [value, ""]])));
      return details;
    }),
  );
  home.scrollTop = kept;
  if (active) [...home.children].find((one) => one.dataset.name === active)?.querySelector("summary").focus();
}
