/* All videos as cards, those that end lowest first, so that failures stand out. */

import * as api from "./api.js";
import { byId, clamp, count, extent, finite, html, path, scale, seriesClass, signed, svg } from "./dom.js";
import { phaseShare, phaseText } from "./library.js";
import { lastPicture } from "./player.js";

const natural = new Intl.Collator("en", { numeric: true }).compare;
const SPARK = { width: 160, height: 52 };

export class Grid {
  #cards = new Map(); // key of an item -> { node, parts }
  #range = [0, 1];
  #waiting = []; // cards in sight that have no picture yet
  #drawing = false;

  constructor(library, models, remove) {
    Object.assign(this, { library, models, remove });
    byId("by").append(...models.map(({ name }) => html("option", { value: name }, name)));
    byId("by-label").hidden = models.length < 2;
    for (const id of ["order", "by"]) byId(id).addEventListener("change", () => this.render());
    this.sight = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) this.#wish(target.dataset.key);
    }, { rootMargin: "200px" });
  }

  /** The model that the order and the large numbers are of. */
  get model() { return this.models.find(({ name }) => name === byId("by").value) ?? this.models[0]; }

  final(item) { return item.record?.results[this.model.name]?.final_progress ?? null; }

  /** Done videos in the order chosen; then those at work, then those that failed. */
  sorted() {
    const order = byId("order").value;
    const rank = (item) => (item.record ? 0 : item.phase === "failed" ? 2 : 1);
    const sign = order === "high" ? -1 : 1;
    const value = (item) => this.final(item) ?? Infinity;
    return this.library.all.sort((a, b) => rank(a) - rank(b)
      || (order === "name" || rank(a) ? 0 : sign * (value(a) - value(b)) || 0)
      || natural(a.name, b.name) || Number(a.key) - Number(b.key));
  }

  /** The place of an item among those that can be opened. */
  around(item) {
    const open = this.sorted().filter(({ record }) => record);
    const place = open.indexOf(item);
    return { place: place + 1, total: open.length, before: open[place - 1], after: open[place + 1] };
  }

  /** Bring one card up to date, without touching the order of the others. */
  update(item) {
    const card = this.#cards.get(item.key);
    if (!card || item.record || item.phase === "failed") this.render();
    else this.#fill(card, item);
  }

  render() {
    const items = this.sorted();
    this.#range = this.#sparkRange(items);
    for (const [key, card] of this.#cards) {
      if (!this.library.items.has(key)) { this.sight.unobserve(card.node); card.node.remove(); this.#cards.delete(key); }
    }
    for (const item of items) {
      if (!this.#cards.has(item.key)) this.#cards.set(item.key, this.#make(item));
      this.#fill(this.#cards.get(item.key), item);
    }
    this.#arrange(items.map(({ key }) => this.#cards.get(key).node));
    this.#tell(items);
  }

  /** Put the cards in order, moving only what must move, and keep the focus. */
  #arrange(nodes) {
    const focused = document.activeElement;
    const list = byId("cards");
    nodes.forEach((node, i) => { if (list.children[i] !== node) list.insertBefore(node, list.children[i] ?? null); });
    if (focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true });
  }

  #tell(items) {
    const done = items.filter(({ record }) => record).length;
    const failed = items.filter(({ phase }) => phase === "failed").length;
    const rest = items.length - done - failed;
    byId("count").textContent = count(items.length, "video");
    const order = { low: "lowest first", high: "highest first", name: "by name" }[byId("order").value];
    const what = this.model.is_value ? `final progress by ${this.model.name}` : `sum of rewards by ${this.model.name} (its scale is its own, and the sum is no progress)`;
    byId("grid-note").textContent = [`The large number is the ${what}; ${order}. The picture is the last frame.`,
      rest ? `${rest} at work.` : "", failed ? `${failed} could not be scored.` : ""].filter(Boolean).join(" ");
  }

  #make(item) {
    const parts = {
      picture: html("canvas", { "aria-hidden": "true" }),
      name: html("span", { class: "card-name" }),
      state: html("span", { class: "state" }),
      body: html("span", { class: "card-body" }),
    };
    const link = html("a", { class: "open" }, html("span", { class: "thumb" }, parts.picture), html("span", { class: "card-text" }, parts.name, parts.body, parts.state));
    const close = html("button", { type: "button", class: "icon quiet delete", "aria-label": `Delete ${item.name}`, title: "Delete" }, "×");
    close.addEventListener("click", () => this.remove(item));
    return { node: html("li", { class: "card panel", "data-key": item.key }, link, close), parts, link, drawn: "" };
  }

  #fill(card, item) {
    const { node, parts, link } = card;
    node.dataset.phase = item.phase;
    if (parts.name.textContent !== item.name) { parts.name.textContent = item.name; parts.name.title = item.name; }
    if (item.record) this.#fillDone(card, item);
    else this.#fillState(parts, item);
    if (item.record && !link.hasAttribute("href")) {
      link.href = `#/video/${item.id}`;
      this.sight.observe(node);
    }
  }

  #fillState({ state }, item) {
    const bar = html("progress", { max: 1, "aria-label": phaseText(item) });
    const share = phaseShare(item);
    if (share !== null) bar.value = share;
    state.replaceChildren(...(item.phase === "failed" ? [html("span", { class: "problem" }, item.error)] : [phaseText(item), bar]));
  }

  #fillDone(card, item) {
    const shown = JSON.stringify([this.#range, this.model.name]);
    if (card.drawn === shown) return;
    card.drawn = shown;
    const final = this.final(item);
    const { is_value } = this.model;
    card.parts.state.replaceChildren();
    card.node.style.setProperty("--share", is_value && finite(final) ? `${Math.round(100 * clamp(final, 0, 1))}%` : "50%");
    card.node.classList.toggle("valued", is_value);
    const others = this.models.filter((model) => model !== this.model && item.record.results[model.name]);
    card.parts.body.replaceChildren(
      html("span", { class: "final number", "aria-label": `final ${is_value ? "progress" : "sum of rewards"} ${signed(final, 2)}` }, signed(final, 2)),
      this.#spark(item.record.results),
      html("span", { class: "others number" }, ...others.map((model) => html("span", { class: seriesClass(this.models.indexOf(model)), title: model.name },
        html("i", { class: "swatch" }), signed(item.record.results[model.name].final_progress, 2)))));
  }

  /** What the small curves show: progress where a model gives it, else the rewards of the chosen model. */
  #sparkSeries(results) {
    const values = this.models.filter(({ name, is_value }) => is_value && results[name]);
    values.sort((a, b) => (a === this.model) - (b === this.model)); // the chosen one lies on top
    if (values.length) return values.map((model) => ({ model, values: results[model.name].progress }));
    return results[this.model.name] ? [{ model: this.model, values: results[this.model.name].rewards }] : [];
  }

  /** One range for all small curves, so that they can be compared: what the chosen model needs; others may be cut. */
  #sparkRange(items) {
    const values = this.models.some(({ is_value }) => is_value);
    const done = items.filter(({ record }) => record).flatMap(({ record }) => this.#sparkSeries(record.results));
    const chosen = done.filter(({ model }) => model === this.model);
    return extent([...(values ? [0, 1] : [0]), ...(chosen.length ? chosen : done).flatMap((one) => extent(one.values))]);
  }

  #spark(results) {
    const root = svg("svg", { class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    const y = scale(this.#range, [SPARK.height - 3, 3]);
    for (const level of [0, 1]) {
      if (level <= this.#range[1]) root.append(svg("line", { class: level ? "goal" : "zero", x1: 0, x2: SPARK.width, y1: y(level), y2: y(level) }));
    }
    for (const { model, values } of this.#sparkSeries(results)) {
      const x = scale([0, Math.max(1, values.length - 1)], [1, SPARK.width - 1]);
      root.append(svg("path", { class: `line ${model === this.model ? "strong " : ""}${seriesClass(this.models.indexOf(model))}`, d: path(values.map((value, i) => [x(i), finite(value) ? y(value) : null])) }));
    }
    return root;
  }

  #wish(key) {
    const card = this.#cards.get(key);
    if (!card) return;
    this.sight.unobserve(card.node);
    this.#waiting.push(key);
    this.#drawPictures();
  }

  /** One picture after the other: a browser opens few connections, and the open video needs one too. */
  async #drawPictures() {
    if (this.#drawing) return;
    this.#drawing = true;
    for (let key = this.#waiting.shift(); key !== undefined; key = this.#waiting.shift()) {
      const item = this.library.items.get(key);
      if (item) await this.#drawPicture(item).catch(() => {}); // a card without a picture still tells the rest
    }
    this.#drawing = false;
  }

  async #drawPicture({ key, record }) {
    const source = await api.source(record.id);
    try {
      const picture = await lastPicture(source.url, record.frames, record.fps);
      const canvas = this.#cards.get(key)?.parts.picture;
      if (!canvas) return;
      Object.assign(canvas, { width: picture.width, height: picture.height });
      canvas.getContext("2d").drawImage(picture, 0, 0);
      canvas.dataset.drawn = "";
    } finally {
      source.release();
    }
  }

  focus(item) { this.#cards.get(item?.key)?.link.focus({ preventScroll: false }); }

  /** Arrows go from card to card; returns whether the key meant something here. */
  key({ key }) {
    const links = [...byId("cards").querySelectorAll("a[href]")];
    if (!links.length) return false;
    const here = links.indexOf(document.activeElement);
    const top = links[0].getBoundingClientRect().top;
    const columns = Math.max(1, links.filter((link) => Math.abs(link.getBoundingClientRect().top - top) < 4).length);
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
    const to = key === "Home" ? 0 : key === "End" ? links.length - 1 : by && (here < 0 ? 0 : here + by);
    if (to === undefined || !links[to]) return false;
    links[to].focus();
    return true;
  }
}
