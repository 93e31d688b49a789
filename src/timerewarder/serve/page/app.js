/* The page: what is shown (nothing yet, all videos, one video), and the keys, drops and buttons that belong to all of it. */

import * as api from "./api.js";
import { byId, count, html, seriesClass } from "./dom.js";
import { fromDrop, fromInput, SUFFIXES } from "./drop.js";
import { Grid } from "./grid.js";
import { Library } from "./library.js";
import { Viewer } from "./viewer.js";

const library = new Library();
let models = [];
let grid = null;
let viewer = null;
let opened = null; // the item in the viewer
let wanted = null; // a video that was added alone opens when it is done
let nowReady = () => {};
const ready = new Promise((resolve) => { nowReady = resolve; });

/* ---- what is shown ---- */

function route() {
  const id = /^#\/video\/(.+)$/.exec(location.hash)?.[1];
  const item = id && library.find(decodeURIComponent(id));
  if (item?.record) open(item);
  else showAll();
}

function open(item) {
  wanted = null;
  if (opened === item) return;
  const earlier = opened;
  viewer?.close();
  opened = item;
  show("viewer");
  viewer = new Viewer(item, models, grid.around(item), { remove, problem });
  document.title = `${item.name} · timerewarder`;
  byId("curve").focus({ preventScroll: true });
  if (!earlier) scrollTo(0, 0); // from one video to the next the eyes stay where they are
}

function showAll() {
  const last = opened;
  viewer?.close();
  [viewer, opened] = [null, null];
  document.title = "timerewarder";
  show(library.items.size ? "grid" : "empty");
  grid.render();
  if (last) grid.focus(last);
}

function show(name) {
  for (const id of ["empty", "grid", "viewer"]) byId(id).hidden = id !== name;
}

function changed({ detail: item }) {
  if (opened && !library.items.has(opened.key)) { location.hash = "#/"; showAll(); return; }
  if (wanted && !library.items.has(wanted.key)) wanted = null;
  if (wanted?.record) { location.hash = `#/video/${wanted.id}`; return; }
  if (opened) { // the grid is drawn when it is shown again
    if (!item || item.record) viewer.place(grid.around(opened));
    return;
  }
  if (item?.record && location.hash === `#/video/${item.id}`) { open(item); return; } // a page that was reloaded
  show(library.items.size ? "grid" : "empty");
  if (item && library.items.has(item.key)) grid.update(item);
  else grid.render();
}

function problem(message) {
  byId("notice").querySelector("span").textContent = message;
  byId("notice").hidden = false;
}

/* ---- videos in and out ---- */

async function add({ videos, others }) {
  await ready; // a drop may come before the server has said what it takes
  byId("notice").hidden = true;
  if (others.length) {
    const named = others.length > 3 ? `${others.slice(0, 3).join(", ")}, …` : others.join(", ");
    problem(`${count(others.length, "file")} left out, no video by name: ${named}. Videos end in ${SUFFIXES.join(", ")}.`);
  } else if (!videos.length) problem("There is no file in that folder.");
  if (!videos.length) return;
  const rate = document.querySelector(".fps");
  const items = library.add(videos, rate.checkValidity() ? rate.value : "");
  wanted = items.length === 1 && items[0].phase !== "failed" ? items[0] : null;
  if (opened) location.hash = "#/"; // how far the new ones are is shown on their cards
}

async function remove(item) {
  const { after, before } = grid.around(item);
  const next = opened === item ? after ?? before : null;
  const removal = library.remove(item);
  if (next) location.hash = `#/video/${next.id}`;
  await removal.catch((error) => problem(error.message));
}

function prepareAdding() {
  for (const [id, input] of [["files", byId("files")], ["folder", byId("folder")]]) {
    input.addEventListener("change", () => { if (input.files.length) add(fromInput(input)); });
    for (const button of document.querySelectorAll(`[data-pick="${id}"]`)) button.addEventListener("click", () => input.click());
  }
  byId("files").accept = SUFFIXES.map((suffix) => `.${suffix}`).join(",");
  const rates = document.querySelectorAll(".fps"); // one beside the first choice, one in the toolbar
  for (const rate of rates) rate.addEventListener("input", () => rates.forEach((other) => { other.value = rate.value; }));
  byId("add").addEventListener("click", () => byId("files").click());
  byId("clear").addEventListener("click", () => {
    const sure = confirm(`Remove ${count(library.items.size, "video")} from the server? The files they came from stay.`);
    if (sure) library.clear().catch((error) => problem(error.message));
  });
  prepareDrops();
}

function prepareDrops() {
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  const cover = byId("drop");
  // Both must be taken: where the cover appears under the pointer the browser asks with dragenter alone, and a drop that
  // follows at once would otherwise open the files in place of the page.
  for (const kind of ["dragenter", "dragover"]) {
    addEventListener(kind, (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      cover.hidden = false;
    });
  }
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) cover.hidden = true; });
  addEventListener("drop", async (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    cover.hidden = true;
    add(await fromDrop(event.dataTransfer));
  });
}

/* ---- keys, theme, dialogs ---- */

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (event.target.closest("select, input:not([type=checkbox])")) return;
  if (event.key === "?") byId("help").showModal();
  else if (!(viewer ?? grid).key(event)) return;
  event.preventDefault();
}

function prepareTheme() {
  const root = document.documentElement;
  const kept = localStorage.getItem("timerewarder-theme");
  if (kept) root.dataset.theme = kept;
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("timerewarder-theme", root.dataset.theme);
    viewer?.matrix?.repaint();
  });
}

function describe() {
  byId("models-title").hidden = false;
  byId("models").replaceChildren(...models.map(({ name, method, encoder }, index) => html("li", { class: seriesClass(index), title: `method ${method}, encoder ${encoder}` },
    html("i", { class: "swatch" }), html("span", {}, name), method === name ? null : html("small", {}, method))));
  const { upload_megabytes: size, frames } = library.limits;
  byId("formats").replaceChildren(
    html("span", {}, `${SUFFIXES.join(", ")} · up to ${size} MB and ${frames.toLocaleString("en")} frames`),
    html("span", {}, "Videos go to this server only, and it forgets them when it stops."));
}

async function begin() {
  api.takeToken();
  prepareTheme();
  prepareAdding();
  byId("notice").querySelector("button").addEventListener("click", () => { byId("notice").hidden = true; });
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  library.addEventListener("problem", ({ detail }) => problem(detail));
  try {
    models = await api.models();
    grid = new Grid(library, models, remove);
    library.addEventListener("change", changed);
    await library.begin();
  } catch (error) {
    problem(error.message);
    return;
  }
  describe();
  addEventListener("keydown", onKey);
  addEventListener("hashchange", route);
  route();
  nowReady();
}

begin();
