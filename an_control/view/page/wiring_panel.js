// The wiring panel: signals on the left, input slots on the right, and a connection to each slot.
// It works by mouse, touch and keyboard.

import { hue } from "./draw.js";

const SVG = "http://www.w3.org/2000/svg", ROW = 23, TOP = 14, WIDTH = 460, LEFT = 165, RIGHT = 290;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

export class WiringPanel {
  // act(command, values): sends a command; tool(): the chosen tool; announced(): whether changes are announced.
  constructor(svg, { act, tool, announced }) {
    Object.assign(this, { svg, act, tool, announced, wires: [], signals: [], slots: new Map(), connectionOf: new Map() });
    svg.addEventListener("pointerdown", (event) => this.grab(event));
    svg.addEventListener("pointermove", (event) => this.drag(event));
    svg.addEventListener("pointerup", (event) => this.drop(event));
    svg.addEventListener("pointercancel", () => this.release());
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  set({ signals, wires }) {
    const same = JSON.stringify([signals, wires.map((one) => one.slot)]);
    this.signals = signals;
    this.wires = wires;
    if (same !== this.same) this.build();
    this.same = same;
    this.connect();
  }

  colour(signal) {
    const index = this.signals.indexOf(signal);
    return index < 0 ? "var(--second)" : hue(index, this.signals.length);
  }

  y(index) {
    return TOP + ROW * index;
  }

  build() {
    const rows = Math.max(this.signals.length, this.wires.length, 1), height = TOP + ROW * rows;
    this.release();
    this.untake();
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    this.connections = element("g", {}, this.svg);
    this.slots.clear();
    this.ends = new Map();
    this.signals.forEach((signal, i) => {
      const end = element("g", { class: "signal", "data-signal": signal }, this.svg);
      element("rect", { class: "handle", x: 0, y: this.y(i) - ROW / 2, width: LEFT + 8, height: ROW }, end);
      element("text", { x: LEFT - 12, y: this.y(i), "text-anchor": "end" }, end).textContent = signal;
      element("circle", { class: "dot", cx: LEFT, cy: this.y(i), r: 5 }, end).style.fill = this.colour(signal);
      this.ends.set(signal, end);
    });
    this.wires.forEach(({ slot }, i) => {
      const end = element("g", { class: "slot", "data-slot": slot, tabindex: i ? -1 : 0, role: "button" }, this.svg);
      element("rect", { class: "handle", x: RIGHT - 8, y: this.y(i) - ROW / 2, width: WIDTH - RIGHT + 8, height: ROW }, end);
      element("circle", { class: "dot", cx: RIGHT, cy: this.y(i), r: 5 }, end);
      element("text", { x: RIGHT + 12, y: this.y(i) }, end);
      this.slots.set(slot, { end, index: i });
    });
    this.connectionOf = new Map();
  }

  connect() {
    for (const { slot, signal, channel } of this.wires) {
      const { end, index } = this.slots.get(slot);
      end.querySelector("text").textContent = channel;
      const carried = signal === "" ? "nothing" : signal;
      end.setAttribute("aria-label", `Input slot ${slot}, read as ${channel}: carries ${carried}`);
      this.drawConnection(slot, signal, index);
    }
  }

  drawConnection(slot, signal, index) {
    const from = this.signals.indexOf(signal), y = this.y(index);
    let path = this.connectionOf.get(slot);
    if (!path) this.connectionOf.set(slot, (path = element("path", { "data-slot": slot }, this.connections)));
    path.setAttribute("class", signal === "noise" ? "connection noise" : "connection");
    if (signal === "noise") path.setAttribute("d", `M${RIGHT - 40} ${y}H${RIGHT}`);
    else path.setAttribute("d", from < 0 ? "" : curve(LEFT, this.y(from), RIGHT, y));
    path.style.stroke = signal === "noise" ? "" : this.colour(signal);
  }

  // Draws each channel's attention, from 0 to 1; a channel without a weight is missing.
  attend(weights) {
    for (const { slot, channel } of this.wires) {
      const weight = weights.get(channel), path = this.connectionOf.get(slot);
      path.style.strokeOpacity = weight === undefined ? 0.25 : (0.25 + 0.75 * weight).toFixed(2);
      path.style.strokeWidth = weight === undefined ? 1.2 : (1.2 + 2.2 * weight).toFixed(1);
      this.slots.get(slot).end.classList.toggle("absent", weight === undefined);
    }
  }

  point(event) {
    const box = this.svg.getBoundingClientRect(), scale = WIDTH / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  }

  grab(event) {
    if (event.button) return;
    const signal = event.target.closest(".signal")?.dataset.signal;
    const slot = event.target.closest(".slot")?.dataset.slot;
    const carried = slot && this.wires.find((one) => one.slot === slot)?.signal;
    if (slot) this.focus(slot);
    const tool = this.tool();
    if (slot && (tool === "cut" || tool === "noise")) {
      this.act(tool, { slot });
      return;
    }
    const held = signal ?? carried;
    if (!held || held === "noise") return;
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    this.held = { signal: held, slot, path: element("path", { class: "drag" }, this.svg) };
    if (slot) this.connectionOf.get(slot).style.visibility = "hidden";
    this.drag(event);
  }

  drag(event) {
    if (!this.held) return;
    const { x, y } = this.point(event), from = this.y(this.signals.indexOf(this.held.signal));
    this.held.path.setAttribute("d", curve(LEFT, from, x, y));
    const over = this.over(x, y);
    for (const [slot, { end }] of this.slots) end.classList.toggle("over", slot === over);
  }

  over(x, y) {
    const index = Math.round((y - TOP) / ROW);
    return x > RIGHT - 30 && x <= WIDTH ? this.wires[index]?.slot : undefined;
  }

  drop(event) {
    if (!this.held) return;
    const { signal, slot } = this.held, { x, y } = this.point(event), over = this.over(x, y);
    this.release();
    if (over === slot && over) return;
    if (over) this.connectTo(signal, over);
    else if (slot && x < RIGHT - 30 && x > LEFT + 20) this.act("cut", { slot });
  }

  release() {
    const held = this.held, connection = this.connectionOf.get(held?.slot);
    this.held = undefined;
    held?.path.remove();
    if (connection) connection.style.visibility = "";
    for (const { end } of this.slots.values()) end.classList.remove("over");
  }

  connectTo(signal, slot, tool = this.tool()) {
    if (tool === "copy") this.act("copy", { signal, slot });
    else this.act("connect", { signal, slot, announced: this.announced() });
  }

  focus(slot) {
    for (const [name, { end }] of this.slots) end.setAttribute("tabindex", name === slot ? 0 : -1);
    this.slots.get(slot).end.focus();
  }

  key(event) {
    const slot = event.target.closest?.(".slot")?.dataset.slot;
    if (!slot || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.slots.get(slot).index, step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const signal = this.wires[index].signal;
    if (step) {
      const next = this.wires[Math.max(0, Math.min(this.wires.length - 1, index + step))].slot;
      this.focus(next);
    } else if (event.key === "Enter" || event.key === " ") this.enter(slot, signal);
    else if (event.key === "Delete" || event.key === "Backspace") this.act("cut", { slot });
    else if (event.key === "n") this.act("noise", { slot });
    else if (event.key === "c") this.take(slot, signal, "copy");
    else return;
    event.preventDefault();
  }

  // The first Enter takes a slot's connection, the second one connects it to this slot.
  enter(slot, signal) {
    if (!this.taken) this.take(slot, signal, this.tool());
    else {
      const { from, signal: held, tool } = this.taken;
      this.untake();
      if (from !== slot) this.connectTo(held, slot, tool);
    }
  }

  take(slot, signal, tool) {
    this.untake();
    if (!signal || signal === "noise") return;
    this.taken = { from: slot, signal, tool };
    this.slots.get(slot).end.classList.add("taken");
  }

  untake() {
    if (this.taken) this.slots.get(this.taken.from)?.end.classList.remove("taken");
    this.taken = undefined;
  }
}

function curve(x1, y1, x2, y2) {
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
