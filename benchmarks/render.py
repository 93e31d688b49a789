"""How much faster frames are drawn than by Meta-World's own renderer, and how much they differ: ratios of one run.

    python benchmarks/render.py [--size 84] [--tasks drawer-open ...] [--json] [--out FILE]

For each task the same states of an expert's episode are drawn from the task's camera by
- `default`: Meta-World's `env.render()`, its camera moved to the same place;
- `plain`: shadows, reflections and multisampling off, nothing outside the view, every mesh face;
- `fast`: what this package draws by default: as `plain`, with decimated meshes.
Speeds are medians over frames, the three taking turns so that other load on the machine hits them alike.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from timerewarder.envs.metaworld import MetaWorld
from timerewarder.envs.rendering import Renderer, orthonormal
from timerewarder.envs.simulator import ENVIRONMENTS, mujoco
from timerewarder.envs.tasks import CAMERAS, TASKS, Camera
from timerewarder.files import write_json
from timerewarder.progress import track

Draw = Callable[[], np.ndarray]


def default_renderer(env: MetaWorld, size: int) -> tuple[Any, Draw]:
    """Meta-World's own environment in the state of `env`, and its `render`."""
    own = ENVIRONMENTS[f"{env.task.name}-v3"](render_mode="rgb_array", camera_name="corner", width=size, height=size)
    place(own.model, env.camera)

    def draw() -> np.ndarray:
        for name in ("body_pos", "site_pos"):
            getattr(own.model, name)[:] = getattr(env.env.model, name)
        own.data.qpos[:], own.data.mocap_pos[:] = env.env.data.qpos, env.env.data.mocap_pos
        for compute in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_camlight):
            compute(own.model, own.data)
        if own.mujoco_renderer.viewer is not None:  # Gymnasium draws into whichever context was used last
            own.mujoco_renderer.viewer.make_context_current()
        picture = own.render()
        return picture[::-1] if env.camera.flip else picture

    return own, draw


def place(model: Any, camera: Camera) -> None:
    """Move the model's camera `corner` to where `camera` is."""
    corner = model.camera("corner").id
    model.cam_pos[corner], model.cam_fovy[corner] = camera.pos, camera.fovy
    mujoco.mju_mat2Quat(model.cam_quat[corner], orthonormal(camera.xyaxes).ravel())


def measure(task: str, size: int, states: int) -> dict[str, float]:
    env = MetaWorld(task, size=size)
    own, default = default_renderer(env, size)
    plain, fast = (Renderer(env.env.model, env.camera, size, faces=faces) for faces in (None, 8_000))
    drawers: dict[str, Draw] = {
        "default": default,
        "plain": lambda: plain(env.env.data),
        "fast": lambda: fast(env.env.data),
    }
    seconds: dict[str, list[float]] = {name: [] for name in drawers}
    decimated, effects = [], []
    env.reset(seed=0)
    for _ in range(states):
        for _ in range(env.episode_steps // states):
            env.step(env.expert_action())
        pictures = {}
        for name, draw in drawers.items():
            draw()  # the first frame of a turn brings the renderer's data back into the caches
            for _ in range(1 if name == "default" else 10):
                started = time.perf_counter()
                pictures[name] = draw().astype(np.int16)
                seconds[name].append(time.perf_counter() - started)
        decimated.append(np.abs(pictures["fast"] - pictures["plain"]).mean())
        effects.append(np.abs(pictures["plain"] - pictures["default"]).mean())
    for closable in (own, plain, fast, env):
        closable.close()
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    return {
        "fast_vs_default": round(median["default"] / median["fast"], 1),
        "plain_vs_default": round(median["default"] / median["plain"], 1),
        "fast_vs_plain": round(median["plain"] / median["fast"], 1),
        "pixel_difference_fast_plain": round(float(np.mean(decimated)), 3),
        "pixel_difference_plain_default": round(float(np.mean(effects)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=84, help="pixels (default 84)")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK")
    parser.add_argument("--states", type=int, default=8, help="states of an episode to draw (default 8)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--out", type=Path, help="also write the JSON object to this file")
    arguments = parser.parse_args()

    rows = {task: measure(task, arguments.size, arguments.states) for task in track(arguments.tasks, "drawing")}
    mean = {key: round(float(np.mean([row[key] for row in rows.values()])), 3) for key in next(iter(rows.values()))}
    result = {"size": arguments.size, **mean, "tasks": rows}
    columns = ("fast/default", "plain/default", "|fast-plain|", "|plain-default|")
    print(f"{'task':<22}{'camera':<15}" + "".join(f"{column:>17}" for column in columns))
    for task, row in [*rows.items(), ("mean", mean)]:
        camera = CAMERAS[TASKS[task].camera].name if task in TASKS else ""
        print(
            f"{task:<22}{camera:<15}{row['fast_vs_default']:>16.1f}x{row['plain_vs_default']:>16.1f}x"
            f"{row['pixel_difference_fast_plain']:>17.2f}{row['pixel_difference_plain_default']:>17.2f}"
        )
    if arguments.out:
        write_json(arguments.out, result)
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
