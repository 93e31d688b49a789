/* The videos that the page knows: those being sent, those the server works on, those that are done.

   An item: { key, id (null until the server has it), name, phase, done, total, error, record (with results) }
   phase: queued, uploading (here), waiting, decoding, scoring (on the server), done, failed. */

import * as api from "./api.js";

const TOGETHER = 2; // uploads at a time: one is sent while another is answered
const PAUSE = 250; // ms between looks at work that goes on
const PENDING = new Set(["waiting", "decoding", "scoring"]);

export class Library extends EventTarget {
  items = new Map();
  limits = null;
  #next = 0;
  #sending = 0;
  #watching = false;

  get all() { return [...this.items.values()]; }

  find(id) { return this.all.find((item) => item.id === id); }

  /** What the server has already, for a page that was reloaded. */
  async begin() {
    this.limits = await api.limits();
    for (const { id, name, state } of await api.videos()) this.#insert({ id, name: name || "video", phase: state });
    this.#changed();
    this.#watch();
  }

  /** Send `[{ file, name }]`; returns their items. */
  add(videos, fps) {
    const most = this.limits.upload_megabytes;
    const items = videos.map(({ file, name }) => {
      const item = this.#insert({ name, file, fps, phase: "queued" });
      if (file.size > most * 1e6) this.#fail(item, `${megabytes(file.size)} is more than this server takes (${most} MB): cut or shrink the video.`);
      return item;
    });
    this.#changed();
    this.#send();
    return items;
  }

  async remove(item) {
    this.items.delete(item.key);
    item.leave.abort();
    this.#changed(item);
    if (item.id) await api.remove(item.id).catch((error) => { if (error.status !== 404) throw error; });
  }

  async clear() { await Promise.all(this.all.map((item) => this.remove(item))); }

  #insert(fields) {
    const key = String(this.#next++);
    const item = { key, id: null, done: 0, total: null, error: null, record: null, leave: new AbortController(), ...fields };
    this.items.set(key, item);
    return item;
  }

  #changed(item = null) { this.dispatchEvent(new CustomEvent("change", { detail: item })); }

  #fail(item, message) { Object.assign(item, { phase: "failed", error: message, file: null }); }

  #send() {
    while (this.#sending < TOGETHER) {
      const item = this.all.find(({ phase }) => phase === "queued");
      if (!item) return;
      item.phase = "uploading";
      this.#sending += 1;
      this.#upload(item).finally(() => { this.#sending -= 1; this.#send(); });
    }
  }

  async #upload(item) {
    const tell = (share) => { Object.assign(item, { done: share, total: 1 }); this.#changed(item); };
    try {
      tell(0);
      const entry = await api.upload(item.file, item.name, item.fps, tell, item.leave.signal);
      Object.assign(item, { id: entry.id, name: entry.name, phase: entry.state, done: 0, total: null, file: null });
      if (item.leave.signal.aborted) await api.remove(item.id); // deleted while the answer was on its way
      this.#watch();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 429) await this.#wait(item, error.retryAfter);
      else this.#fail(item, error.message);
    }
    this.#changed(item);
  }

  /** The server is busy: the item goes back to the queue after the time that the server names. */
  async #wait(item, seconds) {
    Object.assign(item, { phase: "held", done: 0, total: null });
    this.#changed(item);
    await sleep(1000 * Math.min(30, Number(seconds) || 2));
    item.phase = "queued";
  }

  /** Look at the server's list until it has nothing left to do. */
  async #watch() {
    if (this.#watching) return;
    this.#watching = true;
    try {
      do {
        await this.#look();
        await sleep(PAUSE);
      } while (this.all.some(({ id, phase, record }) => id && (PENDING.has(phase) || (phase === "done" && !record))));
    } catch (error) {
      this.dispatchEvent(new CustomEvent("problem", { detail: error.message }));
    } finally {
      this.#watching = false;
    }
  }

  async #look() {
    const known = this.all.filter(({ id }) => id);
    const entries = new Map((await api.videos()).map((entry) => [entry.id, entry]));
    const lost = known.filter(({ id, key }) => !entries.has(id) && this.items.has(key));
    for (const item of lost) this.items.delete(item.key);
    if (lost.length) {
      const message = `No longer on the server, which keeps ${this.limits.videos} videos and lets the oldest go: ${lost.map(({ name }) => name).join(", ")}`;
      this.dispatchEvent(new CustomEvent("problem", { detail: message }));
      this.#changed();
    }
    for (const item of known) if (entries.has(item.id)) await this.#update(item, entries.get(item.id));
  }

  async #update(item, entry) {
    if (item.record || item.phase === "failed") return;
    if (entry.state === "done") {
      try {
        item.record = await api.video(item.id);
      } catch (error) {
        if (error.status === 404) return; // deleted in the meantime; the next look says so
        throw error;
      }
    }
    Object.assign(item, { name: entry.name || item.name, phase: entry.state, done: entry.done, total: entry.total });
    if (entry.state === "failed") this.#fail(item, entry.error?.message ?? "The video could not be scored.");
    this.#changed(item);
  }
}

/** What is being done to an item, in words. */
export function phaseText({ phase, done, total }) {
  const frames = total ? `${done} of ${total} frames` : done ? `${done} frames` : "";
  return {
    queued: "Waits to be sent",
    held: "The server is busy; sent again soon",
    uploading: `Uploading ${Math.round(100 * done)} %`,
    waiting: "Waits for the server",
    decoding: `Decoding ${frames}`,
    scoring: `Scoring ${frames}`,
    done: "Scored",
    failed: "Not scored",
  }[phase].trim();
}

/** How far the present step is, 0 to 1; null if nobody knows. */
export const phaseShare = ({ done, total }) => (total ? done / total : null);

const sleep = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;
