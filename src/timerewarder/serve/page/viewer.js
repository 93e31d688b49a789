/* One open video: the picture, its curves, the models, the distances, the exports. */

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { byId, count, html, onDrag, seriesClass, signed, svg } from "./dom.js";
import { Matrix } from "./matrix.js";
import { Grabber, Player } from "./player.js";

const ICONS = { play: "M4 2v14l12-7z", pause: "M4 2.5h3.6v13H4zM10.4 2.5H14v13h-3.6z" };
const EXPORTS = [
  { file: "scores.csv", label: "csv", about: "Table of frames, rewards and progress", many: false },
  { file: "plot.png", label: "png", about: "Plot of the curves that are shown", many: true },
  { file: "overlay.mp4", label: "mp4", about: "Video with the curve running beside it", many: false },
];
let hidden = new Set(); // models switched off, kept from video to video

export class Viewer {
  /** `item` is a done video; `models` the server's; `around`: { place, total, before, after } in the grid's order. */
  constructor(item, models, around, { remove, problem }) {
    this.record = item.record;
    this.neighbours = html("nav", { class: "neighbours number", "aria-label": "Other videos" });
    this.place(around);
    this.problem = problem;
    this.series = models
      .map((model, index) => ({ ...model, index, ...this.record.results[model.name] }))
      .filter(({ rewards }) => rewards)
      .map((one) => ({ ...one, steps: one.is_value ? steps(one.progress) : one.rewards }));
    this.video = html("video", { playsinline: true, preload: "auto", "aria-label": item.name });
    this.video.muted = true;
    this.second = html("video", { preload: "auto" });
    this.second.muted = true;
    this.player = new Player(this.video, this.record.frames, this.record.fps);
    this.grabber = new Grabber(this.second, this.record.fps);
    this.stop = new AbortController();
    this.#build(item, remove);
    this.player.listeners.push((frame) => this.#move(frame));
    this.#show();
    this.#move(0);
    this.#load();
  }

  close() {
    this.stop.abort();
    this.chart.close();
    this.matrix?.close();
    for (const video of [this.video, this.second]) { video.removeAttribute("src"); video.load(); }
    if (this.address) URL.revokeObjectURL(this.address);
    byId("viewer").replaceChildren();
  }

  /** The whole preview at once: it is small, and a browser seeks exactly and at once in what it has. */
  async #load() {
    try {
      this.address = URL.createObjectURL(await api.blob(api.previewPath(this.record.id), { signal: this.stop.signal }));
      this.video.src = this.address;
      this.second.src = this.address;
    } catch (error) {
      if (error.name !== "AbortError") this.problem(`The video cannot be shown: ${error.message}`);
    }
  }

