"""The replay: a ring of single frames, from which stacks and n-step returns are rebuilt at sampling (DrQ-v2).

Frames are numbered from the first one ever written; frame f lives in slot f % capacity, together with the action, dense
reward and success of the step that arrived at it. The transition that leaves frame t has the n-step return

    R = Σ_{k<m} discount^k (dense_{t+1+k} + alpha success_{t+1+k}),    m = min(n, steps left of its episode so far)

and bootstraps with discount^m from the stack at frame t+m (with 0 if that step terminated the episode). Dense reward
and success are joined only here, so that a change of alpha counts for the whole past.

Where dense rewards are the steps of a progress p, their sum in the episode so far, the `form` "progress" puts
(1 - discount) p in their place. In the sum over all time it changes nothing but a term that no action changes,

    Σ_k discount^k (p_{t+1+k} - p_{t+k})  =  (1 - discount) Σ_k discount^k p_{t+1+k}  -  p_t

so the best policy is the same. But the critic need not learn p_t, and its values lie between the least and the largest
p. With steps, every error of a critic that sees gains on the way there and fewer losses on the way back adds up, a
hundredfold at a discount of 0.99: it comes to expect several times what the whole task is worth.

A reward that looks at whole episodes, or that goes on learning, is given when an episode has ended: with `held` its
transitions cannot be drawn before `reward_episode`, and with `features` the replay keeps what the reward's encoder made
of each frame, so that the past can be rewarded anew (`reward_all`) and drawn from (`draw_features`).

Public DrQ-v2 stores stacks (63.5 KB a transition at 84 px) and shows an episode only once it ended; here a transition
takes a third of it, and can be drawn as soon as it is added.

Saves are segments of frames that are written once, and a replay.json that names them and is written last:

    FOLDER/segment-00000.safetensors   frames first..end of the ring, with their actions, rewards, ...
    FOLDER/replay.json                 shape, capacity, frames ever written, segments

A replay on disk is saved in the same way, although its frames are in a file already: that file goes on changing after
the save, so it would be a mixture of two times after a kill.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from timerewarder.errors import UserError
from timerewarder.files import atomic, read_json, write_json

FORMAT = 1
STATE = "replay.json"
SEGMENT_FRAMES = 2048  # a segment is built in memory before it is written: 43 MB at 84 px


Form = Literal["steps", "progress"]


@dataclass(frozen=True)
class Transitions:
    """A batch of B transitions. A stack of frames has its oldest frame first in the channels."""

    observation: np.ndarray  # uint8 (B, H, W, 3*stack), or float32 (B, D)
    action: np.ndarray  # float32 (B, A)
    reward: np.ndarray  # float32 (B,), n-step sum
    discount: np.ndarray  # float32 (B,), factor of the value of next_observation
    next_observation: np.ndarray


@dataclass(frozen=True)
class Segment:
    """A file with frames first <= f < end."""

    file: str
    first: int
    end: int


class Replay:
    """A ring of `capacity` frames. One thread at a time."""

    def __init__(
        self,
        capacity: int,
        shape: tuple[int, ...],
        actions: int,
        *,
        stack: int = 3,
        n_step: int = 3,
        held: bool = False,
        features: int = 0,
        folder: Path | None = None,
    ) -> None:
        """`shape` (H, W, 3): uint8 frames; (D,): float32 vectors, with stack 1. `folder`: for the frames' file.

        `held`: rewards come when an episode has ended. `features`: how many numbers the reward sees of each frame.
        """
        if len(shape) == 1 and stack != 1:
            raise ValueError(f"vectors are not stacked: stack is {stack}, must be 1")
        if capacity < stack + n_step:
            raise UserError(
                f"a replay of {capacity} frames is too small: pass --replay-capacity {stack + n_step} or more"
            )
        self.capacity, self.shape, self.actions = capacity, tuple(shape), actions
        self.stack, self.n_step = stack, n_step
        self.frames = 0  # ever written
        self._frames = _allocate(capacity, self.shape, actions, features, folder)
        self._action = np.zeros((capacity, actions), np.float32)
        self._dense = np.zeros(capacity, np.float32)
        self._progress = np.zeros(capacity, np.float32)  # sum of the episode's dense rewards so far
        self._success = np.zeros(capacity, np.bool_)
        self._terminated = np.zeros(capacity, np.bool_)
        self._start = np.zeros(capacity, np.int64)  # the first frame of the frame's episode
        # The frames that transitions leave, transition i in slot i % capacity. Older transitions lose their frames
        # first, so those that can be drawn are always a range first <= i < end, and one random integer draws one.
        self._origin = np.zeros(capacity, np.int64)
        # Of these, the ones before `shown` have their rewards.
        self._first = self._end = self._shown = 0
        self._held = held
        self._features = np.empty((capacity, features), np.float16)
        self._saved_in: Path | None = None
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        """How many transitions can be drawn."""
        return max(0, self._shown - self._first)

    @property
    def oldest(self) -> int:
        """The oldest frame that the ring still holds."""
        return max(0, self.frames - self.capacity)

    def worth(self, discount: float, alpha: float, form: Form = "steps") -> tuple[float, float]:
        """The least and the largest that a step in the ring is worth; 0, what follows an end, is among them."""
        held = slice(min(self.frames, self.capacity))
        worth = self._worth(held, discount, alpha, form)
        return float(worth.min(initial=0.0)), float(worth.max(initial=0.0))

    def _worth(self, slots: Any, discount: float, alpha: float, form: Form) -> np.ndarray:
        """Rewards of arriving at the frames in these slots, as the critic learns from them."""
        dense = self._dense[slots] if form == "steps" else (1 - discount) * self._progress[slots]
        return dense + alpha * self._success[slots]

    def observations(self) -> np.ndarray:
        """The observations that the ring holds, (N, ...), single ones and in no order."""
        return self._frames[: min(self.frames, self.capacity)]

    def begin(self, observation: np.ndarray, features: np.ndarray | None = None) -> None:
        """Write the first observation of an episode; the episode before it, unless terminated, was cut off."""
        self._write(observation, np.zeros(self.actions, np.float32), 0.0, False, False, self.frames, features)

    def add(
        self,
        action: np.ndarray,
        observation: np.ndarray,
        dense: float,
        success: bool,
        terminated: bool = False,
        features: np.ndarray | None = None,
    ) -> None:
        """Write a step: the action, the observation, rewards and success that it led to."""
        newest = (self.frames - 1) % self.capacity
        if not self.frames or self._terminated[newest]:
            raise RuntimeError("there is no episode to add to: call begin with its first observation")
        self._write(observation, action, dense, success, terminated, int(self._start[newest]), features)
        self._origin[self._end % self.capacity] = self.frames - 2
        self._end += 1
        if not self._held:
            self._shown = self._end

    def reward_episode(self, rewards: np.ndarray) -> None:
        """Give the newest episode, which has ended, its rewards (T,), that of its first frame included."""
        start = int(self._start[(self.frames - 1) % self.capacity])
        if start < self.oldest:
            raise UserError(
                f"a replay of {self.capacity} frames holds no whole episode, and this reward is given to whole ones: "
                f"pass --replay-capacity {2 * len(rewards)} or more"
            )
        self._reward(start, rewards)
        self._shown = self._end

    def reward_all(self, reward: Callable[[np.ndarray], np.ndarray]) -> None:
        """Reward every episode that is whole in the ring anew: features (T, D) -> rewards (T,).

        One that is partly overwritten is drawn no more: its old rewards are another reward's.
        """
        alive = np.arange(self.oldest, self.frames)
        starts = np.unique(self._start[alive % self.capacity])
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), self.frames], strict=True):
            slots = np.arange(max(start, self.oldest), end) % self.capacity
            if start >= self.oldest:
                self._reward(start, reward(self._features[slots].astype(np.float32)))
            else:
                self._dense[slots] = self._progress[slots] = 0.0
        whole = starts[starts >= self.oldest].min(initial=self.frames)
        while self._first < self._end and self._origin[self._first % self.capacity] < whole:
            self._first += 1

    def _reward(self, start: int, rewards: np.ndarray) -> None:
        """Write rewards (T,) of the frames from `start` on, as far as the ring still holds them."""
        frames = np.arange(start, start + len(rewards))
        alive = frames >= self.oldest
        self._dense[frames[alive] % self.capacity] = rewards[alive]
        self._progress[frames[alive] % self.capacity] = rewards.cumsum(dtype=np.float64)[alive]

    def draw_features(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features float32 (count, D) of an episode's first frame that is left, and of two that follow one another."""
        drawn = self._first + rng.integers(len(self), size=count)
        origin = self._origin[drawn % self.capacity]
        first = np.maximum(self._start[origin % self.capacity], self.oldest)
        rows = (self._features[frames % self.capacity].astype(np.float32) for frames in (first, origin, origin + 1))
        return next(rows), next(rows), next(rows)

    def _write(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        dense: float,
        success: bool,
        terminated: bool,
        start: int,
        features: np.ndarray | None,
    ) -> None:
        observation = np.asarray(observation)
        if observation.shape != self.shape or (len(self.shape) == 3 and observation.dtype != np.uint8):
            raise ValueError(
                f"observation is {observation.dtype} {observation.shape}, must be {self._frames.dtype} {self.shape}"
            )
        self._forget(self.frames - self.capacity)
        slot = self.frames % self.capacity
        self._frames[slot] = observation
        self._action[slot] = action
        self._dense[slot] = dense
        before = 0.0 if start == self.frames else self._progress[(self.frames - 1) % self.capacity]
        self._progress[slot] = before + dense
        self._success[slot] = success
        self._terminated[slot] = terminated
        self._start[slot] = start
        if self._features.shape[1]:
            self._features[slot] = features
        self.frames += 1

    def _forget(self, frame: int) -> None:
        """Draw no more transitions whose stack needs `frame`, the oldest one; call it before that is overwritten."""
        while self._first < self._end:
            origin = int(self._origin[self._first % self.capacity])
            if max(int(self._start[origin % self.capacity]), origin - self.stack + 1) > frame:
                break
            self._first += 1

    def sample(
        self,
        rng: np.random.Generator,
        batch: int,
        discount: float,
        alpha: float,
        shift: int = 0,
        form: Form = "steps",
    ) -> Transitions:
        """Draw transitions, uniformly and with replacement; `shift` in pixels moves images at random, not vectors."""
        if not len(self):
            raise ValueError("the replay is empty: add a step before sampling")
        drawn = self._first + rng.integers(len(self), size=batch)
        origin = self._origin[drawn % self.capacity]
        start = self._start[origin % self.capacity]
        arrivals = origin[:, None] + 1 + np.arange(self.n_step)
        slots = arrivals % self.capacity
        inside = (arrivals < self.frames) & (self._start[slots] == start[:, None])
        steps = inside.sum(axis=1)
        rewards = np.where(inside, self._worth(slots, discount, alpha, form), 0.0)
        last = origin + steps
        ended = self._terminated[last % self.capacity]
        return Transitions(
            observation=self._observations(origin, start, rng, shift),
            action=self._action[slots[:, 0]],
            reward=(rewards @ discount ** np.arange(self.n_step)).astype(np.float32),
            discount=np.where(ended, 0.0, discount**steps).astype(np.float32),
            next_observation=self._observations(last, start, rng, shift),
        )

    def _observations(self, frames: np.ndarray, starts: np.ndarray, rng: np.random.Generator, shift: int) -> np.ndarray:
        """The stacks at `frames` int (B,), of episodes that begin at `starts`."""
        if len(self.shape) == 1:
            return self._frames[frames % self.capacity]
        stacked = np.maximum(frames[:, None] + np.arange(1 - self.stack, 1), starts[:, None])
        return shifted_stacks(
            self._frames, stacked % self.capacity, rng.integers(-shift, shift + 1, size=(len(frames), 2))
        )

    def save(self, folder: Path) -> None:
        """Bring the save in `folder` up to date; only frames written since the last save are written.

        Until replay.json is replaced, the previous save is whole. Its frames are even kept until the next save, so that
        `load(folder, frames)` can go back by one: to the state that belongs to an agent saved before a kill.
        """
        folder = Path(folder)
        kept = self._segments if self._saved_in == folder.resolve() else []
        if not all((folder / segment.file).exists() for segment in kept):
            kept = []
        saved = kept[-1].end if kept else self.frames
        segments = [s for s in kept if s.end > saved - self.capacity]
        segments += self._write_segments(folder, max(saved if kept else 0, self.oldest))
        write_json(
            folder / STATE, {**self._description(), "frames": self.frames, "segments": list(map(asdict, segments))}
        )
        self._saved_in, self._segments = folder.resolve(), segments
        current = {segment.file for segment in segments}
        for file in folder.glob("*segment-*.safetensors"):  # those overwritten, and what killed saves left behind
            if file.name not in current:
                file.unlink()

    def load(self, folder: Path, frames: int | None = None) -> None:
        """Become the replay that was saved in `folder`, as it was when `frames` frames had been written (None: all)."""
        folder = Path(folder)
        state = _read_state(folder)
        for key, value in self._description().items():
            if state[key] != value:
                raise UserError(
                    f"{folder / STATE} has {key} {state[key]}, this run {value}: resume with the same settings"
                )
        frames = state["frames"] if frames is None else frames
        saved = [Segment(**segment) for segment in state["segments"]]
        _check_covered(folder, saved, max(0, frames - self.capacity), frames)
        for segment in saved:
            if segment.first < frames and segment.end > frames - self.capacity:
                self._read_segment(folder, segment, frames)
        self.frames = frames
        self._saved_in, self._segments = folder.resolve(), [s for s in saved if s.end <= frames]
        self._find_transitions()

    def _description(self) -> dict[str, Any]:
        return {"format": FORMAT, "capacity": self.capacity, "shape": list(self.shape), "actions": self.actions}

    def _columns(self) -> dict[str, np.ndarray]:
        """What a segment holds of each frame."""
        return {
            "frames": self._frames,
            "action": self._action,
            "dense": self._dense,
            "progress": self._progress,
            "success": self._success,
            "terminated": self._terminated,
            "start": self._start,
            **({"features": self._features} if self._features.shape[1] else {}),
        }

    def _write_segments(self, folder: Path, first: int) -> Iterator[Segment]:
        """Write frames first <= f < self.frames, under names that no file of an older save has."""
        number = 1 + max((int(file.stem.split("-")[1]) for file in folder.glob("segment-*.safetensors")), default=-1)
        for begin in range(first, self.frames, SEGMENT_FRAMES):
            end = min(begin + SEGMENT_FRAMES, self.frames)
            slots = np.arange(begin, end) % self.capacity
            name = f"segment-{number:05d}.safetensors"
            with atomic(folder / name) as temporary:
                temporary.write_bytes(save({key: column[slots] for key, column in self._columns().items()}))
            yield Segment(name, begin, end)
            number += 1

    def _read_segment(self, folder: Path, segment: Segment, frames: int) -> None:
        """Put the segment's frames that were alive when `frames` frames had been written into the ring."""
        path = folder / segment.file
        alive = np.arange(max(segment.first, frames - self.capacity), min(segment.end, frames))
        try:
            stored = load_file(path)
            for name, column in self._columns().items():
                column[alive % self.capacity] = stored[name][alive - segment.first]
        except (SafetensorError, OSError, KeyError, IndexError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): copy the folder again, or start a new run") from error

    def _find_transitions(self) -> None:
        """Rebuild the list of transitions from the frames."""
        alive = np.arange(self.oldest, self.frames)
        starts = self._start[alive % self.capacity]
        origins, begins = alive[:-1], starts[:-1]
        whole = np.maximum(begins, origins - self.stack + 1) >= self.oldest
        origins = origins[(begins == starts[1:]) & whole]
        self._first, self._end = 0, len(origins)
        self._shown = self._end
        self._origin[: len(origins)] = origins


