/* One clock in frames for a video, and pictures of single frames.

   The server's preview holds one picture for each scored frame at a constant rate, so frame i is on screen from i/fps to
   (i+1)/fps, and a seek goes to the middle of that. */

import { clamp } from "./dom.js";

const THUMB = 160; // pixels, longest side of a picture kept for the tooltip
const KEPT = 300; // pictures

export class Player {
  constructor(video, frames, fps) {
    Object.assign(this, { video, frames, fps, frame: 0, listeners: [] });
    video.addEventListener("seeked", () => this.#follow(video.currentTime));
    if ("requestVideoFrameCallback" in video) {
      const presented = (_, { mediaTime }) => {
        this.#follow(mediaTime + 0.5 / fps);
        video.requestVideoFrameCallback(presented);
      };
      video.requestVideoFrameCallback(presented);
    } else {
      const tick = () => {
        if (video.paused) return;
        this.#follow(video.currentTime);
        requestAnimationFrame(tick);
      };
      video.addEventListener("play", tick);
    }
  }

  get last() { return this.frames - 1; }
  get playing() { return !this.video.paused && !this.video.ended; }

  /** Move the clock to the frame that is on screen at `seconds`; a seek under way already moved it. */
  #follow(seconds) {
    if (!this.video.seeking) this.#announce(clamp(Math.floor(seconds * this.fps + 1e-3), 0, this.last));
  }

  #announce(frame) {
    this.frame = frame;
    for (const listener of this.listeners) listener(frame);
  }

  seek(frame) {
    const target = clamp(Math.round(frame), 0, this.last);
    this.video.currentTime = (target + 0.5) / this.fps;
    this.#announce(target);
  }

  /** Pause, and go some frames on or back. */
  step(by) {
    this.toggle(false);
    this.seek(this.frame + by);
  }

  toggle(play = !this.playing) {
    if (!play) { this.video.pause(); return; }
    if (this.frame === this.last) this.seek(0);
    this.video.play().catch(() => {}); // a browser may refuse to play; the page then stays paused
  }
}

/** Draws frames of a video into canvases, out of sight: a second element seeks, so that the first plays on. */
export class Grabber {
  #wanted = new Map(); // canvas -> the frame it waits for; a later wish replaces an earlier one
  #pictures = new Map();
  #busy = false;

  constructor(video, fps) {
    Object.assign(this, { video, fps });
    video.addEventListener("loadeddata", () => this.#next());
  }

  draw(canvas, frame) {
    if (this.#pictures.has(frame)) { this.#wanted.delete(canvas); this.#paint(canvas, frame); return; }
    this.#wanted.set(canvas, frame);
    this.#next();
  }

  async #next() {
    if (this.#busy || !this.#wanted.size || this.video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) return;
    this.#busy = true;
    const frame = this.#wanted.values().next().value;
    await seeked(this.video, (frame + 0.5) / this.fps);
    if (this.#pictures.size >= KEPT) this.#pictures.delete(this.#pictures.keys().next().value);
    this.#pictures.set(frame, await picture(this.video));
    for (const [canvas, waits] of [...this.#wanted]) {
      if (waits === frame) { this.#wanted.delete(canvas); this.#paint(canvas, frame); }
    }
    this.#busy = false;
    this.#next();
  }

  #paint(canvas, frame) {
    const source = this.#pictures.get(frame);
    Object.assign(canvas, { width: source.width, height: source.height });
    canvas.getContext("2d").drawImage(source, 0, 0);
    canvas.dataset.frame = frame; // which frame is really there
  }
}

function seeked(video, seconds) {
  return new Promise((resolve) => {
    video.addEventListener("seeked", resolve, { once: true });
    video.currentTime = seconds;
  });
}

/** What a video shows now, as a small canvas. */
async function picture(video) {
  const shrink = Math.min(1, THUMB / Math.max(video.videoWidth, video.videoHeight));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(video.videoWidth * shrink));
  canvas.height = Math.max(1, Math.round(video.videoHeight * shrink));
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** The last picture of a video, for its card; `source` is an address. Rejects if it cannot be shown. */
export function lastPicture(source, frames, fps) {
  return new Promise((resolve, reject) => {
    const video = document.createElement("video");
    Object.assign(video, { muted: true, playsInline: true, preload: "auto", src: source });
    video.addEventListener("error", () => reject(new Error("no picture")));
    video.addEventListener("loadedmetadata", () => { video.currentTime = (frames - 0.5) / fps; });
    video.addEventListener("seeked", async () => {
      resolve(await picture(video));
      video.removeAttribute("src"); // lets the browser close its connection
      video.load();
    }, { once: true });
  });
}
