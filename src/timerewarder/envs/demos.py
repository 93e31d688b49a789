"""Collects demonstrations of a Meta-World task: a folder of videos, an index, and the actions and states beside them.

    episode_00000.mp4          frames: the first after the reset, then one after each agent step
    episode_00000.safetensors  `actions` (T-1, 4): action t leads from frame t to frame t+1;
                               `observations` (T, 39) with the goal left out; `simulator` (T, nq+nv) joint positions and
                               velocities; `task_rewards` (T,) and `success` (T,) of arriving at frame t
    index.json                 the settings, and a row for each episode

A successful episode ends at its first successful frame, or, with `full_length`, goes on standing still to the horizon;
a failed one goes to the horizon. Attempt after attempt is made, each with a seed that follows from its number, until
enough were kept; so the folder depends neither on how many processes work on it nor on how often it was interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from timerewarder.data.videos import write_video
from timerewarder.envs import tasks
from timerewarder.envs.metaworld import MetaWorld
from timerewarder.envs.policies import POLICIES, Action
from timerewarder.errors import UserError
from timerewarder.files import atomic, read_json, write_json
from timerewarder.progress import bar

FORMAT = 1
KEEP = ("success", "failure", "all")
FPS = 20.0  # half of real time with an action repeat of 2: an episode lasts a second and a half, too quick to watch
GIVE_UP = 100  # attempts in a row of which none was kept
EPISODES_PER_WORKER = 15  # a process needs about as long to start as to collect this many

# What to try when no attempt was kept.
REMEDIES = {
    ("expert", "failure"): "the expert hardly ever fails here; use the policy noisy",
    ("expert", "success"): "the expert does not solve this; check horizon, action repeat and ranges",
    ("noisy", "success"): "use the policy expert",
    ("noisy", "failure"): "use the policy random",
    ("random", "success"): "use the policy expert",
}


@dataclass(frozen=True)
class Settings:
    """What the episodes of a folder depend on, besides their number."""

    task: str
    seed: int
    size: int
    policy: str
    keep: str
    camera: str
    render: str
    full_length: bool
    action_repeat: int
    ranges: str
    horizon: int
    fps: float


@dataclass(frozen=True)
class Row:
    """One episode in the index; `length` is in frames."""

    file: str
    trajectory: str
    task: str
    policy: str
    attempt: int
    seed: int
    success: bool
    success_at_end: bool
    length: int


def collect(
    task: str,
    episodes: int,
    out: Path | str,
    seed: int = 0,
    size: int = 84,
    policy: str = "expert",
    keep: str = "success",
    camera: str | None = None,
    render: str = "fast",
    full_length: bool = False,
    action_repeat: int = 2,
    ranges: str = "wide",
    horizon: int | None = None,
    fps: float = FPS,
    workers: int | None = None,
) -> dict[str, Any]:
    """Fill the folder `out` with `episodes` demonstrations, going on from those already there; returns a summary."""
    known = tasks.task(task)
    settings = Settings(
        task=known.name,
        seed=seed,
        size=size,
        policy=policy,
        keep=keep,
        camera=tasks.camera(camera or known.camera).name,
        render=render,
        full_length=full_length,
        action_repeat=action_repeat,
        ranges=ranges,
        horizon=known.horizon if horizon is None else horizon,
        fps=fps,
    )
    _check(settings, episodes)
    out = Path(out)
    rows = _rows_so_far(out, settings)
    started = time.perf_counter()
    new = episodes - len(rows)
    if new > 0:
        processes = _workers(workers, new)
        _write_index(out, settings, rows)
        try:
            _go_on(out, settings, rows, episodes, processes)
        finally:
            _tidy(out, rows)
    return {
        "out": str(out),
        "task": settings.task,
        "policy": settings.policy,
        "keep": settings.keep,
        "episodes": len(rows),
        "new": max(new, 0),
        "attempts": rows[-1].attempt + 1,
        "successes": sum(row.success for row in rows),
        "frames": sum(row.length for row in rows),
        "seconds": round(time.perf_counter() - started, 2),
    }


def read_index(folder: Path, task: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The settings and the episodes of a folder that `collect` wrote of this task."""
    if not (folder / "index.json").exists():
        raise UserError(f"{folder} has no index.json: give a folder that `timerewarder demos` wrote")
    index = read_json(folder / "index.json")
    if index["settings"]["task"] != task:
        raise UserError(f"{folder} shows {index['settings']['task']}, not {task}: record demonstrations of {task}")
    return index["settings"], index["episodes"]


