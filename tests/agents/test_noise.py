"""Noise on actions: its size, its colour, and what it is for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timerewarder.agents.noise import PERIOD, coloured, exploration


def many(colour: float, count: int = 3000) -> np.ndarray:
    """So many noises (count, PERIOD, 2)."""
    return np.stack([coloured(np.random.default_rng([1, seed]), 2, colour) for seed in range(count)])


@pytest.mark.parametrize("colour", [0.0, 1.0, 2.0])
def test_every_step_of_it_has_mean_0_and_variance_1(colour: float) -> None:
    noise = many(colour)
    assert np.abs(noise.mean((0, 2))).max() < 0.08
    assert noise.std((0, 2)) == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("colour", [0.0, 1.0, 2.0])
def test_its_power_falls_with_the_frequency_to_the_power_of_the_colour(colour: float) -> None:
    power = (np.abs(np.fft.rfft(many(colour), axis=1)) ** 2).mean((0, 2))[1:-1]
    slope = np.polyfit(np.log(np.arange(1, len(power) + 1)), np.log(power), 1)[0]
    assert slope == pytest.approx(-colour, abs=0.03)


def test_white_noise_is_drawn_anew_at_every_step() -> None:
    """Of an episode of any length."""
    steps = itertools.islice(exploration(np.random.default_rng(3), 4, 0.0), 3 * PERIOD)
    assert np.array_equal(list(steps), np.random.default_rng(3).normal(size=(3 * PERIOD, 4)))


def test_coloured_noise_comes_again() -> None:
    steps = np.stack(list(itertools.islice(exploration(np.random.default_rng(3), 4, 1.0), 2 * PERIOD)))
    assert np.array_equal(steps[:PERIOD], coloured(np.random.default_rng(3), 4, 1.0))
    assert np.array_equal(steps[:PERIOD], steps[PERIOD:])


def test_pink_noise_goes_places() -> None:
    """A hand that adds it up gets twice as far in 20 steps, and actions do not influence each other."""
    white, pink = (many(colour)[:, :20].sum(1) for colour in (0.0, 1.0))
    assert pink.std() > 1.9 * white.std()
    assert abs(np.corrcoef(pink[:, 0], pink[:, 1])[0, 1]) < 0.05


def test_its_end_leads_on_to_its_beginning() -> None:
    noise = many(1.0)
    around, ahead = (np.mean(noise[:, a] * noise[:, b]) for a, b in ((-1, 0), (0, 1)))
    assert around == pytest.approx(ahead, abs=0.05)
    assert ahead > 0.5


@given(seed=st.integers(0, 2**32), actions=st.integers(1, 6), colour=st.floats(0, 3), half=st.integers(2, 40))
def test_any_colour_and_length_is_finite_and_the_same_for_the_same_seed(
    seed: int, actions: int, colour: float, half: int
) -> None:
    first, second = (coloured(np.random.default_rng(seed), actions, colour, 2 * half) for _ in range(2))
    assert first.shape == (2 * half, actions)
    assert np.isfinite(first).all()
    assert np.array_equal(first, second)
