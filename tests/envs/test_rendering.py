"""Drawing: the exact renderer is Meta-World's, the fast one shows the same, and neither touches the simulator."""

import os
import subprocess
import sys

import numpy as np
import pytest

from timerewarder.envs.metaworld import MetaWorld
from timerewarder.envs.rendering import Renderer
from timerewarder.envs.simulator import ENVIRONMENTS, mujoco
from timerewarder.envs.tasks import CAMERAS
from timerewarder.errors import UserError


@pytest.fixture(scope="module")
def env() -> MetaWorld:
    env = MetaWorld("drawer-open")
    env.reset(seed=0)
    for _ in range(5):
        env.step(env.expert_action())
    return env


@pytest.fixture(scope="module")
def renderers(env: MetaWorld) -> dict[str, Renderer]:
    some = CAMERAS["topview"]
    return {
        "fast": Renderer(env.env.model, some),
        "plain": Renderer(env.env.model, some, faces=None),
        "exact": Renderer(env.env.model, some, mode="exact"),
    }


def draw(env: MetaWorld, renderer: Renderer, camera: str) -> np.ndarray:
    renderer.aim(CAMERAS[camera])
    return renderer(env.env.data).astype(int)


@pytest.mark.parametrize("camera", CAMERAS)
def test_every_camera_shows_the_same_fast_and_exact_the_same_way_up(
    env: MetaWorld, renderers: dict[str, Renderer], camera: str
) -> None:
    fast, exact = draw(env, renderers["fast"], camera), draw(env, renderers["exact"], camera)
    assert fast.shape == exact.shape == (84, 84, 3)
    assert fast.std() > 10  # not black, not one colour
    difference = np.abs(fast - exact).mean()
    assert difference < 20  # shadows and reflections
    for turned in (exact[::-1], exact[:, ::-1], exact[::-1, ::-1]):
        assert difference < 0.7 * np.abs(fast - turned).mean()


def test_exact_is_metaworlds_own_picture() -> None:
    own = ENVIRONMENTS["drawer-open-v3"](render_mode="rgb_array", width=84, height=84)
    mujoco.mj_forward(own.model, own.data)
    expected = {}
    for camera in ("corner2", "topview", "gripperPOV"):
        own.mujoco_renderer.camera_id = own.model.camera(camera).id
        expected[camera] = own.render()
    own.close()
    renderer = Renderer(own.model, CAMERAS["corner"], mode="exact")
    for camera, picture in expected.items():
        renderer.aim(CAMERAS[camera])
        assert np.array_equal(renderer(own.data), picture)
    renderer.close()  # before `own` is deleted, which frees its drawing resources in whichever context is current


@pytest.mark.parametrize("camera", ["paper-corner", "paper-corner3", "paper-corner4", "corner2-upright"])
def test_gravity_points_down_in_moved_cameras(camera: str) -> None:
    """The cyan finger is further down in the picture after the hand has gone down."""
    env = MetaWorld("basketball", camera=camera, size=168)
    env.reset(seed=0)

    def row_of_the_cyan_finger() -> float:
        red, green, blue = np.moveaxis(env.render().astype(int), -1, 0)
        return float(np.nonzero((green - red > 60) & (blue - red > 60))[0].mean())

    before = row_of_the_cyan_finger()
    for _ in range(6):
        env.step(np.array([0, 0, -1, 0], np.float32))
    assert row_of_the_cyan_finger() > before + 2
    env.close()


@pytest.mark.parametrize("camera", ["paper-corner", "paper-corner3", "corner2"])
def test_decimated_meshes_look_like_the_original(env: MetaWorld, renderers: dict[str, Renderer], camera: str) -> None:
    fast, plain = draw(env, renderers["fast"], camera), draw(env, renderers["plain"], camera)
    assert 0 < np.abs(fast - plain).mean() < 1.5


def test_decimation_meets_its_budget_and_leaves_the_simulator_alone(env: MetaWorld) -> None:
    model, data = env.env.model, env.env.data
    meshes = {name: getattr(model, name).copy() for name in ("mesh_vert", "mesh_face", "mesh_facenum", "geom_group")}
    derived = {name: getattr(data, name).copy() for name in ("qpos", "qvel", "cam_xpos", "cam_xmat", "qacc_warmstart")}
    renderer = Renderer(model, CAMERAS["paper-corner"])
    renderer(data)
    assert renderer.faces < 1.15 * 8_000 < 20_000 < model.mesh_facenum.sum()
    for owner, before in ((model, meshes), (data, derived)):
        for name, values in before.items():
            assert np.array_equal(getattr(owner, name), values), name


@pytest.mark.parametrize("camera", CAMERAS)
def test_leaving_out_what_is_out_of_view_changes_no_pixel(
    env: MetaWorld, renderers: dict[str, Renderer], camera: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = draw(env, renderers["fast"], camera)
    monkeypatch.setattr(renderers["fast"], "_radius", np.full(env.env.model.ngeom, np.inf))
    assert np.array_equal(draw(env, renderers["fast"], camera), picture)


def test_renderers_do_not_disturb_each_other(env: MetaWorld) -> None:
    first, second = (Renderer(env.env.model, CAMERAS[name]) for name in ("paper-corner", "corner2"))
    picture = first(env.env.data)
    second(env.env.data)
    assert np.array_equal(first(env.env.data), picture)
    second.close()
    assert np.array_equal(first(env.env.data), picture)


def test_larger_pictures_show_the_same_with_more_faces(env: MetaWorld, renderers: dict[str, Renderer]) -> None:
    larger = Renderer(env.env.model, CAMERAS["paper-corner"], size=252)
    small, large = draw(env, renderers["fast"], "paper-corner"), larger(env.env.data)
    assert large.shape == (252, 252, 3)
    assert np.abs(small - large.reshape(84, 3, 84, 3, 3).mean((1, 3))).mean() < 5
    assert larger.faces > 2 * renderers["fast"].faces


def test_bad_arguments(env: MetaWorld) -> None:
    with pytest.raises(UserError, match="at least 1 pixel"):
        Renderer(env.env.model, CAMERAS["corner2"], size=0)
    with pytest.raises(UserError, match="unknown render mode"):
        Renderer(env.env.model, CAMERAS["corner2"], mode="slow")


def test_without_opengl_states_work_and_drawing_says_what_to_install() -> None:
    code = (
        "from timerewarder.envs.metaworld import MetaWorld\n"
        "env = MetaWorld('drawer-open')\n"
        "env.reset(seed=0); env.step(env.expert_action())\n"
        "try:\n    env.render()\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    # A display driver that does not exist stands for one that is not installed.
    blind = {**os.environ, "MUJOCO_GL": "egl", "__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent.json"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=blind)
    assert done.stdout.startswith("UserError no OpenGL")
    assert "apt-get install -y libegl1 libgl1-mesa-dri" in done.stdout
    assert done.stdout.count("\n") == 1
    assert not done.stderr
