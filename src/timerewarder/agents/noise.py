"""Noise on actions, for exploring: white, or coloured so that neighbours in time are alike.

    power at frequency f ~ 1 / f^colour        0: white, as in DrQ-v2    1: pink    2: red, a random walk

White noise shakes the hand on the spot, and what takes many steps in one direction (to hook a handle and pull) hardly
ever happens by chance. Pink noise of the same size also goes places. From Eberhard et al., "Pink Noise Is All You Need:
Colored Noise Exploration in Deep Reinforcement Learning", ICLR 2023.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

PERIOD = 64  # steps of a colour's slowest wave: about an episode


def exploration(rng: np.random.Generator, actions: int, colour: float) -> Iterator[np.ndarray]:
    """Noise (actions,) of variance 1 for step after step, without end.

    White noise is new at every step; that of a colour comes again after PERIOD steps, where its end leads on to its
    beginning.
    """
    noise = coloured(rng, actions, colour)
    while True:
        yield from noise
        if colour == 0:
            noise = coloured(rng, actions, colour)


def coloured(rng: np.random.Generator, actions: int, colour: float, steps: int = PERIOD) -> np.ndarray:
    """Noise (steps, actions) of variance 1; that of a colour has no mean, and its end leads on to its beginning."""
    if colour == 0:
        return rng.normal(size=(steps, actions))
    frequencies = np.arange(1, steps // 2 + 1)
    amplitude = frequencies ** (-colour / 2)
    spectrum = np.zeros((steps // 2 + 1, actions), np.complex128)
    spectrum[1:] = amplitude[:, None] * (rng.normal(size=(2, steps // 2, actions)) * [[[1.0]], [[1.0j]]]).sum(0)
    # irfft adds each frequency and its mirror image, except for the highest, which is its own and of which it takes the
    # real part alone.
    variance = 4 * (amplitude[:-1] ** 2).sum() + amplitude[-1] ** 2
    return np.fft.irfft(spectrum, steps, axis=0) * steps / np.sqrt(variance)
