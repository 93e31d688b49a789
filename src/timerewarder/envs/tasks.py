"""Meta-World's tasks as data: horizons, cameras, and where hand and objects start. Needs neither MuJoCo nor Meta-World.

The paper's ten tasks have their own horizon, camera and widened start ranges ("a broad variety of robot and object
positions"); every other Meta-World task with a scripted policy gets the defaults at the end of this file.

Positions are metres in Meta-World's frame: x to the robot's side, y away from its base, z up, the table at z = 0.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from timerewarder.errors import UserError

STEP_SECONDS = 0.0125  # of simulated time, an environment step
XYZ = tuple[float, float, float]
Box = tuple[tuple[float, ...], tuple[float, ...]]  # (lowest, highest) corner


@dataclass(frozen=True)
class Camera:
    """A view. Without `pos` it is the camera of that name in Meta-World's own model, drawn as Meta-World draws it."""

    name: str
    pos: XYZ | None = None
    xyaxes: tuple[float, ...] = ()  # the picture's right and up axes in the world, made orthogonal as MuJoCo does
    fovy: float = 45.0  # vertical field of view in degrees
    flip: bool = False  # turn the picture upside down (mirror it vertically) after drawing


def _cameras() -> dict[str, Camera]:
    # Meta-World's corner cameras hang upside down, and Meta-World draws them so; kept, to be comparable with others.
    own = ("topview", "corner", "corner2", "corner3", "corner4", "behindGripper", "gripperPOV")
    # The published code moves three of them close to the object and mirrors the picture the right way up.
    left, right = (-1.0, 1.0, 0.0, -0.2, -0.2, -1.0), (-1.0, -1.0, 0.0, -0.2, -0.8, -1.0)
    moved = (
        Camera("paper-corner", pos=(-0.5, 0.2, 0.4), xyaxes=left, flip=True),
        Camera("paper-corner3", pos=(0.7, 0.1, 0.4), xyaxes=right, flip=True),
        Camera("paper-corner4", pos=(0.7, 0.1, 0.55), xyaxes=right, flip=True),
        # corner2 turned by half a circle about its line of sight: the same view, gravity pointing down.
        Camera(
            "corner2-upright",
            pos=(1.3, -0.2, 1.1),
            xyaxes=(0.5499, 0.83318, -0.05844, -0.37621, 0.30955, 0.8733),
            fovy=60.0,
        ),
    )
    return {camera.name: camera for camera in (*map(Camera, own), *moved)}


CAMERAS: dict[str, Camera] = _cameras()


@dataclass(frozen=True)
class Ranges:
    """Where an episode may start. `None` leaves Meta-World's own.

    `hand`: box of the gripper's start position; `spread`: instead, half the size of a box around Meta-World's own, cut
    where the hand cannot reach. `start`: box of Meta-World's random vector, whose meaning is the task's
    (the object's position, and after it the goal's where the task has one apart from the object).
    `places`: a body that Meta-World leaves at one spot though the vector begins with its position; it is put there.
    """

    hand: Box | None = None
    spread: XYZ = (0.0, 0.0, 0.0)
    start: Box | None = None
    places: str | None = None


METAWORLD = Ranges()
OTHERS_WIDE = Ranges(spread=(0.1, 0.05, 0.05))
RANGES = ("wide", "paper", "metaworld")


