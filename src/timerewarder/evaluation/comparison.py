"""Many methods on the same videos: fit, measure and score each of them in a process of its own.

A process each, because peak memory is the process's, and because a method that fails or is killed must not lose the
others. What is finished stays in the folder: run again, an interrupted comparison goes on where it was.

    OUT/compare.json               the settings that all methods share; the mark of a comparison
    OUT/models/NAME                the model, with evaluation.json as `timerewarder evaluate` writes it
    OUT/models/NAME/cost.json      seconds and memory of its fit
    OUT/models/NAME/measured.json  metrics, costs and curves, and of what
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

from timerewarder import __version__, api
from timerewarder.config import differing_keys, nearest, to_dict
from timerewarder.data.source import AS_THEY_ARE, Opening
from timerewarder.data.store import open_store
from timerewarder.data.videos import Video, read_videos
from timerewarder.errors import UserError
from timerewarder.files import read_json, write_json
from timerewarder.models.checkpoint import CONFIG, WEIGHTS
from timerewarder.models.encoders import build_encoder
from timerewarder.progress import console
from timerewarder.rewards import METHODS, method_named, preset_config

SETTINGS, COST, MEASURED = "compare.json", "cost.json", "measured.json"
UNASKED = ("gvl",)  # not among `all`: it needs an endpoint
COSTS = ("fit_seconds", "frames_per_second", "model_megabytes", "peak_megabytes")
PATIENCE = 10  # seconds that a process has to end when it is asked to

Fingerprints = dict[str, str]  # set of videos -> hash of its frames


@dataclass(frozen=True)
class Data:
    """What is compared on: videos to learn from, held-out successes and failures to measure on."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    failures: tuple[str, ...] = ()
    opening: Opening = AS_THEY_ARE

    def shown(self) -> dict[str, Video]:
        """The first held-out video and the first failure, which every method scores for the page."""
        kinds = {"held-out": self.test, "failure": self.failures}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bad videos was spoken when the data was opened
            opened = {kind: read_videos(places, **vars(self.opening)) for kind, places in kinds.items() if places}
            return {kind: next(videos) for kind, videos in opened.items()}


@dataclass(frozen=True)
class Trial:
    """One method to be fitted and measured."""

    method: str
    config: Any
    data: Data
    folder: Path


@dataclass(frozen=True)
class Entry:
    """One method's row: what was measured, or why it could not be.

    metrics: as `evaluate` gives them, without the speed; None means nothing for this method.
    costs: COSTS; megabytes are 10^6 bytes, None was not measured.
    rewards: kind of video -> step rewards of the one that is shown.
    train_videos: how many it learned from.
    """

    method: str
    encoder: str | None
    is_value: bool = True
    metrics: dict[str, float | None] = dataclasses.field(default_factory=dict)
    costs: dict[str, float | None] = dataclasses.field(default_factory=dict)
    rewards: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    train_videos: int | None = None
    error: str | None = None


def choose_methods(names: str) -> tuple[str, ...]:
    """`a,b,c` -> names of METHODS, each once; `all` stands for all that need no endpoint."""
    words = [word for part in names.split(",") if (word := part.strip())]
    if not words:
        raise UserError(f"no methods given: pass --methods all, or some of {','.join(METHODS)}")
    every = [name for name in METHODS if name not in UNASKED]
    given = tuple(dict.fromkeys(name for word in words for name in (every if word == "all" else [word])))
    for name in given:
        method_named(name)
    return given


def read_options(file: Path | None) -> dict[str, dict[str, Any]]:
    """Method -> options of its own, from a JSON file such as {"gvl": {"model": "..."}}; without a file none."""
    values = read_json(file) if file is not None else {}
    if not isinstance(values, dict) or not all(isinstance(value, dict) for value in values.values()):
        raise UserError(f'{file} must hold options by method, such as {{"gvl": {{"model": "..."}}}}')
    for name in values:
        method_named(name)
    return values