  #build(item, remove) {
    const { frames, fps, width, height } = this.record;
    const screen = html("div", { class: "screen" }, this.video);
    screen.style.aspectRatio = `${width} / ${height}`;
    screen.style.setProperty("--shape", width / height);
    screen.addEventListener("click", () => this.player.toggle());
    this.curve = html("div", { class: "curve", id: "curve", tabindex: 0, role: "slider", "aria-label": "Frame", "aria-valuemin": 0, "aria-valuemax": frames - 1 });
    const withDistances = this.series.filter(({ has_distances }) => has_distances);
    byId("viewer").replaceChildren(
      html("a", { class: "back", href: "#/" }, "← All videos"),
      html("div", { class: "name" },
        html("h1", { title: item.name }, item.name),
        html("p", { class: "note number" }, `${count(frames, "frame")} · ${Number(fps.toFixed(2))} fps · ${(frames / fps).toFixed(2)} s · ${width}×${height}`)),
      this.neighbours,
      html("div", { class: "tools" }, this.#exports(), this.#remover(item, remove)),
      html("div", { class: "stage" },
        html("div", { class: "panel watch" }, screen, this.#controls()),
        html("div", { class: "panel curves" }, this.curve, this.#legend())));
    this.chart = new Chart(this.curve, this.series, frames);
    this.#pointing();
    if (withDistances.length) {
      this.matrix = new Matrix(this.record, withDistances, (frame) => { this.player.toggle(false); this.player.seek(frame); }, this.grabber);
      byId("viewer").append(this.matrix.node);
    } else {
      byId("viewer").append(html("p", { class: "panel none note" }, "No distance map: ", this.series.map(({ name }) => name).join(", "), " does not say how far apart two frames are."));
    }
  }

  /** The videos before and after; they change while others are being scored. */
  place(around) {
    const { place, total, before, after } = this.around = around;
    const link = (item, key, label, sign) => html(item ? "a" : "span", { class: "button icon", href: item && `#/video/${item.id}`, "aria-label": item && label, title: item && `${label} (${key})` }, sign);
    this.neighbours.replaceChildren(
      link(before, "[", "Video before", "‹"), html("span", {}, `${place} of ${total}`), link(after, "]", "Video after", "›"));
  }

  #exports() {
    this.exported = html("select", { "aria-label": "Model to export", hidden: this.series.length < 2 }, ...this.series.map(({ name }) => html("option", { value: name }, name)));
    const links = EXPORTS.map((kind) => {
      const link = html("a", { class: "button", href: "#", title: kind.about, "data-file": kind.file }, kind.label);
      link.addEventListener("click", (event) => { event.preventDefault(); this.#export(link, kind); });
      return { link, kind };
    });
    this.aim = () => links.forEach(({ link, kind }) => { link.href = this.#exportPath(kind); });
    this.exported.addEventListener("change", this.aim);
    return html("div", { class: "exports", role: "group", "aria-label": "Export" }, html("span", { class: "note" }, "Export"), this.exported, ...links.map(({ link }) => link));
  }

  #exportPath({ file, many }) {
    const shown = this.series.map(({ name }) => name).filter((name) => !hidden.has(name));
    return api.exportPath(this.record.id, file, many && shown.length ? shown : [this.exported.value]);
  }

  /** Fetch, so that the token goes along and an error can be told in words; then save. */
  async #export(link, kind) {
    if (link.getAttribute("aria-busy")) return;
    link.setAttribute("aria-busy", "true");
    try {
      const address = URL.createObjectURL(await api.blob(this.#exportPath(kind), { signal: this.stop.signal }));
      const model = kind.many || this.series.length < 2 ? "" : `_${this.exported.value}`;
      html("a", { href: address, download: `${fileName(this.record.name)}${model}.${kind.label}` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (error) {
      if (error.name !== "AbortError") this.problem(`The ${kind.label} could not be made: ${error.message}`);
    }
    link.removeAttribute("aria-busy");
  }

  #remover(item, remove) {
    const button = html("button", { type: "button", class: "quiet", "aria-label": `Delete ${item.name}` }, "Delete");
    button.addEventListener("click", () => remove(item));
    return button;
  }

  #controls() {
    this.icon = svg("path", { d: ICONS.play });
    this.button = html("button", { type: "button", class: "icon", id: "play", "aria-label": "Play" }, svg("svg", { viewBox: "0 0 18 18", "aria-hidden": "true" }, this.icon));
    this.now = html("output", { class: "now number", id: "now" });
    const speed = html("select", { "aria-label": "Speed" }, ...[0.1, 0.25, 0.5, 1, 2, 4].map((rate) => html("option", { value: rate, selected: rate === 1 }, `${rate}×`)));
    speed.addEventListener("change", () => { this.video.playbackRate = Number(speed.value); });
    this.button.addEventListener("click", () => this.player.toggle());
    for (const name of ["play", "pause", "ended"]) {
      this.video.addEventListener(name, () => {
        this.icon.setAttribute("d", this.player.playing ? ICONS.pause : ICONS.play);
        this.button.setAttribute("aria-label", this.player.playing ? "Pause" : "Play");
      });
    }
    const steps = [["‹", -1, "One frame back"], ["›", 1, "One frame on"]].map(([sign, by, label]) => {
      const button = html("button", { type: "button", class: "icon", "aria-label": label }, sign);
      button.addEventListener("click", () => this.player.step(by));
      return button;
    });
    return html("div", { class: "controls" }, this.button, ...steps, this.now, speed);
  }

  /** The models as rows: a box to show or hide the curve, and what they say of the current frame. */
  #legend() {
    const body = html("tbody");
    for (const one of this.series) {
      const box = html("input", { type: "checkbox", id: `show-${one.index}`, value: one.name });
      box.checked = !hidden.has(one.name);
      box.addEventListener("change", () => { hidden[box.checked ? "delete" : "add"](one.name); this.#show(); });
      one.cells = ["reward", "sum"].map((kind) => html("td", { class: "number", "data-kind": kind }));
      one.row = html("tr", { class: seriesClass(one.index), "data-model": one.name },
        html("th", { scope: "row" }, html("label", { for: box.id }, box, html("i", { class: "swatch" }), html("span", {}, one.name),
          one.is_value ? null : html("small", {}, "sum of rewards, no progress"))),
        ...one.cells, html("td", { class: "number final" }, signed(one.final_progress)));
      body.append(one.row);
    }
    return html("table", { class: "legend" },
      html("thead", {}, html("tr", {}, ...["Model", "Reward", "Progress", "Final"].map((title) => html("th", { scope: "col" }, title)))), body);
  }

  #show() {
    hidden = new Set([...hidden].filter((name) => this.series.some((one) => one.name === name)));
    for (const { row, name } of this.series) row.classList.toggle("off", hidden.has(name));
    this.chart.show(this.series.map(({ name }) => name).filter((name) => !hidden.has(name)));
    this.aim();
  }

  #move(frame) {
    this.chart.move(frame);
    this.matrix?.move(frame);
    this.now.textContent = `${frame} / ${this.player.last}  ·  ${(frame / this.record.fps).toFixed(2)} s`;
    for (const { cells, rewards, progress } of this.series) {
      cells[0].textContent = signed(rewards[frame]);
      cells[0].classList.toggle("negative", rewards[frame] < 0);
      cells[1].textContent = signed(progress[frame]);
    }
    const first = this.series.find(({ name }) => !hidden.has(name)) ?? this.series[0];
    this.curve.setAttribute("aria-valuenow", frame);
    this.curve.setAttribute("aria-valuetext", `frame ${frame}, ${first.name}: progress ${signed(first.progress[frame])}, reward ${signed(first.rewards[frame])}`);
  }

  /** Press and drag on the curves to seek; point at them to see the frame. */
  #pointing() {
    const canvas = html("canvas", { "aria-hidden": "true" });
    const title = html("div", { class: "number title" });
    const lines = html("div", { class: "lines number" });
    const tip = html("div", { class: "tip", id: "tip", hidden: true }, canvas, html("div", {}, title, lines));
    canvas.style.aspectRatio = `${this.record.width} / ${this.record.height}`;
    this.curve.append(tip);
    let resume = false;
    onDrag(this.curve, (x) => { tip.hidden = true; this.player.seek(this.chart.frameAt(x)); }, {
      start: () => { resume = this.player.playing; this.player.toggle(false); this.curve.focus({ preventScroll: true }); },
      end: () => { if (resume) this.player.toggle(true); },
    });
    const leave = () => { tip.hidden = true; this.chart.point(null); };
    this.curve.addEventListener("pointerleave", leave);
    this.curve.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "mouse" || event.buttons) { leave(); return; }
      const frame = this.chart.frameAt(event.clientX - this.curve.getBoundingClientRect().left);
      this.chart.point(frame);
      tip.hidden = false;
      tip.dataset.frame = frame;
      this.grabber.draw(canvas, frame);
      title.textContent = `frame ${frame} · ${(frame / this.record.fps).toFixed(2)} s`;
      lines.replaceChildren(...this.series.filter(({ name }) => !hidden.has(name)).map((one) => html("div", { class: seriesClass(one.index) },
        html("i", { class: "swatch" }), html("span", {}, one.is_value ? "progress" : "sum"), html("b", {}, signed(one.progress[frame])),
        html("span", {}, "reward"), html("b", {}, signed(one.rewards[frame])))));
      const { left, top } = this.chart.free(frame, tip.offsetWidth, tip.offsetHeight);
      Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
    });
  }

  /** Returns whether the key meant something here. */
  key(event) {
    const { key, shiftKey, target } = event;
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (key === " ") {
      if (target.closest("button, a, summary")) return false; // its own key
      this.player.toggle();
    } else if (key in steps) this.player.step(steps[key] * (shiftKey ? 10 : 1));
    else if (key === "Home") this.player.step(-Infinity);
    else if (key === "End") this.player.step(Infinity);
    else if (key === "Escape") location.hash = "#/";
    else if (key === "[" || key === "]") {
      const next = key === "[" ? this.around.before : this.around.after;
      if (next) location.hash = `#/video/${next.id}`;
    } else return false;
    return true;
  }
}

/** Steps of the progress: rewards in the one unit that models with other scales share. */
const steps = (progress) => progress.map((value, i) => (i ? value - progress[i - 1] : 0));

/** A video's name as the beginning of a file's name. */
const fileName = (name) => name.replace(/\.[A-Za-z0-9]{1,5}$/, "").replaceAll(/[^\w.+=@-]+/g, "_") || "video";
