/* Files out of drops and pickers: folders are searched to the bottom, what is no video is counted and left out. */

/** What the server reads; a mistake here is only an inconvenience, the server decides. */
export const SUFFIXES = ["mp4", "mov", "m4v", "webm", "mkv", "avi", "gif", "npy", "npz"];

const isVideo = (name) => SUFFIXES.includes(name.split(".").at(-1).toLowerCase());
const natural = new Intl.Collator("en", { numeric: true }).compare;

/** Sort and filter `[{ file, name }]`; hidden files are passed over without a word. */
function choose(found) {
  const seen = found.filter(({ file }) => !file.name.startsWith("."));
  const videos = seen.filter(({ file }) => isVideo(file.name));
  videos.sort((a, b) => natural(a.name, b.name));
  return { videos, others: seen.filter(({ file }) => !isVideo(file.name)).map(({ name }) => name) };
}

/** From an <input type="file">; a folder's files are named by their path below it. */
export function fromInput(input) {
  const found = [...input.files].map((file) => ({ file, name: label(file.webkitRelativePath) || file.name }));
  input.value = ""; // the same file can be chosen again
  return choose(found);
}

/** From a drop. The entries must be taken before the first await: the drop's data goes when its event ends. */
export async function fromDrop(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const entries = items.map((item) => item.webkitGetAsEntry?.());
  const files = items.map((item) => item.getAsFile());
  const found = [];
  for (const [i, entry] of entries.entries()) {
    if (entry?.isDirectory) await search(entry, found);
    else if (files[i]) found.push({ file: files[i], name: files[i].name });
  }
  return choose(found);
}

/** A path below the chosen folder as a name; not with slashes, of which the server keeps only what follows the last. */
const label = (path) => path.split("/").slice(1).join(" › ");

async function search(folder, found) {
  const reader = folder.createReader();
  for (;;) { // a reader gives at most a hundred entries at a time
    const entries = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!entries.length) return;
    for (const entry of entries) {
      if (entry.isDirectory) await search(entry, found);
      else found.push({ file: await new Promise((resolve, reject) => { entry.file(resolve, reject); }), name: label(entry.fullPath.slice(1)) });
    }
  }
}
