// The Ant: a sphere and twelve capsules, by forward kinematics from its joints and its pose.

import { colour } from "./draw.js";

const RADIUS = 0.08, TORSO = 0.25, SPACING = 1.0, REACH = 6;
// Of each leg the direction of its parts, and the axis of its ankle.
const LEGS = [
  { way: [1, 1], ankle: [-1, 1, 0] },
  { way: [-1, 1], ankle: [1, 1, 0] },
  { way: [-1, -1], ankle: [-1, 1, 0] },
  { way: [1, -1], ankle: [1, 1, 0] },
];
const START_HEIGHT = 0.75;

function turned(axis, angle, v) {
  const n = Math.hypot(...axis), [x, y, z] = axis.map((one) => one / n);
  const c = Math.cos(angle), s = Math.sin(angle), dot = (x * v[0] + y * v[1] + z * v[2]) * (1 - c);
  return [
    v[0] * c + (y * v[2] - z * v[1]) * s + x * dot,
    v[1] * c + (z * v[0] - x * v[2]) * s + y * dot,
    v[2] * c + (x * v[1] - y * v[0]) * s + z * dot,
  ];
}

function byQuaternion([qx, qy, qz, qw], v) {
  const t = [2 * (qy * v[2] - qz * v[1]), 2 * (qz * v[0] - qx * v[2]), 2 * (qx * v[1] - qy * v[0])];
  return [
    v[0] + qw * t[0] + qy * t[2] - qz * t[1],
    v[1] + qw * t[1] + qz * t[0] - qx * t[2],
    v[2] + qw * t[2] + qx * t[1] - qy * t[0],
  ];
}

const plus = (a, b) => a.map((one, i) => one + b[i]);

// The capsules as pairs of points in the world, with the number of their leg.
export function capsules(joints, pose) {
  const at = pose.length ? [pose[0], pose[1], pose[2] + START_HEIGHT] : [0, 0, START_HEIGHT];
  const turn = pose.length ? pose.slice(3) : [0, 0, 0, 1];
  const place = (v) => plus(at, byQuaternion(turn, v));
  const found = [];
  LEGS.forEach(({ way, ankle }, leg) => {
    const hip = joints[`hip_${leg + 1}`] ?? 0, bend = joints[`ankle_${leg + 1}`] ?? 0;
    const upper = [0.2 * way[0], 0.2 * way[1], 0], lower = [0.4 * way[0], 0.4 * way[1], 0];
    const knee = plus(upper, turned([0, 0, 1], hip, upper));
    const foot = plus(knee, turned([0, 0, 1], hip, turned(ankle, bend, lower)));
    const points = [[0, 0, 0], upper, knee, foot].map(place);
    for (let i = 0; i < 3; i++) found.push({ leg, part: i, from: points[i], to: points[i + 1] });
  });
  return { at, found };
}

export function drawAnt(ctx, width, height, joints, pose) {
  const { at, found } = capsules(joints, pose);
  const yaw = -0.6, tilt = 0.5, zoom = height / 2.5;
  const cy = Math.cos(yaw), sy = Math.sin(yaw), ct = Math.cos(tilt), st = Math.sin(tilt);
  const project = ([x, y, z]) => {
    const dx = x - at[0], dy = y - at[1], dz = z - 0.45;
    const right = cy * dx - sy * dy, deep = sy * dx + cy * dy;
    return { x: width / 2 + zoom * right, y: height * 0.55 - zoom * (dz * ct + deep * st), deep: deep * ct - dz * st };
  };
  const line = (a, b) => {
    const [p, q] = [project(a), project(b)];
    ctx.moveTo(p.x, p.y);
    ctx.lineTo(q.x, q.y);
  };
  const [gx, gy] = [Math.round(at[0]), Math.round(at[1])];
  ctx.strokeStyle = colour("line");
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let i = -REACH; i <= REACH; i += SPACING) {
    line([gx + i, gy - REACH, 0], [gx + i, gy + REACH, 0]);
    line([gx - REACH, gy + i, 0], [gx + REACH, gy + i, 0]);
  }
  ctx.stroke();
  ctx.fillStyle = "rgb(0 0 0 / 0.16)";
  for (const one of found) shadow(ctx, project, one);
  const parts = found.map((one) => ({ ...one, a: project(one.from), b: project(one.to) }));
  const torso = { torso: true, a: project(at) };
  parts.push(torso);
  const depth = (one) => (one.b ? (one.a.deep + one.b.deep) / 2 : one.a.deep);
  parts.sort((one, other) => depth(other) - depth(one));
  for (const one of parts) one.torso ? ball(ctx, one.a, TORSO * zoom) : capsule(ctx, one, RADIUS * zoom);
  ctx.fillStyle = colour("soft");
  ctx.fillText("squares of 1 m", 10, height - 10);
}

function shadow(ctx, project, { from, to }) {
  const [p, q] = [project([from[0], from[1], 0]), project([to[0], to[1], 0])];
  ctx.beginPath();
  ctx.lineCap = "round";
  ctx.lineWidth = 14;
  ctx.strokeStyle = "rgb(0 0 0 / 0.10)";
  ctx.moveTo(p.x, p.y);
  ctx.lineTo(q.x, q.y);
  ctx.stroke();
}

function capsule(ctx, { a, b, leg, part }, radius) {
  const shade = 46 + 7 * part;
  for (const [width, light] of [[2 * radius, shade - 12], [1.3 * radius, shade], [0.5 * radius, shade + 10]]) {
    ctx.strokeStyle = `hsl(${[28, 28, 205, 205][leg]} 55% ${light}%)`;
    ctx.lineWidth = width;
    ctx.lineCap = "round";
    ctx.beginPath();
    ctx.moveTo(a.x, a.y);
    ctx.lineTo(b.x, b.y);
    ctx.stroke();
  }
}

function ball(ctx, { x, y }, radius) {
  const shine = ctx.createRadialGradient(x - radius / 3, y - radius / 3, radius / 8, x, y, radius);
  shine.addColorStop(0, "hsl(215 20% 78%)");
  shine.addColorStop(1, "hsl(215 22% 42%)");
  ctx.fillStyle = shine;
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fill();
}
