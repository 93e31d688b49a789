"""One self-contained HTML page about a learned reward: metrics, scored videos, distances, training, configuration.

Everything the page shows goes into it as one JSON object; `page.html` holds the layout and the script that draws it.
Nothing is fetched: the videos are inside, as base64 mp4.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from timerewarder.data.videos import write_video
from timerewarder.files import write_text
from timerewarder.report.clip import Clip, resize, shown_size

LOWEST, HIGHEST = 252, 360  # pixels, height of the videos on the page; 252 is 3 x 84
LARGEST_MATRIX = 200  # frames; a longer video's matrix is thinned to that many, evenly


@dataclass(frozen=True)
class Metric:
    """How to read one metric: what it means, what a perfect model and what a constant positive reward get."""

    label: str
    meaning: str
    perfect: float
    constant: float
    scale: tuple[float, float] = (-1, 1)  # the ends of the little scale beside the value


METRICS = {
    "voc": Metric(
        "VOC",
        "Rank correlation of the running sum of rewards with time. "
        "Any constant positive reward gets a perfect 1, so it is no evidence alone.",
        perfect=1,
        constant=1,
    ),
    "voc_from_first": Metric(
        "VOC from the first frame",
        "Rank correlation with time of the distance predicted from the first frame to each frame.",
        perfect=1,
        constant=0,
    ),
    "voc_reversed": Metric(
        "VOC of reversed videos",
        "The same videos played backwards: undoing the task must cost reward.",
        perfect=-1,
        constant=1,
    ),
    "frozen_sum": Metric(
        "Sum over a frozen video",
        "Rewards of one frame repeated for a whole video: standing still must earn nothing.",
        perfect=0,
        constant=1,
        scale=(0, 1),
    ),
    "pair_mae": Metric(
        "Distance error",
        "Mean absolute error of the predicted signed distance over all pairs of frames; a whole video is 1.",
        perfect=0,
        constant=0.33,
        scale=(0, 1),
    ),
    "adjacent_sign_accuracy": Metric(
        "Direction of one step",
        "Share of neighbouring frames, in both orders, whose predicted distance has the right sign.",
        perfect=1,
        constant=0.5,
        scale=(0, 1),
    ),
    "success_auroc": Metric(
        "Success against failure",
        "Probability that a random success ends with a higher value than a random failure (area under the ROC curve).",
        perfect=1,
        constant=0.5,
        scale=(0, 1),
    ),
}

# Key -> label of numbers that say what was measured, not how well it went.
COUNTS = {"videos": "held-out videos", "frames": "frames", "frames_per_second": "frames scored a second"}

# Kind -> heading, what to look for, the value a perfect reward ends with (None: no single right answer).
KINDS: dict[str, tuple[str, str, float | None]] = {
    "held-out": ("Held-out successes", "Never trained on. The curve should climb to 1.", 1),
    "failure": ("Failures", "The task is not done. The curve should stay below the successes.", None),
    "reversed": ("Reversed", "Held-out successes played backwards. The curve should fall to −1.", -1),
}


def write_page(
    path: Path | str,
    *,
    title: str,
    metrics: Mapping[str, float | int | None],
    clips: Sequence[Clip],
    config: Mapping[str, Any],
    log: Sequence[Mapping[str, float | None]] = (),
    subtitle: str = "",
    model: str = "",
    command: str = "",
    final_values: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Write the page, atomically.

    metrics: as `timerewarder evaluate` gives them; keys this page does not know are shown plainly.
    config: the resolved configuration; nested mappings and dataclasses are fine.
    log: one row an entry of the training log; `frames` (or `step`) is the x axis, every other number gets a chart.
    command: the command that made the page.
    final_values: kind -> video name -> last value of its progress, of every video that was evaluated; without it, of
        the clips on the page.
    """
    data = {
        "title": title,
        "subtitle": subtitle,
        "model": model,
        "command": command,
        "metrics": [_metric(key, value) for key, value in metrics.items() if key not in COUNTS],
        "counts": [{"label": label, "value": metrics[key]} for key, label in COUNTS.items() if key in metrics],
        "auroc": metrics.get("success_auroc"),
        "kinds": _kinds([clip.kind for clip in clips] + list(final_values or ())),
        "clips": [_clip(clip) for clip in clips],
        "finals": _finals(clips) if final_values is None else final_values,
        "log": log,
        "config": config,
    }
    write_text(path, fill(read_template("page.html"), title, data))


