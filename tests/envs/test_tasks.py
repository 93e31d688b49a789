"""The table of tasks and cameras, which needs no simulator."""

import subprocess
import sys

import pytest

from timerewarder.envs import tasks
from timerewarder.errors import UserError

PAPER = {
    "button-press-topdown": 125,
    "door-open": 125,
    "window-close": 125,
    "drawer-open": 125,
    "window-open": 125,
    "stick-push": 125,
    "disassemble": 125,
    "basketball": 175,
    "lever-pull": 175,
    "plate-slide": 125,
}


def test_the_papers_ten_tasks_with_their_horizons() -> None:
    assert {name: task.horizon for name, task in tasks.TASKS.items()} == PAPER


def test_a_name_with_or_without_metaworlds_suffix() -> None:
    assert tasks.task("drawer-open-v3") is tasks.task("drawer-open")


def test_an_unknown_task_gets_the_nearest_names() -> None:
    with pytest.raises(UserError, match=r"unknown task 'draw-open'.*drawer-open") as error:
        tasks.task("draw-open")
    assert "\n" not in str(error.value)


def test_every_task_of_metaworld_with_a_scripted_policy_is_known() -> None:
    from timerewarder.envs.simulator import ENVIRONMENTS, POLICIES

    known = {f"{name}-v3" for name in (*tasks.TASKS, *tasks.OTHERS)}
    assert known == set(POLICIES) & set(ENVIRONMENTS)
    assert all(tasks.task(name).camera in tasks.CAMERAS for name in known)


def test_unknown_cameras_and_ranges() -> None:
    with pytest.raises(UserError, match=r"unknown camera 'corner9'.*paper-corner"):
        tasks.camera("corner9")
    with pytest.raises(UserError, match=r"'huge'.*wide"):
        tasks.task("drawer-open").ranges("huge")


def test_basketball_has_the_published_goal_range_too() -> None:
    wide, paper = (tasks.task("basketball").ranges(name).start for name in ("wide", "paper"))
    assert wide is not None
    assert paper is not None
    assert (paper[0][3], paper[1][3]) == (-0.025, 0.025)
    assert (wide[0][3], wide[1][3]) == (-0.1, 0.1)
    assert tasks.task("drawer-open").ranges("paper") == tasks.task("drawer-open").ranges("wide")


def test_the_table_imports_without_mujoco_and_the_environment_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "for name in ('mujoco', 'metaworld', 'gymnasium', 'fast_simplification'): sys.modules[name] = None\n"
        "import timerewarder.envs.tasks\n"
        "try:\n    import timerewarder.envs.metaworld\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("UserError")
    assert "pip install 'timerewarder[metaworld]'" in printed
