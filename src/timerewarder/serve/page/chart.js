/* The curves of one video, on one axis of frames: the progress of every model that gives one, their step rewards, and a
   row of its own for every model whose rewards are no steps of a value, because its scale is another. */

import { brief, clamp, extent, finite, path, scale, seriesClass, svg, ticks } from "./dom.js";

const LEFT = 44; // pixels, for the numbers of the axis
const RIGHT = 12;
const TITLE = 22;
const ROW = { progress: 214, rewards: 76, own: 76 };
const AXIS = 24;

export class Chart {
  #frame = 0;
  #pointed = null;
  #visible = [];

  /** `series`: [{ name, index, is_value, progress, steps }], arrays of one entry a frame. */
  constructor(host, series, frames) {
    Object.assign(this, { host, series, last: frames - 1, width: 0 });
    this.root = svg("svg", { class: "chart", "aria-hidden": "true" });
    host.append(this.root);
    this.show(series.map(({ name }) => name));
    this.resizing = new ResizeObserver(() => { if (host.clientWidth !== this.width) this.#draw(); });
    this.resizing.observe(host);
  }

  close() { this.resizing.disconnect(); }

  /** Draw these models and no others. */
  show(names) {
    this.#visible = this.series.filter(({ name }) => names.includes(name));
    this.#draw();
  }

  /** The frame at a place in pixels. */
  frameAt(pixel) { return clamp(Math.round(this.x.invert(pixel)), 0, this.last); }

  /** Where to put a note about a frame: left of it or right, in the half of the first row that its curves leave free. */
  free(frame, width, height) {
    const values = this.#visible.filter(({ is_value, progress }) => is_value && finite(progress[frame]));
    const middle = values.reduce((sum, { progress }) => sum + this.y(progress[frame]), 0) / values.length;
    const right = this.x(frame) + 14;
    const left = right + width > this.width ? Math.max(0, right - 28 - width) : right;
    return { left, top: middle < TITLE + ROW.progress / 2 ? TITLE + ROW.progress - height : TITLE };
  }

  move(frame) {
    this.#frame = frame;
    if (!this.cursor) return;
    this.cursor.setAttribute("transform", `translate(${this.x(frame).toFixed(2)} 0)`);
    for (const { dot, values, y } of this.dots) {
      const value = values[frame];
      dot.setAttribute("visibility", finite(value) ? "visible" : "hidden");
      if (finite(value)) { dot.setAttribute("cx", this.x(frame)); dot.setAttribute("cy", y(value)); }
    }
  }

  /** Mark the frame under the pointer; null: none. */
  point(frame) {
    this.#pointed = frame;
    this.pointer?.setAttribute("visibility", frame === null ? "hidden" : "visible");
    if (frame !== null) this.pointer?.setAttribute("transform", `translate(${this.x(frame).toFixed(2)} 0)`);
  }

  #rows() {
    const values = this.#visible.filter(({ is_value }) => is_value);
    const others = this.#visible.filter(({ is_value }) => !is_value);
    const rows = values.length ? [
      { kind: "progress", title: "Progress", series: values },
      { kind: "rewards", title: "Step reward, as a share of the task", series: values },
    ] : [];
    return [...rows, ...others.map((one) => ({ kind: "own", title: `Step reward of ${one.name}: own scale, its sum is no progress`, series: [one] }))];
  }

  #draw() {
    const width = this.host.clientWidth;
    if (!width) return;
    this.width = width;
    const rows = this.#rows();
    const bottom = rows.reduce((sum, { kind }) => sum + TITLE + ROW[kind], 0) || TITLE + ROW.progress;
    this.x = scale([0, Math.max(1, this.last)], [LEFT, width - RIGHT]);
    this.dots = [];
    this.root.setAttribute("viewBox", `0 0 ${width} ${bottom + AXIS}`);
    this.root.setAttribute("height", bottom + AXIS);
    this.root.replaceChildren();
    let top = 0;
    for (const row of rows) {
      this.#drawRow(row, top + TITLE, top + TITLE + ROW[row.kind] - 6);
      top += TITLE + ROW[row.kind];
    }
    if (!rows.length) this.root.append(svg("text", { x: width / 2, y: bottom / 2, "text-anchor": "middle" }, "No model is shown: tick one below."));
    this.#drawFrames(bottom);
    this.pointer = svg("g", { class: "pointer", visibility: "hidden" }, svg("line", { y1: TITLE - 8, y2: bottom }));
    this.cursor = svg("g", { class: "cursor" },
      svg("line", { y1: TITLE - 8, y2: bottom }), svg("path", { d: `M-5.5 ${TITLE - 14}h11v5l-5.5 6-5.5-6z` }));
    this.root.append(this.pointer, this.cursor, ...this.dots.map(({ dot }) => dot));
    this.move(this.#frame);
    this.point(this.#pointed);
  }

  #drawRow({ kind, title, series }, top, bottom) {
    const progress = kind === "progress";
    const values = (one) => (progress ? one.progress : one.steps);
    const y = scale(range(kind, series.map(values)), [bottom, top + 2]);
    if (progress) this.y = y;
    this.root.append(svg("text", { class: "title", x: LEFT + 10, y: top - 8 }, title));
    for (const tick of ticks(y.domain, progress ? 5 : 2)) {
      this.root.append(
        svg("line", { class: tick === 0 ? "zero" : progress && tick === 1 ? "goal" : "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(tick), y2: y(tick) }),
        svg("text", { x: LEFT - 7, y: y(tick), dy: "0.34em", "text-anchor": "end" }, brief(tick)));
    }
    if (kind === "rewards" && series.length === 1) this.#drawBars(series[0].steps, y);
    else for (const one of series) this.#drawLine(one, values(one), y, progress);
  }

  #drawLine(one, values, y, strong) {
    const colour = seriesClass(one.index);
    const d = path(values.map((value, i) => [this.x(i), finite(value) ? y(value) : null]));
    this.root.append(svg("path", { class: `line ${strong ? "strong " : ""}${colour}`, d, "data-model": one.name }));
    this.dots.push({ dot: svg("circle", { class: `dot ${colour}`, r: strong ? 4.5 : 3.2 }), values, y });
  }

  #drawBars(steps, y) {
    const width = Math.max(0.6, 0.72 * (this.x(1) - this.x(0)));
    const bars = (keep) => steps.map((r, i) => (finite(r) && keep(r)
      ? `M${(this.x(i) - width / 2).toFixed(2)} ${y(0).toFixed(2)}h${width.toFixed(2)}V${y(r).toFixed(2)}h${(-width).toFixed(2)}z` : "")).join("");
    this.root.append(svg("path", { class: "up", d: bars((r) => r > 0) }), svg("path", { class: "down", d: bars((r) => r < 0) }));
  }

  #drawFrames(bottom) {
    const wanted = ticks(this.x.domain, Math.max(2, Math.floor((this.width - LEFT) / 64))).filter(Number.isInteger);
    for (const [i, tick] of wanted.entries()) {
      const end = this.x(tick) > this.width - RIGHT - 24 && i > 0;
      this.root.append(svg("text", { x: end ? this.width - RIGHT : this.x(tick), y: bottom + 16, "text-anchor": end ? "end" : "middle" },
        i === wanted.length - 1 ? `${brief(tick)} frame` : brief(tick)));
    }
  }
}

/** What a row must reach: 0 to 1 for progress, symmetric for steps of a value, 0 and the values for other rewards. */
function range(kind, arrays) {
  const [low, high] = extent([0, ...(kind === "progress" ? [1] : []), ...arrays.flat()]);
  if (kind === "rewards") {
    const reach = 1.08 * Math.max(1e-6, -low, high);
    return [-reach, reach];
  }
  const margin = 0.05 * (high - low || 1);
  return [low - margin, high + margin];
}
