// Shared by all drawings: a canvas in the screen's pixels, the page's colours, a colour for each signal.

let names = {};

export function colour(name) {
  return (names[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (names = {}));

// The context of a canvas, cleared, with lengths in the units of its attributes.
export function context(canvas, width, height) {
  const scale = Math.min(2, window.devicePixelRatio || 1) * (canvas.clientWidth / width || 1);
  const pixels = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, height);
  ctx.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  return ctx;
}

// A colour for the signal number `index` of `count`, readable on light and dark ground.
export function hue(index, count) {
  return `hsl(${Math.round((330 * index) / Math.max(1, count))} 65% 48%)`;
}

export function shown(value, digits = 0) {
  return value === undefined || value === null || !isFinite(value) ? "–" : value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
}
