/* The server, as functions. A 401 asks for the token once, for all requests that wait, and goes on. */

import { byId } from "./dom.js";

const KEPT = "timerewarder-token";
let asking = null;

/** Take the token out of an address such as /#token=SECRET, so that it stays neither in sight nor in the history. */
export function takeToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (!match) return;
  sessionStorage.setItem(KEPT, decoded(match[1]));
  history.replaceState(null, "", location.pathname);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone % is part of the token
  }
}

const token = () => sessionStorage.getItem(KEPT);
const headers = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

/** Ask for the token; `refused` is the one that was just tried. Resolves when there is another. */
function askToken(refused) {
  if (token() !== refused) return Promise.resolve(); // another request asked in the meantime
  asking ??= new Promise((resolve) => {
    const dialog = byId("ask");
    byId("ask-problem").hidden = refused === null;
    byId("token").value = "";
    const again = () => dialog.open || dialog.showModal(); // nothing works without it
    dialog.onclose = () => {
      const given = byId("token").value.trim();
      if (!given) { again(); return; }
      sessionStorage.setItem(KEPT, given);
      dialog.onclose = null;
      asking = null;
      resolve();
    };
    again();
  });
  return asking;
}

/** An error that has the server's own words. */
export class Refused extends Error {
  constructor(status, body, retryAfter = null) {
    super(body?.error?.message ?? `The server answered ${status}.`);
    this.status = status;
    this.code = body?.error?.code ?? "";
    this.retryAfter = retryAfter;
  }
}

const GONE = "The server does not answer: see whether it still runs, then reload this page.";

async function request(path, options = {}) {
  const used = token();
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: headers() });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { error: { code: "unreachable", message: GONE } });
  }
  if (answer.status === 401) {
    await askToken(used);
    return request(path, options);
  }
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null), answer.headers.get("Retry-After"));
  return answer;
}

const json = async (path, options) => (await request(path, options)).json();
const at = (id, rest = "") => `/v1/videos/${encodeURIComponent(id)}${rest}`;

export const models = async () => (await json("/v1/models")).models;
export const limits = () => json("/v1/limits");
export const videos = async () => (await json("/v1/videos")).videos;
export const video = (id) => json(at(id));
export const remove = (id) => request(at(id), { method: "DELETE" });
export const distances = (id, model) => json(at(id, `/distances?model=${encodeURIComponent(model)}`));
export const blob = async (path, options) => (await request(path, options)).blob();
export const previewPath = (id) => at(id, "/preview.mp4");

/** An address of the preview for a video element, which cannot send a token: then it is fetched first. */
export async function source(id) {
  if (!token()) return { url: previewPath(id), release: () => {} };
  const url = URL.createObjectURL(await blob(previewPath(id)));
  return { url, release: () => URL.revokeObjectURL(url) };
}

/** Where an export lies; `models` are the names that it is about. */
export function exportPath(id, file, models) {
  return at(id, `/${file}?${models.map((name) => `model=${encodeURIComponent(name)}`).join("&")}`);
}

/** Upload a file; `tell(share)` is called with how much of it has gone, 0 to 1. `signal` ends it early. */
export async function upload(file, name, fps, tell, signal) {
  const query = new URLSearchParams({ name, ...(fps ? { fps } : {}) });
  for (;;) {
    const used = token();
    const answer = await send(`/v1/videos?${query}`, file, tell, signal);
    if (answer.status === 401) await askToken(used);
    else if (answer.status >= 400 || !answer.body) throw new Refused(answer.status, answer.body, answer.retryAfter);
    else return answer.body;
  }
}

/** One POST by XMLHttpRequest, which unlike fetch tells how much has been sent. */
function send(path, file, tell, signal) {
  const { promise, resolve, reject } = deferred();
  const form = new FormData();
  form.append("video", file, "video");
  const call = new XMLHttpRequest();
  call.open("POST", path);
  call.responseType = "json";
  for (const [key, value] of Object.entries(headers())) call.setRequestHeader(key, value);
  call.upload.addEventListener("progress", (event) => { if (event.lengthComputable) tell(event.loaded / event.total); });
  call.addEventListener("load", () => resolve({
    status: call.status, body: call.response, retryAfter: call.getResponseHeader("Retry-After"),
  }));
  // A server that refuses in the middle of a body may close the connection before its answer is read.
  call.addEventListener("error", () => reject(new Refused(0, { error: { code: "unreachable", message: `The upload broke off. ${GONE}` } })));
  call.addEventListener("abort", () => reject(new DOMException("deleted", "AbortError")));
  signal.addEventListener("abort", () => call.abort());
  call.send(form);
  return promise;
}

function deferred() {
  let resolve, reject;
  const promise = new Promise((yes, no) => { [resolve, reject] = [yes, no]; });
  return { promise, resolve, reject };
}