@dataclass(frozen=True)
class Task:
    """One Meta-World task. `horizon` counts environment steps, before action repeat."""

    name: str
    horizon: int
    camera: str
    wide: Ranges
    paper: Ranges | None = None  # where the published code narrows a range; otherwise the same as wide
    # Environment steps that the expert lets its gripper close before it lifts. Meta-World's policy for disassemble
    # lifts at once, and loses the nut four times out of five within the horizon.
    patience: int = 0

    def ranges(self, name: str) -> Ranges:
        if name not in RANGES:
            raise UserError(f"unknown start ranges {name!r}: choose one of {', '.join(RANGES)}")
        return {"wide": self.wide, "paper": self.paper or self.wide, "metaworld": METAWORLD}[name]


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "button-press-topdown",
            horizon=125,
            camera="paper-corner",
            wide=Ranges(
                hand=((-0.2, 0.45, 0.15), (0.1, 0.62, 0.35)),
                start=((-0.15, 0.75, 0.115), (0.2, 0.9, 0.115)),
            ),
        ),
        Task(
            "door-open",
            horizon=125,
            camera="paper-corner3",
            wide=Ranges(
                hand=((-0.15, 0.48, 0.18), (0.15, 0.58, 0.3)),
                start=((-0.05, 0.8, 0.15), (0.15, 0.95, 0.15)),
            ),
        ),
        Task(
            "window-close",
            horizon=125,
            camera="paper-corner3",
            wide=Ranges(
                hand=((-0.1, 0.45, 0.15), (0.2, 0.58, 0.3)),
                start=((-0.15, 0.75, 0.2), (0.1, 0.9, 0.2)),
            ),
        ),
        Task(
            "drawer-open",
            horizon=125,
            camera="paper-corner",
            wide=Ranges(
                hand=((-0.2, 0.5, 0.12), (0.15, 0.65, 0.3)),
                start=((-0.15, 0.85, 0.0), (0.2, 0.9, 0.0)),
            ),
        ),
        Task(
            "window-open",
            horizon=125,
            camera="paper-corner3",
            wide=Ranges(
                hand=((-0.1, 0.45, 0.15), (0.2, 0.58, 0.3)),
                start=((-0.15, 0.7, 0.16), (0.1, 0.9, 0.16)),
            ),
        ),
        Task(
            "stick-push",
            horizon=125,
            camera="paper-corner",
            wide=Ranges(
                hand=((-0.12, 0.5, 0.15), (0.08, 0.68, 0.3)),
                start=((-0.12, 0.55, 0.0, 0.399, 0.55, 0.1319), (-0.02, 0.65, 0.001, 0.401, 0.65, 0.1321)),
            ),
        ),
        Task(
            "disassemble",
            horizon=125,
            camera="paper-corner",
            wide=Ranges(
                hand=((-0.15, 0.47, 0.15), (0.12, 0.6, 0.3)),
                start=((-0.1, 0.6, 0.025, -0.1, 0.6, 0.1699), (0.12, 0.74, 0.02501, 0.1, 0.75, 0.1701)),
            ),
            patience=12,
        ),
        Task(
            "basketball",
            horizon=175,
            camera="paper-corner",
            wide=Ranges(
                hand=((-0.15, 0.5, 0.17), (0.15, 0.7, 0.32)),
                start=((-0.15, 0.55, 0.0299, -0.1, 0.85, 0.0), (0.15, 0.7, 0.0301, 0.1, 0.9, 0.0)),
            ),
            paper=Ranges(
                hand=((-0.15, 0.5, 0.17), (0.15, 0.7, 0.32)),
                start=((-0.15, 0.55, 0.0299, -0.025, 0.85, 0.0), (0.15, 0.7, 0.0301, 0.025, 0.9, 0.0)),
            ),
        ),
        Task(
            "lever-pull",
            horizon=175,
            camera="paper-corner4",
            wide=Ranges(
                # Hand and lever are no further apart sideways than forwards: the scripted policy comes diagonally,
                # and would otherwise ram the lever from the side.
                hand=((0.04, 0.4, 0.08), (0.22, 0.42, 0.22)),
                start=((-0.06, 0.73, 0.0), (0.1, 0.85, 0.0)),
            ),
        ),
        Task(
            "plate-slide",
            horizon=125,
            camera="paper-corner",
            wide=Ranges(
                hand=((-0.15, 0.5, 0.12), (0.15, 0.65, 0.3)),
                start=((-0.1, 0.54, 0.0, -0.12, 0.83, 0.0), (0.1, 0.61, 0.0, 0.12, 0.9, 0.0)),
                places="puck_channel",
            ),
        ),
    )
}

OTHERS: tuple[str, ...] = (
    "assembly",
    "bin-picking",
    "box-close",
    "button-press",
    "button-press-topdown-wall",
    "button-press-wall",
    "coffee-button",
    "coffee-pull",
    "coffee-push",
    "dial-turn",
    "door-close",
    "door-lock",
    "door-unlock",
    "drawer-close",
    "faucet-close",
    "faucet-open",
    "hammer",
    "hand-insert",
    "handle-press",
    "handle-press-side",
    "handle-pull",
    "handle-pull-side",
    "peg-insert-side",
    "peg-unplug-side",
    "pick-out-of-hole",
    "pick-place",
    "pick-place-wall",
    "plate-slide-back",
    "plate-slide-back-side",
    "plate-slide-side",
    "push",
    "push-back",
    "push-wall",
    "reach",
    "reach-wall",
    "shelf-place",
    "soccer",
    "stick-pull",
    "sweep",
    "sweep-into",
)


def task(name: str) -> Task:
    """The task of that name; Meta-World's suffix `-v3` may be given or left out."""
    plain = name.removesuffix("-v3")
    if plain in TASKS:
        return TASKS[plain]
    if plain in OTHERS:
        return Task(plain, horizon=250, camera="corner2-upright", wide=OTHERS_WIDE)
    names = [*TASKS, *OTHERS]
    near = difflib.get_close_matches(plain, names, n=3, cutoff=0.4) or list(TASKS)
    raise UserError(f"unknown task {name!r}: did you mean {', '.join(near)}?")


def camera(name: str) -> Camera:
    """The camera of that name."""
    if name not in CAMERAS:
        raise UserError(f"unknown camera {name!r}: choose one of {', '.join(CAMERAS)}")
    return CAMERAS[name]