def shifted_stacks(frames: np.ndarray, places: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Stack frames in the channels and move each stack, repeating its edges: DrQ's random shift.

    frames uint8 (N, H, W, C), places int (B, S), moves int (B, 2) in pixels -> uint8 (B, H, W, S*C). Pixel (y, x) of
    stack b is pixel (y + moves[b, 0], x + moves[b, 1]) of the frames at places[b], clipped to the image.

    A move is an offset in the flat image, so a channel is copied in one strided run, and what wrapped around the edges
    is painted over. Channel by channel and stack by stack, because numpy copies runs of 3 bytes eight times slower.
    """
    _, height, width, channels = frames.shape
    out = np.empty((len(places), height, width, places.shape[1] * channels), np.uint8)
    source, target = (array.reshape(len(array), height * width, -1) for array in (frames, out))
    for b, (stack, (dy, dx)) in enumerate(zip(places.tolist(), moves.tolist(), strict=True)):
        offset = dy * width + dx
        begin, end = max(0, -offset), height * width - max(0, offset)
        run = target[b, begin:end]
        for i, place in enumerate(stack):
            frame = source[place, begin + offset : end + offset]
            for c in range(channels):
                run[:, i * channels + c] = frame[:, c]
        _repeat_edge(out[b], dy)
        _repeat_edge(out[b].swapaxes(0, 1), dx)
    return out


def _repeat_edge(image: np.ndarray, move: int) -> None:
    """Fill what a move along the first axis left without source, with the last row that has one."""
    if move > 0:
        image[-move:] = image[-move - 1]
    elif move < 0:
        image[:-move] = image[-move]


def bytes_needed(capacity: int, shape: tuple[int, ...], actions: int, features: int = 0) -> int:
    """Bytes of a full replay."""
    frame = math.prod(shape) * (1 if len(shape) == 3 else 4)
    return capacity * (
        frame + 4 * actions + 2 * features + 4 + 4 + 1 + 1 + 8 + 8
    )  # dense, progress, success, terminated, start, origin


def available_memory(system: Path = Path("/")) -> int | None:
    """Bytes that can be allocated without swapping, or within a container's limit; None where the system is silent."""
    free = []
    meminfo, group = system / "proc/meminfo", system / "sys/fs/cgroup"
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        free += [int(lines["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in lines else []
    if (group / "memory.max").exists() and (limit := (group / "memory.max").read_text().strip()) != "max":
        used = int((group / "memory.current").read_text())
        held = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free.append(int(limit) - used + int(held["inactive_file"]))  # copies of files make room
    return min(free, default=None)


def _allocate(capacity: int, shape: tuple[int, ...], actions: int, features: int, folder: Path | None) -> np.ndarray:
    """The ring's frames; neither memory nor disk is taken before a frame is written."""
    needed = bytes_needed(capacity, shape, actions, features)
    dtype = np.uint8 if len(shape) == 3 else np.float32
    if folder is None:
        free = available_memory()
        if free is not None and needed > free:
            raise UserError(_too_large(capacity, needed, free, "memory") + " or --replay-on-disk")
        return np.empty((capacity, *shape), dtype)
    folder = Path(folder)
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise UserError(_too_large(capacity, needed, free, f"disk at {folder}"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "frames.map"
    file.unlink(missing_ok=True)  # not truncated: another process may still have it mapped
    # As a plain array: indexing an np.memmap takes several times as long.
    return np.asarray(np.memmap(file, dtype, "w+", shape=(capacity, *shape)))


def _too_large(capacity: int, needed: int, free: int, where: str) -> str:
    fits = int(0.8 * capacity * free / needed)  # the rest of the run needs some as well
    return (
        f"a replay of {capacity:,} frames needs {needed / 1e9:.1f} GB of {where}, {free / 1e9:.1f} GB are free: "
        f"pass --replay-capacity {fits}"
    )


def _read_state(folder: Path) -> dict[str, Any]:
    if not (folder / STATE).exists():
        raise UserError(f"{folder} holds no complete replay: it has no {STATE}; start a new run")
    state = read_json(folder / STATE)
    keys = {"format", "capacity", "shape", "actions", "frames", "segments"}
    if not isinstance(state, dict) or not keys <= state.keys():
        raise UserError(f"{folder / STATE} does not describe a replay: copy the folder again, or start a new run")
    return state


def _check_covered(folder: Path, segments: list[Segment], first: int, end: int) -> None:
    """Every frame first <= f < end must be in a segment."""
    reached = first
    for segment in segments:
        if segment.first <= reached:
            reached = max(reached, segment.end)
    if reached < end:
        raise UserError(f"{folder} lacks frames {reached} to {end} of the replay: start a new run")
