// The patch bay: signals on the left, plugs on the right, a cable each; by mouse, touch or keyboard.

import { hue } from "./draw.js";

const SVG = "http://www.w3.org/2000/svg", ROW = 23, TOP = 14, WIDTH = 460, LEFT = 165, RIGHT = 290;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

export class PatchBay {
  // act(command, values): asks the robot; tool(): the chosen tool; announced(): whether changes are announced.
  constructor(svg, { act, tool, announced }) {
    Object.assign(this, { svg, act, tool, announced, wires: [], signals: [], plugs: new Map(), cableOf: new Map() });
    svg.addEventListener("pointerdown", (event) => this.grab(event));
    svg.addEventListener("pointermove", (event) => this.drag(event));
    svg.addEventListener("pointerup", (event) => this.drop(event));
    svg.addEventListener("pointercancel", () => this.release());
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  set({ signals, wires }) {
    const same = JSON.stringify([signals, wires.map((one) => one.plug)]);
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
    this.cables = element("g", {}, this.svg);
    this.plugs.clear();
    this.ends = new Map();
    this.signals.forEach((signal, i) => {
      const end = element("g", { class: "signal", "data-signal": signal }, this.svg);
      element("rect", { class: "handle", x: 0, y: this.y(i) - ROW / 2, width: LEFT + 8, height: ROW }, end);
      element("text", { x: LEFT - 12, y: this.y(i), "text-anchor": "end" }, end).textContent = signal;
      element("circle", { class: "dot", cx: LEFT, cy: this.y(i), r: 5 }, end).style.fill = this.colour(signal);
      this.ends.set(signal, end);
    });
    this.wires.forEach(({ plug }, i) => {
      const end = element("g", { class: "plug", "data-plug": plug, tabindex: i ? -1 : 0, role: "button" }, this.svg);
      element("rect", { class: "handle", x: RIGHT - 8, y: this.y(i) - ROW / 2, width: WIDTH - RIGHT + 8, height: ROW }, end);
      element("circle", { class: "dot", cx: RIGHT, cy: this.y(i), r: 5 }, end);
      element("text", { x: RIGHT + 12, y: this.y(i) }, end);
      this.plugs.set(plug, { end, index: i });
    });
    this.cableOf = new Map();
  }

  connect() {
    for (const { plug, signal, channel } of this.wires) {
      const { end, index } = this.plugs.get(plug);
      end.querySelector("text").textContent = channel;
      const what = signal === "noise" ? "noise" : signal === "" ? "nothing" : signal;
      end.setAttribute("aria-label", `Plug ${plug}, read as ${channel}: carries ${what}`);
      this.cable(plug, signal, index);
    }
  }

  cable(plug, signal, index) {
    const from = this.signals.indexOf(signal), y = this.y(index);
    let path = this.cableOf.get(plug);
    if (!path) this.cableOf.set(plug, (path = element("path", { "data-plug": plug }, this.cables)));
    path.setAttribute("class", signal === "noise" ? "cable noise" : "cable");
    if (signal === "noise") path.setAttribute("d", `M${RIGHT - 40} ${y}H${RIGHT}`);
    else path.setAttribute("d", from < 0 ? "" : curve(LEFT, this.y(from), RIGHT, y));
    path.style.stroke = signal === "noise" ? "" : this.colour(signal);
  }

  // Attention from 0 to 1 by channel; a channel that is not there is absent.
  attend(weights) {
    for (const { plug, channel } of this.wires) {
      const weight = weights.get(channel), path = this.cableOf.get(plug);
      path.style.strokeOpacity = weight === undefined ? 0.25 : (0.25 + 0.75 * weight).toFixed(2);
      path.style.strokeWidth = weight === undefined ? 1.2 : (1.2 + 2.2 * weight).toFixed(1);
      this.plugs.get(plug).end.classList.toggle("absent", weight === undefined);
    }
  }

  point(event) {
    const box = this.svg.getBoundingClientRect(), scale = WIDTH / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  }

  grab(event) {
    if (event.button) return;
    const signal = event.target.closest(".signal")?.dataset.signal;
    const plug = event.target.closest(".plug")?.dataset.plug;
    const carried = plug && this.wires.find((one) => one.plug === plug)?.signal;
    if (plug) this.focus(plug);
    const tool = this.tool();
    if (plug && (tool === "cut" || tool === "noise")) {
      this.act(tool, { plug });
      return;
    }
    const held = signal ?? carried;
    if (!held || held === "noise") return;
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    this.held = { signal: held, plug, path: element("path", { class: "drag" }, this.svg) };
    if (plug) this.cableOf.get(plug).style.visibility = "hidden";
    this.drag(event);
  }

  drag(event) {
    if (!this.held) return;
    const { x, y } = this.point(event), from = this.y(this.signals.indexOf(this.held.signal));
    this.held.path.setAttribute("d", curve(LEFT, from, x, y));
    const over = this.over(x, y);
    for (const [plug, { end }] of this.plugs) end.classList.toggle("over", plug === over);
  }

  over(x, y) {
    const index = Math.round((y - TOP) / ROW);
    return x > RIGHT - 30 && x <= WIDTH ? this.wires[index]?.plug : undefined;
  }

  drop(event) {
    if (!this.held) return;
    const { signal, plug } = this.held, { x, y } = this.point(event), over = this.over(x, y);
    this.release();
    if (over === plug && over) return;
    if (over) this.plugIn(signal, over);
    else if (plug && x < RIGHT - 30 && x > LEFT + 20) this.act("cut", { plug });
  }

  release() {
    const held = this.held, cable = this.cableOf.get(held?.plug);
    this.held = undefined;
    held?.path.remove();
    if (cable) cable.style.visibility = "";
    for (const { end } of this.plugs.values()) end.classList.remove("over");
  }

  plugIn(signal, plug, tool = this.tool()) {
    if (tool === "copy") this.act("copy", { signal, plug });
    else this.act("connect", { signal, plug, announced: this.announced() });
  }

  focus(plug) {
    for (const [name, { end }] of this.plugs) end.setAttribute("tabindex", name === plug ? 0 : -1);
    this.plugs.get(plug).end.focus();
  }

  key(event) {
    const plug = event.target.closest?.(".plug")?.dataset.plug;
    if (!plug || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.plugs.get(plug).index, step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const signal = this.wires[index].signal;
    if (step) {
      const next = this.wires[Math.max(0, Math.min(this.wires.length - 1, index + step))].plug;
      this.focus(next);
    } else if (event.key === "Enter" || event.key === " ") this.enter(plug, signal);
    else if (event.key === "Delete" || event.key === "Backspace") this.act("cut", { plug });
    else if (event.key === "n") this.act("noise", { plug });
    else if (event.key === "c") this.take(plug, signal, "copy");
    else return;
    event.preventDefault();
  }

  // The first Enter takes a cable, the second plugs it in here.
  enter(plug, signal) {
    if (!this.taken) this.take(plug, signal, this.tool());
    else {
      const { from, signal: held, tool } = this.taken;
      this.untake();
      if (from !== plug) this.plugIn(held, plug, tool);
    }
  }

  take(plug, signal, tool) {
    this.untake();
    if (!signal || signal === "noise") return;
    this.taken = { from: plug, signal, tool };
    this.plugs.get(plug).end.classList.add("taken");
  }

  untake() {
    if (this.taken) this.plugs.get(this.taken.from)?.end.classList.remove("taken");
    this.taken = undefined;
  }
}

function curve(x1, y1, x2, y2) {
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