def _metric(key: str, value: Any) -> dict[str, Any]:
    known = dataclasses.asdict(METRICS[key]) if key in METRICS else {"label": key}
    return {"key": key, "value": value, **known}


def _kinds(present: Sequence[str]) -> list[dict[str, Any]]:
    """The kinds to show, known ones first and in their order."""
    order = [kind for kind in KINDS if kind in present] + [kind for kind in dict.fromkeys(present) if kind not in KINDS]
    known = [KINDS.get(kind, (kind, "", None)) for kind in order]
    return [
        {"kind": kind, "label": label, "note": note, "ideal": ideal}
        for kind, (label, note, ideal) in zip(order, known, strict=True)
    ]


def _finals(clips: Sequence[Clip]) -> dict[str, dict[str, float]]:
    finals: dict[str, dict[str, float]] = {}
    for clip in clips:
        finals.setdefault(clip.kind, {})[clip.name] = float(clip.progress[-1])
    return finals


def _clip(clip: Clip) -> dict[str, Any]:
    return {
        "name": clip.name,
        "kind": clip.kind,
        "fps": clip.fps,
        "unit": max(2, clip.unit or len(clip.frames)),
        "video": video_uri(clip.frames, clip.fps),
        "poster": poster_uri(clip.frames[0]),
        "rewards": _short(clip.rewards),
        "progress": _short(clip.progress),
        "distances": None if clip.distances is None else _matrix(clip.distances),
    }


def video_uri(frames: np.ndarray, fps: float) -> str:
    """The frames as a data URI of an mp4, at a size that looks well in a browser."""
    size = shown_size(*frames.shape[1:3], lowest=LOWEST, highest=HIGHEST)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clip.mp4"
        write_video(file, (resize(frame, size) for frame in frames), fps, quality="web")
        return data_uri("video/mp4", file.read_bytes())


def poster_uri(frame: np.ndarray) -> str:
    """A still for as long as the browser has not decoded the video; phones wait until it plays."""
    size = shown_size(*frame.shape[:2], lowest=LOWEST, highest=HIGHEST)
    file = io.BytesIO()
    Image.fromarray(resize(frame, size)).save(file, "jpeg", quality=80)
    return data_uri("image/jpeg", file.getvalue())


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _matrix(distances: np.ndarray) -> dict[str, Any]:
    """Distances as int16 steps of `unit`, little-endian base64: a tenth of their size as text. -32768 means none."""
    frames = np.linspace(0, len(distances) - 1, min(len(distances), LARGEST_MATRIX)).round().astype(int)
    values = distances[np.ix_(frames, frames)].astype(np.float64)
    finite = np.isfinite(values)
    unit = max(1.0, float(np.max(np.abs(values), initial=0, where=finite))) / 32767
    steps = np.where(finite, np.where(finite, values, 0) / unit, -32768).round().astype("<i2")
    return {"frames": frames, "unit": unit, "steps": base64.b64encode(steps.tobytes()).decode()}


def _short(values: np.ndarray) -> list[float]:
    """Five decimals: finer than a pixel, and half the text."""
    return [round(float(value), 5) for value in values]


def read_template(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def sharing_page(name: str, end: str) -> str:
    """A template with the style of `page.html` and its functions up to the heading `end`, which are written once."""
    page = read_template("page.html")
    style = page[page.index("<style>") + len("<style>") : page.index("</style>")]
    tools = page[page.index("/* ---- small tools") : page.index(f"/* ---- {end}")]
    return read_template(name).replace("{{ style }}", style).replace("{{ tools }}", tools)


def fill(template: str, title: str, data: Mapping[str, Any]) -> str:
    """Put the title and the data into the template; neither can end its element, whatever it contains."""
    # `<` written as \u003c is the same JSON, but can never open or close a tag or a comment.
    text = json.dumps(_plain(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    fields = {"title": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(), "data": text}
    return re.sub(r"\{\{ (title|data) \}\}", lambda match: fields[match[1]], template)


def _plain(value: Any) -> Any:
    """What JSON can hold: NaN and infinities become null, arrays lists, paths and unknown things text."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    return str(value)