def attempt_seed(seed: int, attempt: int) -> int:
    """The seed of an attempt's environment; different for every pair (seed, attempt), as far as 63 bits allow."""
    return int(np.random.SeedSequence([seed, attempt]).generate_state(1, np.uint64)[0] >> 1)


def _check(settings: Settings, episodes: int) -> None:
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}")
    if settings.seed < 0:
        raise UserError(f"seed must not be negative, not {settings.seed}")
    if settings.policy not in POLICIES:
        raise UserError(f"unknown policy {settings.policy!r}: choose one of {', '.join(POLICIES)}")
    if settings.keep not in KEEP:
        raise UserError(f"cannot keep {settings.keep!r}: choose one of {', '.join(KEEP)}")
    tasks.task(settings.task).ranges(settings.ranges)


def _workers(asked: int | None, episodes: int) -> int:
    if asked is not None:
        if asked < 1:
            raise UserError(f"workers must be at least 1, not {asked}")
        return min(asked, episodes)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 4, math.ceil(episodes / EPISODES_PER_WORKER))


# --- the folder -------------------------------------------------------------------------------------------------------


def _rows_so_far(out: Path, settings: Settings) -> list[Row]:
    """The episodes that are there already, up to the first whose files are missing."""
    if not (out / "index.json").exists():
        if out.exists() and (not out.is_dir() or any(not file.name.startswith(".") for file in out.iterdir())):
            raise UserError(f"{out} exists and is no folder of demonstrations: choose another folder")
        return []
    index = read_json(out / "index.json")
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise UserError(
            f"{out}/index.json is not of format {FORMAT}: choose another folder, or a newer version of this"
        )
    found, wanted = index["settings"], asdict(settings)
    other = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    if other:
        listed = ", ".join(f"{key} {found.get(key)!r} instead of {wanted.get(key)!r}" for key in other)
        raise UserError(
            f"{out} holds demonstrations with other settings ({listed}): choose another folder, or the same"
        )
    rows = [Row(**row) for row in index["episodes"]]
    whole = [(out / row.file).exists() and (out / row.trajectory).exists() for row in rows]
    return list(itertools.compress(rows, itertools.accumulate(whole, lambda before, now: before and now)))


def _write_index(out: Path, settings: Settings, rows: list[Row]) -> None:
    index = {
        "format": FORMAT,
        "settings": asdict(settings),
        "seconds_per_frame": tasks.STEP_SECONDS * settings.action_repeat,  # of simulated time
        "attempts": rows[-1].attempt + 1 if rows else 0,
        "episodes": [asdict(row) for row in rows],
    }
    write_json(out / "index.json", index)


def _go_on(out: Path, settings: Settings, rows: list[Row], episodes: int, workers: int) -> None:
    """Append to `rows`, and to the folder, until there are `episodes`."""
    first = rows[-1].attempt + 1 if rows else 0
    last_kept = first - 1
    with bar() as progress, _attempts(out, settings, first, workers) as attempts:
        description = f"{settings.task} {settings.policy}"
        display = progress.add_task(description, total=episodes, completed=len(rows), note="")
        for number, row in zip(itertools.count(first), attempts, strict=False):
            if row is None:
                if number - last_kept >= GIVE_UP:
                    raise _hopeless(out, settings, rows, episodes)
                continue
            last_kept = number
            name = f"episode_{len(rows):05d}"
            row = replace(row, file=f"{name}.mp4", trajectory=f"{name}.safetensors")
            # Whatever is renamed but not yet in the index is made again, the same, after a kill between these lines.
            os.replace(_scratch(out, number, "safetensors"), out / row.trajectory)
            os.replace(_scratch(out, number, "mp4"), out / row.file)
            rows.append(row)
            _write_index(out, settings, rows)
            progress.update(display, completed=len(rows), note=f"{number + 1} attempts")
            if len(rows) == episodes:
                return


def _hopeless(out: Path, settings: Settings, rows: list[Row], episodes: int) -> UserError:
    wanted = "episode" if settings.keep == "all" else settings.keep
    remedy = REMEDIES.get((settings.policy, settings.keep), "use another policy")
    state = f"{len(rows)} of {episodes} are in {out}" if rows else "nothing was written"
    return UserError(
        f"policy {settings.policy} on {settings.task}: no {wanted} in {GIVE_UP} attempts ({state}): {remedy}"
    )


