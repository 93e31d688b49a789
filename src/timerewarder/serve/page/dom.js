/* Elements, numbers, scales and pointers: what every part of the page draws with. */

const SVG = "http://www.w3.org/2000/svg";
const MINUS = "\u2212";

export const byId = (id) => document.getElementById(id);

/** An HTML element; text goes in as text, never as markup. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const finite = (value) => typeof value === "number" && Number.isFinite(value);
export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** [smallest, largest] of the finite values; [Infinity, -Infinity] without any. */
export function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!finite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** A number for readouts, always as long as its neighbours: sign, 3 decimals, fewer when large; a dash for none. */
export function signed(value, digits = 3) {
  if (!finite(value)) return "\u2013";
  const size = Math.abs(value);
  const text = size.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? Math.min(2, digits) : digits);
  return (value < 0 && Number(text) !== 0 ? MINUS : "+") + text;
}

/** Axis labels: 16k instead of 16000. */
export function brief(value) {
  const size = Math.abs(value);
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`.replace("-", MINUS);
  if (size > 0 && size < 1e-3) return value.toExponential(0).replaceAll("-", MINUS);
  return String(Number(value.toPrecision(6))).replace("-", MINUS);
}

export const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

/** A linear map from a domain to a range, with its inverse. */
export function scale([d0, d1], [r0, r1]) {
  const span = d1 - d0 || 1;
  const map = (value) => r0 + ((value - d0) / span) * (r1 - r0);
  map.invert = (pixel) => d0 + ((pixel - r0) / (r1 - r0 || 1)) * span;
  map.domain = [d0, d1];
  map.range = [r0, r1];
  return map;
}

/** About `wanted` round numbers inside [low, high]. */
export function ticks([low, high], wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * (1 - 1e-9));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** The `d` of a line through the finite points; a gap in the values is a gap in the line. */
export function path(points) {
  let pen = "M";
  let d = "";
  for (const [x, y] of points) {
    if (!finite(x) || !finite(y)) { pen = "M"; continue; }
    d += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return d;
}

/** Call `pick(x, y, event)` with the place inside `node`, in pixels, of every press and drag. */
export function onDrag(node, pick, { start = () => {}, end = () => {} } = {}) {
  let held = false;
  const place = (event) => {
    const box = node.getBoundingClientRect();
    pick(event.clientX - box.left, event.clientY - box.top, event);
  };
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    held = true;
    node.setPointerCapture(event.pointerId);
    start();
    place(event);
  });
  node.addEventListener("pointermove", (event) => { if (held) place(event); });
  for (const name of ["pointerup", "pointercancel"]) {
    node.addEventListener(name, () => { if (held) { held = false; end(); } });
  }
}

/** A colour of the style sheet, as [r, g, b]. */
export function colourOf(className) {
  const probe = html("i", { class: className, hidden: true });
  document.body.append(probe);
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return numbers;
}

/** `model` number i always has the same colour; the ninth model takes the first colour again, dashed. */
export const COLOURS = 8;
export const seriesClass = (index) => `series-${index % COLOURS}${index >= COLOURS ? " dashed" : ""}`;
