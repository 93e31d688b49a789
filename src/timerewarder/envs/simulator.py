"""The one place that imports MuJoCo and Meta-World: picks a headless OpenGL backend first, and says what is missing.

MuJoCo reads MUJOCO_GL when it is imported. When nobody has set it and there is no display, it is set here to `egl`, or
to `osmesa` where only that library is installed. Simulating needs no OpenGL at all; drawing does.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

from timerewarder.errors import UserError

# With either of these Mesa draws in software; the first is what most machines have or can install.
BACKENDS = {"egl": ("libEGL.so.1",), "osmesa": ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")}
GL_REMEDY = (
    "run `apt-get install -y libegl1 libgl1-mesa-dri` and set MUJOCO_GL=egl "
    "(or `apt-get install -y libosmesa6` and MUJOCO_GL=osmesa)"
)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _choose_backend() -> None:
    """Set MUJOCO_GL on a Linux machine without a display, unless the user has."""
    headless = platform.system() == "Linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if not headless or os.environ.get("MUJOCO_GL"):
        return
    for backend, libraries in BACKENDS.items():
        if any(_loads(library) for library in libraries):
            os.environ["MUJOCO_GL"] = backend
            return


_choose_backend()
try:
    import fast_simplification
    import gymnasium
    import mujoco
    import packaging  # noqa: F401  (gymnasium's MuJoCo environments import it without declaring it)
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS as ENVIRONMENTS
    from metaworld.policies import ENV_POLICY_MAP
except ModuleNotFoundError as error:
    raise UserError(f"Meta-World needs the package {error.name!r}: pip install 'timerewarder[metaworld]'") from error
except (ImportError, AttributeError, RuntimeError, OSError) as error:
    # PyOpenGL fails with any of these when the library behind MUJOCO_GL is not installed.
    backend = os.environ.get("MUJOCO_GL", "")
    raise UserError(f"MuJoCo cannot load its OpenGL backend MUJOCO_GL={backend!r}: {GL_REMEDY}") from error

POLICIES: dict[str, Any] = dict(ENV_POLICY_MAP)

__all__ = ["ENVIRONMENTS", "POLICIES", "fast_simplification", "gymnasium", "mujoco", "open_gl"]


def open_gl(model: Any, size: int) -> tuple[Any, Any]:
    """An offscreen OpenGL context for pictures of `size` x `size` pixels, and MuJoCo's resources of `model` in it."""
    try:
        # Not simply mujoco.GLContext: MuJoCo may have been imported before MUJOCO_GL was chosen here.
        if os.environ.get("MUJOCO_GL") == "egl":
            from mujoco.egl import GLContext
        elif os.environ.get("MUJOCO_GL") == "osmesa":
            from mujoco.osmesa import GLContext
        else:
            from mujoco import GLContext
        context = GLContext.__new__(GLContext)
        context._context = None  # what its __del__ looks for, which would complain if __init__ failed
        context.__init__(size, size)
        context.make_current()
        resources = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
    except Exception as error:  # every backend raises its own kind
        reason = str(error).split(".")[0].split("\n")[0] or type(error).__name__
        raise UserError(f"no OpenGL for headless rendering ({reason}): {GL_REMEDY}") from error
    return context, resources
