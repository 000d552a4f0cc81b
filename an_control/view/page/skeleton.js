// A robot as a skeleton: capsules and balls, by forward kinematics from its joints and its pose.

import { colour } from "./draw.js";

const SPACING = 1.0, REACH = 6;

// A quaternion [x, y, z, w] of a turn by an angle about an axis.
function turn(axis, angle) {
  const s = Math.sin(angle / 2) / Math.hypot(...axis);
  return [...axis.map((one) => s * one), Math.cos(angle / 2)];
}

function product([ax, ay, az, aw], [bx, by, bz, bw]) {
  return [
    aw * bx + ax * bw + ay * bz - az * by,
    aw * by - ax * bz + ay * bw + az * bx,
    aw * bz + ax * by - ay * bx + az * bw,
    aw * bw - ax * bx - ay * by - az * bz,
  ];
}

function rotated([qx, qy, qz, qw], v) {
  const t = [2 * (qy * v[2] - qz * v[1]), 2 * (qz * v[0] - qx * v[2]), 2 * (qx * v[1] - qy * v[0])];
  return [
    v[0] + qw * t[0] + qy * t[2] - qz * t[1],
    v[1] + qw * t[1] + qz * t[0] - qx * t[2],
    v[2] + qw * t[2] + qx * t[1] - qy * t[0],
  ];
}

const plus = (a, b) => a.map((one, i) => one + b[i]);

// Where the base is and how it is turned; the pose is x y z and a quaternion, or empty.
function basePlace({ height, moves }, pose) {
  if (!moves || !pose.length) return { at: [0, 0, height], q: [0, 0, 0, 1] };
  return { at: [pose[0], pose[1], pose[2] + height], q: pose.slice(3) };
}

// Of each link the points in the world where it begins and ends.
export function place(skeleton, joints, pose) {
  const base = basePlace(skeleton, pose), ends = [];
  return skeleton.links.map(({ parent, joint, kind, axis, to }) => {
    let { at: from, q } = ends[parent] ?? base;
    const value = joints[joint] ?? 0;
    if (joint && kind === "revolute") q = product(q, turn(axis, value));
    if (joint && kind === "prismatic") from = plus(from, rotated(q, axis.map((one) => (one * value) / Math.hypot(...axis))));
    const end = plus(from, rotated(q, to));
    ends.push({ at: end, q });
    return { from, to: end };
  });
}

export function drawSkeleton(ctx, width, height, skeleton, joints, pose) {
  const { at } = basePlace(skeleton, pose), { yaw, tilt, span } = skeleton, zoom = height / span;
  const cy = Math.cos(yaw), sy = Math.sin(yaw), ct = Math.cos(tilt), st = Math.sin(tilt);
  const up = at[2] - skeleton.height, most = span / 4; // a robot that climbs stays in view, one that bobs is seen to
  const middle = 0.6 * skeleton.height + up - Math.max(-most, Math.min(most, up));
  const project = ([x, y, z]) => {
    const dx = x - at[0], dy = y - at[1], dz = z - middle;
    const right = cy * dx - sy * dy, deep = sy * dx + cy * dy;
    return { x: width / 2 + zoom * right, y: height * 0.55 - zoom * (dz * ct + deep * st), deep: deep * ct - dz * st };
  };
  grid(ctx, project, Math.round(at[0]), Math.round(at[1]));
  const parts = place(skeleton, joints, pose).map(({ from, to }, i) => {
    const { width: thick, colour: hsl, to: along } = skeleton.links[i];
    return { from, to, a: project(from), b: project(to), thick: thick * zoom, hsl, round: !along.some(Boolean) };
  }).filter((one) => one.thick > 0);
  for (const one of parts) if (!one.round) shadow(ctx, project, one);
  parts.sort((one, other) => other.a.deep + other.b.deep - one.a.deep - one.b.deep);
  for (const one of parts) one.round ? ball(ctx, one) : capsule(ctx, one);
  ctx.fillStyle = colour("soft");
  ctx.fillText("squares of 1 m", 10, height - 10);
}

function line(ctx, a, b) {
  ctx.moveTo(a.x, a.y);
  ctx.lineTo(b.x, b.y);
}

function grid(ctx, project, x, y) {
  ctx.strokeStyle = colour("line");
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let i = -REACH; i <= REACH; i += SPACING) {
    line(ctx, project([x + i, y - REACH, 0]), project([x + i, y + REACH, 0]));
    line(ctx, project([x - REACH, y + i, 0]), project([x + REACH, y + i, 0]));
  }
  ctx.stroke();
}

function shadow(ctx, project, { from, to, thick }) {
  ctx.beginPath();
  ctx.lineCap = "round";
  ctx.lineWidth = thick / 2;
  ctx.strokeStyle = "rgb(0 0 0 / 0.10)";
  line(ctx, project([from[0], from[1], 0]), project([to[0], to[1], 0]));
  ctx.stroke();
}

const hsl = ([hue, saturation, lightness], brighter) => `hsl(${hue} ${saturation}% ${lightness + brighter}%)`;

function capsule(ctx, { a, b, thick, hsl: base }) {
  for (const [share, brighter] of [[1, -12], [0.65, 0], [0.25, 10]]) {
    ctx.strokeStyle = hsl(base, brighter);
    ctx.lineWidth = share * thick;
    ctx.lineCap = "round";
    ctx.beginPath();
    line(ctx, a, b);
    ctx.stroke();
  }
}

function ball(ctx, { a: { x, y }, thick, hsl: base }) {
  const radius = thick / 2;
  const shine = ctx.createRadialGradient(x - radius / 3, y - radius / 3, radius / 8, x, y, radius);
  shine.addColorStop(0, hsl(base, 18));
  shine.addColorStop(1, hsl(base, -18));
  ctx.fillStyle = shine;
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}
