// Small pictures of numbers: lines over time, the attention matrix, the keys.

import { colour, context, hue, shown } from "./draw.js";

const WIDTH = 300, HEIGHT = 125, EDGE = { left: 40, right: 6, top: 8, bottom: 16 }, SPAN_S = 120;

// Draws the last SPAN_S of some columns of the scores, with lines at the times of rewiring.
// `range` is the range of the axis if it is fixed.
export function drawChart(canvas, rows, columns, marks, range) {
  const scale = range ? 100 : 1;
  const ctx = context(canvas, WIDTH, HEIGHT), end = rows.length ? rows[rows.length - 1][0] : 0;
  const start = end - SPAN_S, seen = rows.filter((row) => row[0] >= start);
  const values = seen.flatMap((row) => columns.map((c) => row[c])).filter((one) => one !== null && isFinite(one));
  let [low, high] = values.length ? [Math.min(...values) * scale, Math.max(...values) * scale] : [0, 1];
  if (range) [low, high] = range;
  if (low > 0 && low < 0.6 * high) low = 0;
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  const [w, h] = [WIDTH - EDGE.left - EDGE.right, HEIGHT - EDGE.top - EDGE.bottom];
  const x = (s) => EDGE.left + (w * (s - start)) / SPAN_S, y = (v) => EDGE.top + h * (1 - (v - low) / (high - low));
  axes(ctx, low, high, y);
  ctx.strokeStyle = colour("second");
  ctx.lineWidth = 1;
  ctx.globalAlpha = 0.7;
  ctx.beginPath();
  for (const [s] of marks) {
    if (s < start) continue;
    ctx.moveTo(x(s), EDGE.top);
    ctx.lineTo(x(s), EDGE.top + h);
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
  columns.forEach((column, i) => {
    ctx.strokeStyle = colour(i ? "second" : "accent");
    ctx.lineWidth = 1.8;
    ctx.beginPath();
    let pen = false;
    for (const row of seen) {
      const value = row[column];
      if (value === null) pen = false;
      else if (pen) ctx.lineTo(x(row[0]), y(value * scale));
      else {
        ctx.moveTo(x(row[0]), y(value * scale));
        pen = true;
      }
    }
    ctx.stroke();
  });
}

function axes(ctx, low, high, y) {
  ctx.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  ctx.strokeStyle = colour("line");
  ctx.fillStyle = colour("soft");
  ctx.lineWidth = 1;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.beginPath();
  for (const value of [low, (low + high) / 2, high]) {
    ctx.moveTo(EDGE.left, y(value));
    ctx.lineTo(WIDTH - EDGE.right, y(value));
    const wide = Math.abs(value) >= 10000; // five digits and more would not fit beside the axis
    const text = wide ? `${shown(value / 1000)}k` : shown(value, high - low < 5 ? 2 : 0);
    ctx.fillText(text, EDGE.left - 5, y(value));
  }
  ctx.stroke();
  ctx.textBaseline = "alphabetic";
  ctx.textAlign = "left";
  ctx.fillText(`${SPAN_S} s ago`, EDGE.left, HEIGHT - 4);
  ctx.textAlign = "right";
  ctx.fillText("now", WIDTH - EDGE.right, HEIGHT - 4);
  ctx.textAlign = "left";
}

// Draws a matrix of hundredths, with negative and positive values in two colours.
export function drawMatrix(canvas, { rows, columns, values } = { rows: 1, columns: 1, values: [] }) {
  const width = 480, height = 300, ctx = context(canvas, width, height);
  const style = getComputedStyle(document.documentElement);
  const [minus, plus] = ["--minus", "--plus"].map((name) => style.getPropertyValue(name).trim());
  const [w, h] = [width / columns, height / rows];
  ctx.fillStyle = colour("ground");
  ctx.fillRect(0, 0, width, height);
  values.forEach((value, i) => {
    if (!value) return;
    ctx.fillStyle = `rgb(${value < 0 ? minus : plus} / ${Math.abs(value)}%)`;
    ctx.fillRect((i % columns) * w, Math.floor(i / columns) * h, w + 0.3, h + 0.3);
  });
}

// Each channel's key as a point with its trail, in the colour of the signal behind it.
export class Clusters {
  constructor(canvas) {
    this.canvas = canvas;
    this.looks = [];
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      this.pointer = [(event.clientX - box.left) * (480 / box.width), (event.clientY - box.top) * (300 / box.height)];
    });
    canvas.addEventListener("pointerleave", () => (this.pointer = undefined));
  }

  clear() {
    this.looks = [];
  }

  see(points) {
    if (this.looks.length && this.looks[0].length !== points.length) this.looks = [];
    this.looks.push(points);
    if (this.looks.length > 10) this.looks.shift();
  }

  // signals: for each channel the index of its signal among `count`, or -1.
  draw(signals, count, names) {
    const width = 480, height = 300, ctx = context(this.canvas, width, height);
    const x = (v) => width / 2 + 0.46 * width * v, y = (v) => height / 2 - 0.46 * height * v;
    ctx.strokeStyle = colour("line");
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(0, y(0)); ctx.lineTo(width, y(0)); ctx.moveTo(x(0), 0); ctx.lineTo(x(0), height);
    ctx.stroke();
    if (!this.looks.length) {
      ctx.fillStyle = colour("soft");
      ctx.fillText("no keys: the policy has none, or nothing runs", 10, 20);
    }
    const now = this.looks[this.looks.length - 1] ?? [], many = now.length > 128;
    for (let i = 0; 2 * i < now.length; i++) {
      ctx.strokeStyle = ctx.fillStyle = signals[i] < 0 ? colour("soft") : hue(signals[i], count);
      if (!many) {
        ctx.globalAlpha = 0.5;
        ctx.beginPath();
        this.looks.forEach((look, k) => ctx[k ? "lineTo" : "moveTo"](x(look[2 * i]), y(look[2 * i + 1])));
        ctx.stroke();
        ctx.globalAlpha = 1;
      }
      ctx.beginPath();
      ctx.arc(x(now[2 * i]), y(now[2 * i + 1]), many ? 2.5 : 4, 0, 2 * Math.PI);
      ctx.fill();
    }
    for (const i of this.named(now, x, y)) {
      ctx.fillStyle = colour("ink");
      ctx.fillText(names[i] ?? "", Math.min(x(now[2 * i]) + 7, width - 110), y(now[2 * i + 1]) + 4);
    }
  }

  // Returns the points whose names are written: all if they are few, else the one under the pointer.
  named(now, x, y) {
    const count = now.length / 2, all = [...Array(count).keys()];
    if (count <= 12) return all;
    if (!this.pointer) return [];
    const far = (i) => Math.hypot(x(now[2 * i]) - this.pointer[0], y(now[2 * i + 1]) - this.pointer[1]);
    const nearest = all.reduce((best, i) => (far(i) < far(best) ? i : best), 0);
    return far(nearest) < 30 ? [nearest] : [];
  }
}
