"""The weight of success beside the dense reward: r = r_dense + alpha * success (paper, Eq. 8 and appendix "alpha").

    adaptive   alpha = 10 * the largest dense step reward of the first 100 trajectories
    robust     alpha = 10 * their 0.99-quantile: a single frame unlike any in the videos may be taken for 0.7 of the
               whole task, and would then set the paper's alpha
    a number   that number; 0 leaves success out

While the first trajectories last, alpha follows from what was seen so far. Where the reward that sets it is not
positive, as with methods whose rewards are costs (ot), alpha follows from the size of rewards instead of their value.
The paper sets alpha after the first trajectories, and does not say what holds before or for negative rewards.
"""

from __future__ import annotations

import math
from bisect import insort
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeAlias

from timerewarder.errors import UserError

AlphaRule: TypeAlias = float | Literal["adaptive", "robust"]
TIMES = 10.0  # alpha in units of the dense step reward that sets it: the paper's
PERCENT = 99  # the quantile of `robust`


class Step(NamedTuple):
    """A dense reward and where it was seen: both counted from 0, as frames are; the first reward is that of step 1."""

    reward: float
    trajectory: int
    step: int


class Alpha:
    """Alpha over a training: `see` every dense step reward, `end_trajectory` at every end, read `value` at any time.

    Trajectories of several environments may be interleaved; the first ones are those that begin first. One begins with
    its first reward, so ending one that has none changes nothing.
    """

    def __init__(self, rule: AlphaRule, trajectories: int = 100) -> None:
        self.rule = _checked_rule(rule)
        if trajectories < 1:
            raise UserError(f"alpha from {trajectories} trajectories is undefined: give at least 1")
        self.trajectories = trajectories
        self._begun = self._ended = 0
        self._running: dict[int, tuple[int, int]] = {}  # environment -> its trajectory and the steps seen of it
        self._set_by: Step | None = None
        self._seen: list[Step] = []  # for `robust`, in order of reward, until alpha is settled

    @property
    def value(self) -> float:
        """The weight now."""
        if isinstance(self.rule, float):
            return self.rule
        return TIMES * abs(self._set_by.reward) if self._set_by else 0.0

    @property
    def settled(self) -> bool:
        """Whether alpha stays as it is from now on."""
        return isinstance(self.rule, float) or self._ended == self.trajectories

    @property
    def record(self) -> dict[str, Any]:
        """What alpha is and what set it, as JSON; `trajectories` of those it looks at have ended."""
        return {
            "rule": self.rule,
            "value": self.value,
            "settled": self.settled,
            "trajectories": self._ended,
            "set_by": self._set_by and self._set_by._asdict(),
        }

    def see(self, reward: float, env: int = 0) -> None:
        """A dense step reward of the trajectory that `env` is in; not the 0 of its first frame."""
        if self.settled:
            return
        reward = float(reward)
        if not math.isfinite(reward):
            raise UserError(
                f"the dense reward is {reward}, so alpha is undefined: check the frames and the reward model"
            )
        if env not in self._running:
            self._running[env] = self._begun, 0
            self._begun += 1
        trajectory, steps = self._running[env]
        self._running[env] = trajectory, steps + 1
        if trajectory < self.trajectories:
            self._consider(Step(reward, trajectory, steps + 1))

    def end_trajectory(self, env: int = 0) -> None:
        """The trajectory of `env` is over; its next reward begins another."""
        trajectory, _ = self._running.pop(env, (self.trajectories, 0))
        if trajectory < self.trajectories:
            self._ended += 1
        if self.settled:
            self._running.clear()
            self._seen.clear()

    def _consider(self, step: Step) -> None:
        if self.rule == "robust":
            insort(self._seen, step, key=_rank)
            # A reward that was really seen, the lower one between two: so a lone extreme never counts.
            self._set_by = self._seen[(len(self._seen) - 1) * PERCENT // 100]
        elif self._set_by is None or _rank(step) > _rank(self._set_by):
            self._set_by = step

    def state(self) -> dict[str, Any]:
        """Everything, as JSON; see `restore`."""
        return {
            "rule": self.rule,
            "trajectories": self.trajectories,
            "begun": self._begun,
            "ended": self._ended,
            "running": [[env, *place] for env, place in self._running.items()],
            "set_by": self._set_by and list(self._set_by),
            "seen": [list(step) for step in self._seen],
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Alpha:
        """The alpha whose `state()` this is; it goes on as the other would have."""
        alpha = cls(state["rule"], state["trajectories"])
        alpha._begun, alpha._ended = state["begun"], state["ended"]
        alpha._running = {env: (trajectory, steps) for env, trajectory, steps in state["running"]}
        alpha._set_by = Step(*state["set_by"]) if state["set_by"] else None
        alpha._seen = [Step(*step) for step in state["seen"]]
        return alpha


def _rank(step: Step) -> tuple[bool, float]:
    """By value where rewards are positive; below all of these, by size."""
    return step.reward > 0, abs(step.reward)


def _checked_rule(rule: AlphaRule) -> AlphaRule:
    if rule in ("adaptive", "robust"):
        return rule
    if not isinstance(rule, Real) or isinstance(rule, bool) or not 0 <= rule < math.inf:
        raise UserError(f"alpha {rule!r} is not a weight: give a number, 0 or more, or one of adaptive, robust")
    return float(rule)
