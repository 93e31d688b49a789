"""What a comparison of methods leaves to look at: a table, a page and a figure.

    OUT/compare.csv   a row a method: metrics, costs, settings; empty where a metric means nothing for the method
    OUT/compare.html  VOC with its controls; the same success and the same failure under every method; costs
    OUT/compare.svg   the curves for print (the paper's reward figure)

`comparison.html` holds the layout and the script; its style, drawing functions and player are those of `page.html`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table

from timerewarder.data.videos import Video
from timerewarder.errors import UserError
from timerewarder.evaluation.comparison import COSTS, Data, Entry, choose_methods, compare, read_options
from timerewarder.files import atomic, write_text
from timerewarder.progress import console
from timerewarder.report.clip import resize, shown_size
from timerewarder.report.page import METRICS, fill, poster_uri, sharing_page, video_uri
from timerewarder.report.plots import CURVE, FAINT, INK

COLOURS = {"held-out": CURVE, "failure": "#b35c00"}
WORDS = {"held-out": "success", "failure": "failure"}
COLUMNS = 4  # charts side by side in the figure
PICTURES = 12  # frames of a video above them
GAP = 3  # pixels between them


def compare_methods(
    methods: str, data: Data, out: Path, shared: Mapping[str, Any], options: Path | None = None
) -> dict[str, Any]:
    """Fit and measure the methods, then write the table, the page and the figure of those that worked.

    shared: options of all methods, such as encoder, minutes and seed; None is the method's own default.
    options: JSON file with those of single methods. If a method failed, UserError names it at the end.
    """
    given = {name: value for name, value in shared.items() if value is not None}
    entries = list(compare(choose_methods(methods), data, out, given, read_options(options)))
    good = [entry for entry in entries if entry.error is None]
    if good:
        console.print("Drawing the page")
        command = command_line(methods, data, out, {**given, "options": options})
        shown = data.shown()
        write_text(out / "compare.csv", table_text(entries, given, command))
        write_text(out / "compare.html", page_text(entries, shown, given, command))
        plot_curves(good, shown, out / "compare.svg")
        console.print(_summary(good))
    if len(good) < len(entries):
        raise UserError(_failures(entries, out))
    page = out / "compare.html"
    console.print(f"Open [bold]{page}[/] in a browser to compare them.", soft_wrap=True)
    return {"page": str(page), "methods": len(good), "rows": {entry.method: _row(entry) for entry in good}}


def command_line(methods: str, data: Data, out: Path, options: Mapping[str, Any]) -> str:
    """The command that makes the same comparison."""
    opening = data.opening
    words = ["timerewarder", "compare", "--methods", methods, "--train", *data.train, "--test", *data.test]
    words += ["--failures", *data.failures] if data.failures else []
    given = {**options, "fps": opening.fps, "camera": opening.camera, "task": opening.task}
    words += [w for name, v in given.items() if v is not None for w in (f"--{name.replace('_', '-')}", f"{v}")]
    return shlex.join([*words, *(["--skip-bad"] if opening.skip_bad else []), "--out", str(out)])


def _row(entry: Entry) -> dict[str, float | None]:
    return {**entry.metrics, **entry.costs}


def _failures(entries: Sequence[Entry], out: Path) -> str:
    failed = [entry for entry in entries if entry.error is not None]
    named = "; ".join(f"{entry.method}: {entry.error}" for entry in failed)
    left = "nothing is left to compare" if len(failed) == len(entries) else f"{out / 'compare.html'} shows the others"
    return f"{len(failed)} of {len(entries)} methods failed ({named}); {left}"


# --- table ------------------------------------------------------------------------------------------------------------


def table_text(entries: Sequence[Entry], options: Mapping[str, Any], command: str) -> str:
    """The rows as csv; failed methods have their reason and no numbers."""
    columns = ["method", *METRICS, "train_videos", "videos", "frames", *COSTS]
    columns += ["encoder", "minutes", "seed", "error", "command"]
    text = io.StringIO()
    table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    table.writeheader()
    for entry in entries:
        shared = {name: options.get(name) for name in ("minutes", "seed")}
        about = {"method": entry.method, "train_videos": entry.train_videos, "encoder": entry.encoder}
        row = {**about, **_row(entry), **shared, "error": entry.error, "command": command}
        table.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _summary(entries: Sequence[Entry]) -> Table:
    """The metrics for a terminal of 80 columns."""
    table = Table("method", *(name.replace("_", "\n") for name in METRICS), box=box.SIMPLE, padding=(0, 1, 0, 0))
    for entry in entries:
        numbers = (entry.metrics.get(name) for name in METRICS)
        table.add_row(entry.method, *("-" if value is None else f"{value:.3f}" for value in numbers))
    table.add_section()
    for name in ("constant", "perfect"):
        table.add_row(name, *(f"{getattr(metric, name):g}" for metric in METRICS.values()), style="dim")
    return table


# --- page -------------------------------------------------------------------------------------------------------------


def page_text(entries: Sequence[Entry], shown: Mapping[str, Video], options: Mapping[str, Any], command: str) -> str:
    """The whole page; `shown` are the videos whose curves are drawn."""
    good = [entry for entry in entries if entry.error is None]
    title = f"{len(good)} rewards on the same videos" if len(good) != 1 else f"{good[0].method} on held-out videos"
    data = {
        "title": title,
        "subtitle": _subtitle(good, options),
        "command": command,
        "metrics": [{"key": key, **dataclasses.asdict(metric)} for key, metric in METRICS.items()],
        "methods": [_method(entry) for entry in good],
        "failed": [{"name": entry.method, "error": entry.error} for entry in entries if entry.error is not None],
        "clips": [_clip(kind, video) for kind, video in shown.items()],
    }
    return fill(sharing_page("comparison.html", "header, metrics"), title, data)


def _subtitle(entries: Sequence[Entry], options: Mapping[str, Any]) -> str:
    first = entries[0]
    learned = f"Learned from {first.train_videos} videos, measured" if first.train_videos is not None else "Measured"
    time = f", {options['minutes']:g} min each" if options.get("minutes") is not None else ""
    encoders = " and ".join(sorted({entry.encoder for entry in entries if entry.encoder}))
    seed = f", seed {options['seed']}" if "seed" in options else ""
    return f"{learned} on {first.metrics['videos']} others; encoder {encoders}{time}{seed}"


def _method(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.method,
        "value": entry.is_value,
        "encoder": entry.encoder,
        "metrics": entry.metrics,
        "costs": entry.costs,
        "curves": {kind: [float(f"{v:.5g}") for v in curve] for kind, curve in curves_of(entry).items()},
    }


def curves_of(entry: Entry) -> dict[str, np.ndarray]:
    """Kind of video -> its value, or its step rewards without the first, which is 0 by definition, if it has none."""
    rewards = {kind: np.array(values) for kind, values in entry.rewards.items()}
    if entry.is_value:
        return {kind: values.cumsum() for kind, values in rewards.items()}
    return {kind: np.concatenate([[np.nan], values[1:]]) for kind, values in rewards.items()}


def _clip(kind: str, video: Video) -> dict[str, Any]:
    return {
        "name": video.name,
        "kind": kind,
        "word": WORDS[kind],
        "fps": video.fps,
        "length": len(video.frames),
        "video": video_uri(video.frames, video.fps),
        "poster": poster_uri(video.frames[0]),
    }


# --- figure -----------------------------------------------------------------------------------------------------------


def plot_curves(entries: Sequence[Entry], shown: Mapping[str, Video], path: Path) -> None:
    """Write an svg, png or pdf: a few frames of each video, and a chart a method with a line a video."""
    columns = min(COLUMNS, len(entries))
    rows = math.ceil(len(entries) / columns)
    width = max(4.6, 2.0 * columns)
    strips = {kind: film_strip(video.frames) for kind, video in shown.items()}
    heights = [width * strip.shape[0] / strip.shape[1] + 0.12 for strip, _ in strips.values()]
    figure = Figure(figsize=(width, sum(heights) + 1.5 * rows + 0.35), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[sum(heights), 1.5 * rows + 0.35], squeeze=False).flat
    for axes, (kind, strip) in zip(_stacked(top, heights), strips.items(), strict=True):
        _draw_strip(axes, kind, *strip)
    panels = list(bottom.subplots(rows, columns, sharex=True, squeeze=False).flat)
    for axes, entry in zip(panels, entries, strict=False):
        _draw_curves(axes, entry)
    for axes in panels[max(0, len(entries) - columns) : len(entries)]:
        axes.tick_params(labelbottom=True)  # also where the last row has no chart below
        axes.set_xlabel("frame", fontsize=7, color=INK)
    for axes in panels[len(entries) :]:
        axes.set_axis_off()
    handles = [Line2D([], [], color=COLOURS[kind], linewidth=1.5, label=WORDS[kind]) for kind in shown]
    bottom.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7.5, frameon=False)
    with atomic(path) as temporary:
        figure.savefig(temporary)


def _stacked(figure: SubFigure, heights: Sequence[float]) -> list[Axes]:
    return list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights).flat)


def film_strip(frames: np.ndarray) -> tuple[np.ndarray, dict[int, float]]:
    """Some frames side by side, uint8 (h, w, 3), and frame -> middle of its picture."""
    moments = np.linspace(0, len(frames) - 1, PICTURES).round().astype(int)
    size = shown_size(*frames.shape[1:3], lowest=84, highest=126)
    pictures = [np.pad(resize(frames[m], size), ((0, 0), (0, GAP), (0, 0)), constant_values=255) for m in moments]
    middles = (np.arange(PICTURES) * (size[1] + GAP) + size[1] / 2).tolist()
    return np.concatenate(pictures, axis=1), dict(zip(moments.tolist(), middles, strict=True))


def _draw_strip(axes: Axes, kind: str, strip: np.ndarray, middles: Mapping[int, float]) -> None:
    axes.imshow(strip, interpolation="antialiased")
    axes.set_xticks(list(middles.values()), labels=[str(frame) for frame in middles])
    axes.set_yticks([])
    axes.tick_params(length=0, labelsize=6, colors=INK, pad=1)
    axes.spines[:].set_visible(False)
    axes.set_ylabel(WORDS[kind], fontsize=7.5, color=COLOURS[kind])


def _draw_curves(axes: Axes, entry: Entry) -> None:
    axes.axhline(0, color=FAINT, linewidth=0.7, zorder=0)
    for kind, curve in curves_of(entry).items():
        axes.plot(curve, color=COLOURS[kind], linewidth=1.4 if entry.is_value else 0.9, solid_capstyle="round")
    axes.set_title(entry.method, fontsize=8, color=INK, parse_math=False, pad=3)
    axes.set_ylabel("value" if entry.is_value else "step reward", fontsize=7, color=INK)
    axes.tick_params(labelsize=6.5, colors=INK, length=2.5, width=0.6)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.get_offset_text().set_fontsize(6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
