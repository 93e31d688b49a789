"""The examples run as they are written, for a few steps."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from stable_baselines3 import SAC

import timerewarder as tr
from tests.conftest import QUICK

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def fitted(videos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted") / "model"
    tr.fit(videos, folder, **{**QUICK, "epoch_frames": 400, "validate_every": 200})
    return folder


def example(name, options):
    """The example in a process of its own: its exit code, and what it wrote."""
    command = [sys.executable, str(EXAMPLES / name), *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_stable_baselines3_trains_on_a_learned_reward(fitted, tmp_path):
    out = tmp_path / "policy.zip"
    options = f"--model {fitted} --task drawer-open --steps 630 --out {out} --episodes 1"
    code, told, complaints = example("sb3.py", options)
    assert code == 0, complaints
    assert re.search(r"success in \d+% of 1 new episodes", told)
    assert "ep_rew_mean" in told
    policy = SAC.load(out, device="cpu")
    assert policy.num_timesteps == 630
    assert policy._n_updates > 100  # it was really trained


def test_a_model_that_is_not_there(tmp_path):
    code, _, complaints = example("sb3.py", f"--model {tmp_path}/nowhere --out {tmp_path}/p.zip")
    assert code != 0
    assert "no model" in complaints.splitlines()[-1]
    assert not (tmp_path / "p.zip").exists()
