/* The predicted distance between any two frames of a video as a map: rows are "from", columns are "to". */

import * as api from "./api.js";
import { brief, clamp, colourOf, finite, html, onDrag, path, scale, seriesClass, signed, svg, ticks } from "./dom.js";

const STOPS = 5; // colours from -limit to +limit, in the style sheet
const PROFILE = { width: 460, height: 190, left: 38 }; // of the row's curve, in its own pixels

export class Matrix {
  #from = 0; // frame
  #to = 0; // frame: the one the video shows
  #data = null; // { frames, values, limit }
  #wish = 0; // number of the last request: an older answer is dropped

  /** `jump(frame)` moves the video; `grabber` draws the two pictures. */
  constructor(record, models, jump, grabber) {
    Object.assign(this, { record, models, jump, grabber, last: record.frames - 1 });
    this.node = this.#build();
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.#paint();
    this.scheme.addEventListener("change", this.repaint);
    this.load(models[0].name);
  }

  close() { this.scheme.removeEventListener("change", this.repaint); }

  #build() {
    this.canvas = html("canvas", { class: "map", role: "img", "aria-label": "Map of predicted distances: rows are the frame from which, columns the frame to which" });
    this.field = html("div", { class: "field", tabindex: 0, role: "group", "aria-label": "Distance map: left and right move the frame, up and down the frame that distances are measured from" },
      this.canvas, html("i", { class: "row" }), html("i", { class: "column" }), html("i", { class: "spot" }));
    [, this.row, this.column, this.spot] = this.field.children;
    this.pictures = ["from", "to"].map((end) => ({
      canvas: html("canvas", { class: "end", "aria-hidden": "true", "data-end": end }), number: html("b", { class: "number" }, "0"),
    }));
    this.value = html("output", { class: "value number" });
    this.words = html("span", { class: "note" });
    this.profile = svg("svg", { class: "chart", viewBox: `0 0 ${PROFILE.width} ${PROFILE.height}`, "aria-hidden": "true" });
    this.low = html("span");
    this.high = html("span");
    onDrag(this.field, (x, y) => this.#pick(this.#entryAt(x, y)));
    this.field.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "mouse" || !this.#data) return;
      const box = this.field.getBoundingClientRect();
      this.#read(...this.#entryAt(event.clientX - box.left, event.clientY - box.top));
    });
    this.field.addEventListener("pointerleave", () => this.#rest());
    this.field.addEventListener("keydown", (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.#from = clamp(this.#from + by * (event.shiftKey ? 10 : 1), 0, this.last);
      this.#rest();
    });
    return html("section", { class: "distances panel", "aria-label": "Distances" },
      html("div", { class: "matrix" },
        html("div", { class: "across number" }, html("span", {}, "0"), html("span", {}, "to frame →"), html("span", {}, this.last)),
        html("div", { class: "along number" }, html("span", {}, "0"), html("span", {}, "from frame →"), html("span", {}, this.last)),
        this.field),
      html("div", { class: "probe" },
        html("div", { class: "probe-head" }, html("h2", {}, "Distances"), this.#chooser()),
        html("p", { class: "note" }, "The predicted time from one frame (row) to another (column), as a share of the task: blue is later, red is earlier. A video that moves on steadily draws even diagonal bands; a pause or a fall back shows as a block."),
        html("div", { class: "views" }, html("div", { class: "ends" }, ...this.pictures.map(({ canvas, number }, i) => html("figure", {}, canvas, html("figcaption", {}, i ? "to frame " : "from frame ", number)))),
          html("figure", { class: "profile" }, this.profile, html("figcaption", {}, "from that frame to every frame: a row of the map"))),
        html("p", { class: "reading" }, this.value, this.words),
        html("div", { class: "colours number" }, html("i"), html("div", {}, this.low, html("span", {}, "0"), this.high)),
        html("p", { class: "note" }, "Click or drag on the map: the video jumps to the column’s frame, and distances are measured from the row’s.")));
  }

  #chooser() {
    if (this.models.length === 1) return html("span", { class: "note" }, this.models[0].name);
    const select = html("select", { "aria-label": "Model of the distance map" }, ...this.models.map(({ name }) => html("option", { value: name }, name)));
    select.addEventListener("change", () => this.load(select.value));
    return select;
  }

  async load(model) {
    const wish = ++this.#wish;
    this.field.classList.add("loading");
    try {
      const { indices, values } = await api.distances(this.record.id, model);
      if (wish !== this.#wish) return;
      const largest = values.reduce((most, row) => row.reduce((m, v) => (finite(v) ? Math.max(m, Math.abs(v)) : m), most), 0);
      this.#data = { frames: indices, values, limit: Math.max(1, largest) };
      this.low.textContent = signed(-this.#data.limit, 2);
      this.high.textContent = signed(this.#data.limit, 2);
      this.field.dataset.model = model;
      this.profile.setAttribute("class", `chart ${seriesClass(this.models.find(({ name }) => name === model).index)}`);
      this.#paint();
      this.#rest();
    } catch (error) {
      if (wish === this.#wish) this.words.textContent = error.message;
    }
    this.field.classList.remove("loading");
  }

  /** The video shows this frame now. */
  move(frame) {
    this.#to = frame;
    if (!this.field.matches(":hover")) this.#rest();
    else this.#mark();
  }

  #nearest(frame) {
    const { frames } = this.#data;
    return clamp(Math.round((frame / Math.max(1, this.last)) * (frames.length - 1)), 0, frames.length - 1);
  }

  #entryAt(x, y) {
    const size = this.#data?.frames.length ?? 1;
    const box = this.field.getBoundingClientRect();
    return [y / box.height, x / box.width].map((share) => clamp(Math.floor(share * size), 0, size - 1));
  }

  #pick([u, v]) {
    if (!this.#data) return;
    this.#from = this.#data.frames[u];
    this.jump(this.#data.frames[v]);
    this.#read(u, v);
  }

  #rest() {
    this.#mark();
    if (this.#data) this.#read(this.#nearest(this.#from), this.#nearest(this.#to), this.#from, this.#to);
  }

  /** Show the entry [u, v] in words and pictures. */
  #read(u, v, from = this.#data.frames[u], to = this.#data.frames[v]) {
    const value = this.#data.values[u][v];
    this.value.textContent = signed(value);
    this.value.classList.toggle("negative", value < 0);
    const apart = Math.abs(to - from);
    this.words.textContent = apart ? `predicted; really ${apart} ${apart === 1 ? "frame" : "frames"} ${to > from ? "later" : "earlier"}` : "the same frame";
    this.#drawProfile(u, v);
    for (const [i, frame] of [from, to].entries()) {
      this.pictures[i].number.textContent = frame;
      this.grabber.draw(this.pictures[i].canvas, frame);
    }
  }

  /** The row u of the map as a curve, with a mark at its entry v. */
  #drawProfile(u, v) {
    const { frames, values, limit } = this.#data;
    const { width, height, left } = PROFILE;
    const x = scale([0, Math.max(1, this.last)], [left, width - 8]);
    const y = scale([-1.04 * limit, 1.04 * limit], [height - 6, 6]);
    this.profile.replaceChildren(
      ...ticks(y.domain, 4).flatMap((tick) => [
        svg("line", { class: tick === 0 ? "zero" : "grid", x1: left, x2: width - 8, y1: y(tick), y2: y(tick) }),
        svg("text", { x: left - 6, y: y(tick), dy: "0.34em", "text-anchor": "end" }, brief(tick))]),
      svg("path", { class: "line strong", d: path(values[u].map((value, i) => [x(frames[i]), finite(value) ? y(value) : null])) }));
    if (finite(values[u][v])) this.profile.append(svg("circle", { class: "dot", r: 5, cx: x(frames[v]), cy: y(values[u][v]) }));
  }

  /** Put the cross hair where the frames are: the middle of their cells. */
  #mark() {
    const share = (frame) => `${(100 * (frame + 0.5)) / (this.last + 1)}%`;
    this.row.style.top = share(this.#from);
    this.column.style.left = share(this.#to);
    this.spot.style.left = share(this.#to);
    this.spot.style.top = share(this.#from);
  }

  #paint() {
    if (!this.#data) return;
    const { frames, values, limit } = this.#data;
    const stops = Array.from({ length: STOPS }, (_, i) => colourOf(`stop-${i}`));
    const image = new ImageData(frames.length, frames.length);
    values.flat().forEach((value, i) => {
      if (!finite(value)) return; // stays transparent
      const place = clamp((value / limit + 1) / 2, 0, 1) * (STOPS - 1);
      const stop = Math.min(STOPS - 2, Math.floor(place));
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = stops[stop][c] + (place - stop) * (stops[stop + 1][c] - stops[stop][c]);
      image.data[4 * i + 3] = 255;
    });
    Object.assign(this.canvas, { width: frames.length, height: frames.length });
    this.canvas.getContext("2d").putImageData(image, 0, 0);
  }
}