def _tidy(out: Path, rows: list[Row]) -> None:
    """Remove what unfinished attempts left, and the folder itself if it holds no episode."""
    for pattern in (".attempt_*", ".*.tmp.*"):  # the second are half-written files of a killed process
        for leftover in out.glob(pattern):
            leftover.unlink(missing_ok=True)
    if not rows and out.exists() and [file.name for file in out.iterdir()] == ["index.json"]:
        (out / "index.json").unlink()
        out.rmdir()


def _scratch(out: Path, attempt: int, suffix: str) -> Path:
    """Where an attempt is written before it is known which episode it becomes; hidden from readers of videos."""
    return out / f".attempt_{attempt:06d}.{suffix}"


# --- one attempt ------------------------------------------------------------------------------------------------------


def _attempt(env: MetaWorld, settings: Settings, out: Path, number: int) -> Row | None:
    """Roll out one episode; if it is to be kept, write it to its scratch files and return its row."""
    seed = attempt_seed(settings.seed, number)
    frames, arrays = _roll_out(env, settings, seed)
    success = bool(arrays["success"].any())
    if settings.keep == ("failure" if success else "success"):
        return None
    with atomic(_scratch(out, number, "safetensors")) as temporary:
        temporary.write_bytes(save(arrays))
    write_video(_scratch(out, number, "mp4"), frames, settings.fps)
    return Row(
        file="",
        trajectory="",
        task=settings.task,
        policy=settings.policy,
        attempt=number,
        seed=seed,
        success=success,
        success_at_end=bool(arrays["success"][-1]),
        length=len(frames),
    )


def _roll_out(env: MetaWorld, settings: Settings, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Frames uint8 (T, size, size, 3) and the arrays of the side file."""
    observation, _ = env.reset(seed=seed)
    act = POLICIES[settings.policy](np.random.default_rng([seed, 1]), env.episode_steps)
    frames, observations, states = [env.render()], [observation], [env.simulator_state()]
    actions: list[Action] = []
    task_rewards, success = [0.0], [False]
    for step in range(env.episode_steps):
        # After success stand still, the grip as it was.
        action = np.array([0, 0, 0, actions[-1][3]], np.float32) if any(success) else act(env, step)
        observation, reward, _, _, info = env.step(action)
        frames.append(env.render())
        observations.append(observation)
        states.append(env.simulator_state())
        actions.append(action)
        task_rewards.append(reward)
        success.append(info["success"])
        if info["success"] and not settings.full_length:
            break
    return np.stack(frames), {
        "actions": np.stack(actions),
        "observations": np.stack(observations),
        "simulator": np.stack(states),
        "task_rewards": np.array(task_rewards, np.float32),
        "success": np.array(success),
    }


def _environment(settings: Settings) -> MetaWorld:
    return MetaWorld(
        settings.task,
        camera=settings.camera,
        size=settings.size,
        action_repeat=settings.action_repeat,
        ranges=settings.ranges,
        render=settings.render,
        horizon=settings.horizon,
    )


# --- many attempts, in order ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _attempts(out: Path, settings: Settings, first: int, workers: int) -> Iterator[Iterator[Row | None]]:
    """The results of attempts `first`, `first + 1`, ... without end, made here or by `workers` processes."""
    if workers == 1:
        with contextlib.closing(_environment(settings)) as env:
            yield (_attempt(env, settings, out, number) for number in itertools.count(first))
        return
    context = multiprocessing.get_context("spawn")  # an OpenGL context does not survive a fork
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(os.getpid(),))
    try:
        yield _in_order(lambda number: pool.submit(_attempt_in_worker, settings, out, number), first, 2 * workers)
    except BrokenProcessPool as error:
        raise UserError(
            f"a process that records for {out} was killed or could not start: if memory is short, give --workers 1; "
            'a script has to record under `if __name__ == "__main__":`'
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(submit: Callable[[int], Future[Row | None]], first: int, ahead: int) -> Iterator[Row | None]:
    """Results in the order of the attempts, with `ahead` of them under way."""
    numbers = itertools.count(first)
    waiting = [submit(next(numbers)) for _ in range(ahead)]
    while True:
        yield waiting.pop(0).result()
        waiting.append(submit(next(numbers)))


def _start_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # As many processes as cores: Mesa's own drawing threads would only get in each other's way.
    os.environ.setdefault("LP_NUM_THREADS", "0")

    def follow() -> None:
        # A killed parent tells nobody; without this its workers would wait for work for ever.
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _attempt_in_worker(settings: Settings, out: Path, number: int) -> Row | None:
    return _attempt(_worker_environment(settings), settings, out, number)


_worker_environment = functools.cache(_environment)