def configure(method: str, shared: dict[str, Any], own: dict[str, Any]) -> Any:
    """The method's defaults with those of the shared options that it has, and with its own."""
    config = preset_config(method)
    known = _options(config)
    return api.with_options(config, {**{n: v for n, v in shared.items() if n in known}, **own}).resolved()


def compare(
    methods: Sequence[str],
    data: Data,
    out: Path,
    shared: dict[str, Any],
    own: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> Iterator[Entry]:
    """Fit and measure the methods one after the other, each with its defaults and the given options.

    `shared` are fields of the methods' Config or of their training; a method without a field goes without. `own` are
    those of single methods. All mistakes in the input raise UserError before anything is written; a method that fails
    is an entry with `error`.
    """
    configs = {method: configure(method, shared, own.get(method, {})) for method in methods}
    _check_options(shared, configs)
    _check_folder(out)
    videos = _open(data, shared)
    settings = {"train": videos["train"], "fps": data.opening.fps, **shared}
    _check_settings(out, settings)
    write_json(out / SETTINGS, {"kind": "comparison", "settings": settings})
    for number, (method, config) in enumerate(configs.items(), start=1):
        console.print(f"[bold]{number}/{len(configs)}[/] {method}", highlight=False)
        trial = Trial(method, config, data, out / "models" / method)
        yield _measured_before(trial, videos) or _measure_anew(trial, videos)


def peak_megabytes() -> float | None:
    """The most memory that this process has held so far, resident, in 10^6 bytes; None where it cannot be told.

    On Linux not by getrusage, whose peak begins with that of the parent, from before the program was started.
    """
    status = Path("/proc/self/status")
    if status.exists():
        peak = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.M)
        return int(peak[1]) * 1024 / 1e6 if peak else None
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return None


def _options(config: Any) -> set[str]:
    """The fields of a configuration, those of its training included."""
    parts = (config, config.training) if hasattr(config, "training") else (config,)
    return {field.name for part in parts for field in dataclasses.fields(part)}


# --- before anything is written ---------------------------------------------------------------------------------------


def _check_options(options: dict[str, Any], configs: dict[str, Any]) -> None:
    known = set[str]().union(*map(_options, configs.values()))
    for name in options:
        if name not in known:
            raise UserError(f"no method has an option {name!r}{nearest(name, known)}")


def _check_folder(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / SETTINGS).exists():
        raise UserError(f"{out} exists and is not a comparison: choose another --out")


def _check_settings(out: Path, settings: dict[str, Any]) -> None:
    if not (out / SETTINGS).exists():
        return
    saved = read_json(out / SETTINGS)
    if not isinstance(saved, dict) or saved.get("kind") != "comparison":
        raise UserError(f"{out / SETTINGS} is not that of a comparison: choose another --out")
    different = differing_keys(saved["settings"], settings)
    if different:
        raise UserError(f"{out} holds a comparison with other settings ({', '.join(different)}): choose another --out")


def _open(data: Data, shared: dict[str, Any]) -> Fingerprints:
    """Decode all videos, so that no method pays for it."""
    encoder, weights, size = (shared.get(name) for name in ("encoder", "encoder_weights", "image_size"))
    pre = build_encoder(encoder or "small", weights, size).preprocessing
    sets = {"train": data.train, "test": data.test, **({"failures": data.failures} if data.failures else {})}
    return {name: open_store(places, pre.size, pre.how, data.opening).fingerprint for name, places in sets.items()}


# --- one method -------------------------------------------------------------------------------------------------------


def _measured_before(trial: Trial, videos: Fingerprints) -> Entry | None:
    """The entry of an earlier run, if it is of the same model and the same videos."""
    if not (trial.folder / MEASURED).exists():
        return None
    saved = read_json(trial.folder / MEASURED)
    if saved["identity"] != _identity(trial, videos):
        return None
    console.print(f"already measured in {trial.folder}", highlight=False, soft_wrap=True)
    return Entry(**saved["entry"])


