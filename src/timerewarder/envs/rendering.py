"""Draws a MuJoCo state as an 84-pixel picture some sixty times faster than Meta-World's own renderer.

`exact` draws as Meta-World does, pixel for pixel: shadows, reflections, multisampling, every mesh face.
`fast` draws the same state through a copy of the model that differs only in what is drawn: no shadows, no reflections,
no multisampling, meshes decimated to about 8,000 faces, rounder shapes and the floor with fewer facets, and whatever
lies outside the view left out. Physics never sees that copy, and drawing writes nothing into the simulator's data.

A model copy can draw the original's data because all its sizes agree.
"""

from __future__ import annotations

import atexit
import copy
import functools
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from timerewarder.envs.meshes import decimate
from timerewarder.envs.simulator import mujoco, open_gl
from timerewarder.envs.tasks import Camera
from timerewarder.errors import UserError

FACES = 8_000  # mesh faces of a picture of FACES_SIZE pixels; larger pictures get more in proportion
FACES_SIZE = 84
WELD = 0.003  # metres: vertices closer than this are joined; a pixel of the closest camera is 5 mm wide
MODES = ("fast", "exact")
HIDDEN_GROUP = 5  # MuJoCo draws geoms of groups 0 to 2 unless told otherwise


class Renderer:
    """Draws `data` of `model` from one camera; pictures are uint8 (size, size, 3).

    `faces` is the budget of mesh faces in mode `fast`, `None` for every face of the original.
    """

    _open = False

    def __init__(
        self, model: Any, camera: Camera, size: int = 84, mode: str = "fast", faces: int | None = FACES
    ) -> None:
        if mode not in MODES:
            raise UserError(f"unknown render mode {mode!r}: choose one of {', '.join(MODES)}")
        if size < 1:
            raise UserError(f"picture size must be at least 1 pixel, not {size}")
        self._size = size
        self._fast = mode == "fast"
        self._model = _light_copy(model, size, faces) if self._fast else _exact_copy(model, size)
        self._rows = np.empty((size, size, 3), np.uint8)
        self._gl, self._context = open_gl(self._model, size)
        _close_before_exit()
        self._scene = mujoco.MjvScene(self._model, maxgeom=1000)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._viewport = mujoco.MjrRect(0, 0, size, size)
        self._option = mujoco.MjvOption()
        self._perturb = mujoco.MjvPerturb()
        if self._fast:
            self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
            self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        self.aim(camera)
        self._groups = self._model.geom_group.copy()
        planes = self._model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        # Decimation may push a vertex a little out of the original's bounding sphere.
        self._radius = np.where(planes, np.inf, 1.05 * self._model.geom_rbound)
        self._open = True
        _renderers.add(self)

    def __call__(self, data: Any) -> NDArray[np.uint8]:
        """The picture of that state, uint8 (size, size, 3)."""
        self._gl.make_current()
        if self._fast:
            self._hide_what_is_out_of_view(data)
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, self._option, self._perturb, self._camera, everything, self._scene)
        mujoco.mjr_render(self._viewport, self._scene, self._context)
        mujoco.mjr_readPixels(self._rows, None, self._viewport, self._context)
        # OpenGL's first row is the lowest one.
        return self._rows.copy() if self._flip else self._rows[::-1].copy()

    @property
    def faces(self) -> int:
        """Mesh faces of the model that is drawn."""
        return int(self._model.mesh_facenum.sum())

    def close(self) -> None:
        """Free the OpenGL resources; the renderer cannot draw afterwards."""
        if self._open:
            self._open = False
            self._gl.make_current()
            self._context.free()
            self._gl.free()

    def __del__(self) -> None:
        self.close()

    def aim(self, camera: Camera) -> None:
        """Draw from this camera from now on."""
        self._flip = camera.flip
        self._camera = mujoco.MjvCamera()
        self._pose: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        if camera.pos is None:
            self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self._camera.fixedcamid = self._model.camera(camera.name).id
            fovy = self._model.cam_fovy[self._camera.fixedcamid]
        else:
            # A fixed camera would be drawn from `data.cam_xpos`, where the physics model has put it; so the pose is
            # written into the scene, and type USER makes mjv_updateScene leave it there.
            self._camera.type = mujoco.mjtCamera.mjCAMERA_USER
            fovy = camera.fovy
            axes = orthonormal(camera.xyaxes)
            self._pose = np.array(camera.pos), axes
            near = self._model.vis.map.znear * self._model.stat.extent
            for eye in self._scene.camera:
                eye.pos[:], eye.forward[:], eye.up[:] = camera.pos, -axes[:, 2], axes[:, 1]
                eye.frustum_near, eye.frustum_far = near, self._model.vis.map.zfar * self._model.stat.extent
                eye.frustum_center, eye.frustum_top = 0.0, near * np.tan(np.deg2rad(fovy) / 2)
                eye.frustum_bottom = -eye.frustum_top
        self._half_angle = np.deg2rad(fovy) / 2

    def _hide_what_is_out_of_view(self, data: Any) -> None:
        """Move geoms whose bounding sphere misses the view's pyramid into a group that is not drawn."""
        if self._pose is None:
            camera = self._camera.fixedcamid
            pos, axes = data.cam_xpos[camera], data.cam_xmat[camera].reshape(3, 3)
        else:
            pos, axes = self._pose
        seen = (data.geom_xpos - pos) @ axes  # (geoms, 3): right, up, towards the viewer
        sideways = np.abs(seen[:, :2]).max(1) * np.cos(self._half_angle)
        outside = sideways + seen[:, 2] * np.sin(self._half_angle) > self._radius
        self._model.geom_group[:] = np.where(outside, HIDDEN_GROUP, self._groups)


_renderers: weakref.WeakSet[Renderer] = weakref.WeakSet()


@functools.cache
def _close_before_exit() -> None:
    """Free every context before OpenGL shuts down, which would otherwise print an error for each of them.

    Called after the first context exists, because OpenGL's own exit handler is registered with it and the handler
    registered last runs first.
    """

    @atexit.register
    def close_all() -> None:
        for renderer in list(_renderers):
            renderer.close()


def orthonormal(xyaxes: tuple[float, ...]) -> NDArray[np.float64]:
    """Columns x (right), y (up), z (towards the viewer) of a camera, as MuJoCo reads `xyaxes`."""
    x = np.array(xyaxes[:3]) / np.linalg.norm(xyaxes[:3])
    y = np.array(xyaxes[3:]) - x * np.dot(x, xyaxes[3:])
    y /= np.linalg.norm(y)
    return np.stack([x, y, np.cross(x, y)], axis=1)


def _exact_copy(model: Any, size: int) -> Any:
    model = copy.copy(model)
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, size)
    model.vis.global_.offheight = max(model.vis.global_.offheight, size)
    return model


def _light_copy(model: Any, size: int, faces: int | None) -> Any:
    """A copy that is cheap to draw: few mesh faces (or all, for `None`) and nothing finer than the picture shows."""
    model = copy.copy(model)
    model.vis.global_.offwidth = model.vis.global_.offheight = size
    model.vis.quality.offsamples = model.vis.quality.shadowsize = 0
    if faces is None:
        return model
    model.vis.quality.numslices, model.vis.quality.numstacks, model.vis.quality.numquads = 16, 8, 2
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    model.geom_size[planes, 2] = 1.0  # spacing of a plane's grid: 0.1 would draw the floor with 12,800 triangles
    finer = max(1.0, size / FACES_SIZE)
    decimate(model, int(faces * finer), WELD / finer)
    return model
