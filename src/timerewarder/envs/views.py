"""Where frames come from: an environment's own rendering, a camera by name, or a function."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from timerewarder.envs import tasks
from timerewarder.errors import UserError

Frame: TypeAlias = NDArray[np.uint8]
Camera: TypeAlias = str | Callable[[Any], Frame] | None


def view(env: gymnasium.Env[Any, Any], camera: Camera) -> Callable[[], Frame]:
    """What draws the present frame of `env`, uint8 (H, W, 3)."""
    base: Any = env.unwrapped
    name = type(base).__name__
    # Who has made one of our environments has imported its module; importing it here would load MuJoCo for nothing.
    metaworld = sys.modules.get("timerewarder.envs.metaworld")
    draw: Callable[[], Any]
    if camera is None:
        _check_render_mode(name, env.render_mode)
        draw = env.render
    elif callable(camera):
        draw = functools.partial(camera, env)
    elif metaworld is not None and isinstance(base, metaworld.MetaWorld):
        draw = env.render if camera == base.camera.name else _metaworld_view(base, camera)
    elif hasattr(base, "mujoco_renderer"):
        draw = _mujoco_view(base, camera)
    else:
        raise UserError(
            f"{name} has no cameras by name, so not {camera!r} either: "
            "leave camera out for env.render(), or give a function of the environment that returns a frame"
        )
    return lambda: _checked_frame(draw(), name)


def _metaworld_view(env: Any, camera: str) -> Callable[[], Frame]:
    """Another camera than the environment's own, which `env.render()` goes on showing."""
    from timerewarder.envs.rendering import Renderer

    seen_from = tasks.camera(camera)
    # Made at the first frame: OpenGL does not survive the fork that follows when a vector environment is made.
    renderer = functools.cache(lambda: Renderer(env.env.model, seen_from, env.size, env._render))
    return lambda: renderer()(env.env.data)


def _mujoco_view(env: Any, camera: str) -> Callable[[], Any]:
    """A camera of the model behind Gymnasium's MujocoEnv; `env.render()` goes on showing its own."""
    names = [env.model.camera(number).name for number in range(env.model.ncam)]
    if camera not in names:
        raise UserError(f"{type(env).__name__} has no camera {camera!r}: choose one of {', '.join(names) or 'none'}")
    number, renderer = names.index(camera), env.mujoco_renderer

    def draw() -> Any:
        shown, renderer.camera_id = renderer.camera_id, number
        try:
            return renderer.render("rgb_array")
        finally:
            renderer.camera_id = shown

    return draw


def vector_view(envs: VectorEnv[Any, Any, Any], camera: Callable[[Any], Sequence[Frame]] | None) -> Callable[[], Frame]:
    """What draws the present frames of `envs`, uint8 (num_envs, H, W, 3)."""
    name = type(envs.unwrapped).__name__
    draw: Callable[[], Any]
    if camera is None:
        _check_render_mode(name, envs.render_mode)
        draw = envs.render
    elif callable(camera):
        draw = functools.partial(camera, envs)
    else:
        raise UserError(f"a vector environment has no camera {camera!r}: make its sub-environments with that camera")

    def drawn() -> Frame:
        frames = draw()
        if frames is None or len(frames) != envs.num_envs:
            found = "nothing" if frames is None else f"{len(frames)} frames"
            raise UserError(
                f"{name} draws {found} for {envs.num_envs} sub-environments: "
                "give a camera, a function of envs that returns a frame for each"
            )
        frames = [_checked_frame(frame, name) for frame in frames]
        sizes = sorted({frame.shape[:2] for frame in frames})
        if len(sizes) > 1:
            raise UserError(f"{name} draws frames of several sizes {sizes}: make its sub-environments with one size")
        return np.stack(frames)

    return drawn


def _check_render_mode(name: str, render_mode: str | None) -> None:
    if render_mode != "rgb_array":
        raise UserError(f"{name} gives no frames (render_mode {render_mode!r}): make it with render_mode='rgb_array'")


def _checked_frame(frame: Any, name: str) -> Frame:
    if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3:
        return frame
    found = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
    raise UserError(
        f"{name} draws {found} where a frame uint8 (H, W, 3) is needed: "
        "give a camera, a function of the environment that returns one"
    )
