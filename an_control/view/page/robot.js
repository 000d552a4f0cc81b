// Draws the robot: as a skeleton, a camera's image, joints as dials, or readings as bars.

import { colour, context, shown } from "./draw.js";
import { drawSkeleton } from "./skeleton.js";

const WIDTH = 640, HEIGHT = 420;

export class RobotView {
  // move(from, to): requests that a patch of a camera's image takes another one's place.
  constructor(canvas, move) {
    this.canvas = canvas;
    canvas.addEventListener("pointerdown", (event) => (this.held = this.patch(event)));
    canvas.addEventListener("pointerup", (event) => {
      const to = this.patch(event);
      if (this.held && to && to !== this.held) move(this.held, to);
      this.held = undefined;
    });
    this.kind = "bars";
    this.joints = [];
    this.ids = [];
  }

  setDrawing({ kind, joints, skeleton }) {
    this.kind = kind;
    this.names = joints;
    this.skeleton = skeleton;
    this.canvas.setAttribute("aria-label", `The robot as it stands now, drawn as ${kind}`);
  }

  clear() {
    this.image = undefined;
  }

  setPicture(data) {
    const [width, height] = new Uint16Array(data, 0, 2);
    const rgb = new Uint8Array(data, 4), pixels = new Uint8ClampedArray(width * height * 4);
    for (let i = 0, j = 0; i < rgb.length; i += 3, j += 4) {
      pixels[j] = rgb[i]; pixels[j + 1] = rgb[i + 1]; pixels[j + 2] = rgb[i + 2]; pixels[j + 3] = 255;
    }
    this.image ??= document.createElement("canvas");
    [this.image.width, this.image.height] = [width, height];
    this.image.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
  }

  draw(tick, ids) {
    this.ids = ids;
    const ctx = context(this.canvas, WIDTH, HEIGHT);
    const joints = {};
    (this.names ?? []).forEach((name, i) => (joints[name] = tick?.joints[i] ?? 0));
    if (this.kind === "camera") this.camera(ctx);
    else if (!tick) return;
    else if (this.kind === "skeleton") drawSkeleton(ctx, WIDTH, HEIGHT, this.skeleton, joints, tick.pose);
    else if (this.kind === "dials") dials(ctx, joints);
    else bars(ctx, ids, tick.values);
  }

  camera(ctx) {
    if (!this.image) return;
    const [x, y, w, h] = this.frame();
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.image, x, y, w, h);
  }

  frame() {
    const scale = Math.min(WIDTH / this.image.width, HEIGHT / this.image.height);
    const [w, h] = [this.image.width * scale, this.image.height * scale];
    return [(WIDTH - w) / 2, (HEIGHT - h) / 2, w, h];
  }

  // The id of the patch under the pointer, where ids are NAME.ROW.COLUMN.
  patch(event) {
    const parts = this.ids.map((id) => id.match(/^(.*)\.(\d+)\.(\d+)$/));
    if (this.kind !== "camera" || !this.image || !parts.length || parts.includes(null)) return undefined;
    const [rows, columns] = [2, 3].map((i) => Math.max(...parts.map((one) => +one[i])) + 1);
    const box = this.canvas.getBoundingClientRect(), [x, y, w, h] = this.frame();
    const column = Math.floor((((event.clientX - box.left) * (WIDTH / box.width) - x) / w) * columns);
    const row = Math.floor((((event.clientY - box.top) * (HEIGHT / box.height) - y) / h) * rows);
    const inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? `${parts[0][1]}.${row}.${column}` : undefined;
  }
}

function dials(ctx, joints) {
  const names = Object.keys(joints).slice(0, 40), count = names.length;
  const columns = Math.ceil(Math.sqrt((count * WIDTH) / HEIGHT)), rows = Math.ceil(count / columns);
  const [w, h] = [WIDTH / columns, HEIGHT / rows], radius = Math.min(w / 2 - 10, h / 2 - 24, 70);
  ctx.textAlign = "center";
  names.forEach((name, i) => {
    const x = ((i % columns) + 0.5) * w, y = (Math.floor(i / columns) + 0.5) * h - 10, value = joints[name];
    ctx.strokeStyle = colour("soft");
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.arc(x, y, radius, 0, 2 * Math.PI);
    ctx.stroke();
    ctx.strokeStyle = colour("accent");
    ctx.lineWidth = 4;
    ctx.lineCap = "round";
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(x + (radius - 5) * Math.sin(value), y - (radius - 5) * Math.cos(value));
    ctx.stroke();
    ctx.fillStyle = colour("ink");
    ctx.fillText(`${name} ${shown(value, 2)}`, x, y + radius + 16, w - 4);
  });
  ctx.textAlign = "start";
}

function bars(ctx, ids, values) {
  const count = Math.min(ids.length, 64), columns = count > 20 ? 2 : 1, rows = Math.ceil(count / columns);
  const width = WIDTH / columns, height = Math.min(24, (HEIGHT - 20) / Math.max(1, rows)), most = Math.max(1, ...values.map(Math.abs));
  ids.slice(0, count).forEach((id, i) => {
    const x = Math.floor(i / rows) * width, y = 10 + (i % rows) * height;
    ctx.fillStyle = colour("ink");
    ctx.fillText(`${id} ${shown(values[i], 2)}`, x + 10, y + height * 0.7, width / 2 - 20);
    ctx.fillStyle = colour("accent");
    const length = ((width / 4 - 10) * values[i]) / most, middle = x + 0.75 * width;
    ctx.fillRect(Math.min(middle, middle + length), y + 2, Math.max(1, Math.abs(length)), height - 5);
  });
}