def _measure_anew(trial: Trial, videos: Fingerprints) -> Entry:
    found = _in_own_process(trial)
    if isinstance(found, Entry):
        write_json(trial.folder / MEASURED, {"identity": _identity(trial, videos), "entry": dataclasses.asdict(found)})
        return found
    console.print(f"failed: {found}", style="red", highlight=False, soft_wrap=True, markup=False)
    return Entry(trial.method, getattr(trial.config, "encoder", None), error=found)


def _identity(trial: Trial, videos: Fingerprints) -> dict[str, Any]:
    """What a measurement is of: the configuration, the videos, and the model as it is now."""
    weights = (trial.folder / WEIGHTS).stat() if (trial.folder / WEIGHTS).exists() else None
    model = weights and [weights.st_size, weights.st_mtime_ns]
    found = {"version": __version__, "config": to_dict(trial.config), "videos": videos, "weights": model}
    return json.loads(json.dumps(found))  # as it reads from a file: tuples are lists


def _in_own_process(trial: Trial) -> Entry | str:
    """The entry, or why there is none."""
    context = multiprocessing.get_context("spawn")  # a fork would begin with this process's memory
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, trial), daemon=True)
    process.start()
    sender.close()
    try:
        found: Entry | str | None = receiver.recv()
    except EOFError:  # it ended without a word
        found = None
    except BaseException:
        process.terminate()
        process.join(PATIENCE)
        process.kill()
        raise
    process.join()
    return _last_words(process.exitcode) if found is None else found


def _last_words(code: int | None) -> str:
    killed = ", killed: perhaps there was too little memory" if code == -9 else ""
    return f"its process ended with code {code}{killed}"


def _work(sender: Connection, trial: Trial) -> None:
    """What the process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, which then asks this one to end
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.showwarning = lambda message, *_: console.print(
        f"warning: {message}", style="yellow", highlight=False, soft_wrap=True, markup=False
    )
    warnings.filterwarnings("ignore", message="skipped ")  # said when the data was opened
    try:
        _fit(trial)
        sender.send(_measure(trial))
    except UserError as error:
        sender.send(str(error))
    except Exception as error:
        traceback.print_exc()
        sender.send(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    """A killed parent tells nobody; two fits into one folder would disturb each other."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _fit(trial: Trial) -> None:
    """Fit, and note what it cost; a model that is there is kept, with its note."""
    finished, earlier = (trial.folder / CONFIG).exists(), _seconds_before(trial.folder)
    started = time.monotonic()
    api.fit(trial.data.train, trial.folder, method=trial.method, config=trial.config, **vars(trial.data.opening))
    if not finished:
        seconds = earlier + time.monotonic() - started
        write_json(trial.folder / COST, {"fit_seconds": seconds, "peak_megabytes": peak_megabytes()})


def _seconds_before(folder: Path) -> float:
    """How long the training that is about to be resumed has taken so far."""
    state = folder / "training" / "state.json"
    return float(read_json(state)["progress"]["seconds"]) if state.exists() else 0.0


def _measure(trial: Trial) -> Entry:
    metrics = api.evaluate_model(trial.folder, trial.data.test, trial.data.failures, **vars(trial.data.opening))
    speed = metrics.pop("frames_per_second")
    cost = read_json(trial.folder / COST) if (trial.folder / COST).exists() else {}
    size = sum((trial.folder / name).stat().st_size for name in (CONFIG, WEIGHTS))
    reward = api.load(trial.folder)
    return Entry(
        method=trial.method,
        encoder=getattr(trial.config, "encoder", None),
        is_value=reward.is_value,
        metrics=metrics,
        costs={
            "fit_seconds": cost.get("fit_seconds"),
            "frames_per_second": speed,
            "model_megabytes": size / 1e6,
            "peak_megabytes": cost.get("peak_megabytes"),
        },
        rewards={kind: reward.score(video.frames).tolist() for kind, video in trial.data.shown().items()},
        train_videos=reward.record.get("videos"),
    )
