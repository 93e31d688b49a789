"""The replay against a list of everything that was ever written to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timerewarder.agents import replay as module
from timerewarder.agents.replay import Replay, Transitions, bytes_needed, shifted_stacks
from timerewarder.errors import UserError

SHAPE, ACTIONS = (2, 3, 3), 2


@dataclass
class Step:
    """A frame, and the step that arrived at it."""

    episode: int
    observation: np.ndarray
    action: np.ndarray
    dense: float
    success: bool
    terminated: bool


def image(number: int) -> np.ndarray:
    """A frame that tells which one it is."""
    frame = np.full(SHAPE, number % 7, np.uint8)
    frame[0, 0] = [number % 256, number // 256 % 256, number // 65536]
    return frame


def number_of(stack: np.ndarray) -> int:
    """The number of the newest frame in a stack (H, W, 3*stack)."""
    low, middle, high = stack[0, 0, -3:].tolist()
    return low + 256 * middle + 65536 * high


def write(replay: Replay, episodes: list[tuple[int, bool]], history: list[Step] | None = None) -> list[Step]:
    """Write episodes (steps, terminated at the end), go on from `history`; give all that was ever written."""
    history = list(history or [])
    for length, terminated in episodes:
        episode = history[-1].episode + 1 if history else 0
        for position in range(length + 1):
            n = len(history)
            rng = np.random.default_rng(n)
            action = rng.uniform(-1, 1, ACTIONS).astype(np.float32)
            last = terminated and position == length > 0
            step = Step(episode, image(n), action, float(np.float32(rng.normal())), bool(rng.random() < 0.3), last)
            if position == 0:
                replay.begin(step.observation)
            else:
                replay.add(step.action, step.observation, step.dense, step.success, step.terminated)
            history.append(step)
    return history


@given(
    episodes=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8),
    capacity=st.integers(6, 40),
    alpha=st.floats(0, 10),
)
def test_no_return_is_beyond_what_steps_are_worth(
    episodes: list[tuple[int, bool]], capacity: int, alpha: float
) -> None:
    """And a step in the ring, or the end of an episode, is worth as much as the bounds say."""
    discount, replay = 0.9, Replay(capacity, SHAPE, ACTIONS)
    history = write(replay, episodes)
    for form in ("steps", "progress"):
        worth = []
        for position, step in enumerate(history):
            before = [one.dense for one in history[: position + 1] if one.episode == step.episode]
            dense = step.dense if form == "steps" else (1 - discount) * sum(before[1:])
            first = len(before) == 1
            worth.append(0.0 if first else dense + alpha * step.success)
        low, high = replay.worth(discount, alpha, form)
        kept = [0.0, *worth[-capacity:]]
        assert (low, high) == (pytest.approx(min(kept), abs=1e-4), pytest.approx(max(kept), abs=1e-4))
        drawn = replay.sample(np.random.default_rng(0), 20, discount, alpha, form=form)
        ends = drawn.reward + drawn.discount * (high / (1 - discount))
        assert (ends <= high / (1 - discount) + 1e-3).all()


def stack_frames(history: list[Step], frame: int, stack: int) -> list[int]:
    """The frames in the stack at `frame`, oldest first; an episode's first frame stands for those before it."""
    numbers = [frame]
    for _ in range(stack - 1):
        before = numbers[0] - 1
        numbers.insert(0, before if before >= 0 and history[before].episode == history[frame].episode else numbers[0])
    return numbers


def drawable(history: list[Step], capacity: int, stack: int) -> set[int]:
    """The frames from which a transition can be drawn."""
    alive = range(max(0, len(history) - capacity), len(history))
    return {
        frame
        for frame in alive[:-1]
        if history[frame + 1].episode == history[frame].episode
        and all(number in alive for number in stack_frames(history, frame, stack))
    }


def expected(history: list[Step], frame: int, n_step: int, discount: float, alpha: float) -> tuple[float, float, int]:
    """n-step return, factor of the bootstrap, and the frame to bootstrap from, by the plain loop."""
    total, factor, at = 0.0, 1.0, frame
    while at < frame + n_step and at + 1 < len(history) and history[at + 1].episode == history[frame].episode:
        at += 1
        total += factor * (history[at].dense + alpha * history[at].success)
        factor = 0.0 if history[at].terminated else factor * discount
    return total, factor, at


def check_batch(
    batch: Transitions, history: list[Step], stack: int, n_step: int, discount: float, alpha: float
) -> set[int]:
    """Compare each transition, once, with the plain loop; give the frames that they leave."""
    origins = {number_of(observation): i for i, observation in enumerate(batch.observation)}
    for frame, i in origins.items():
        reward, factor, last = expected(history, frame, n_step, discount, alpha)
        for observation, at in ((batch.observation[i], frame), (batch.next_observation[i], last)):
            frames = [history[number].observation for number in stack_frames(history, at, stack)]
            np.testing.assert_array_equal(observation, np.concatenate(frames, axis=-1))
        np.testing.assert_array_equal(batch.action[i], history[frame + 1].action)
        assert batch.reward[i] == pytest.approx(reward, rel=1e-5, abs=1e-6)
        assert batch.discount[i] == pytest.approx(factor, rel=1e-6)
    return set(origins)


def assert_same(one: Transitions, other: Transitions) -> None:
    for field in fields(Transitions):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def draw(replay: Replay, seed: int = 0) -> Transitions:
    return replay.sample(np.random.default_rng(seed), 64, 0.9, 2.0, shift=1)


@settings(max_examples=60, deadline=None)
@given(
    episodes=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=12),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 5),
    spare=st.integers(0, 30),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    alpha=st.sampled_from([0.0, 1.0, 10.0]),
)
def test_batches_equal_the_plain_loop(
    episodes: list[tuple[int, bool]], stack: int, n_step: int, spare: int, discount: float, alpha: float
) -> None:
    replay = Replay(stack + n_step + spare, SHAPE, ACTIONS, stack=stack, n_step=n_step)
    history: list[Step] = []
    for episode in episodes:  # looked at after each episode: the ring is empty, partly full, and wrapped around
        history = write(replay, [episode], history)
        valid = drawable(history, replay.capacity, stack)
        assert len(replay) == len(valid)
        if valid:
            batch = replay.sample(np.random.default_rng(1), 30 * len(valid), discount, alpha)
            assert check_batch(batch, history, stack, n_step, discount, alpha) == valid


def progress_at(history: list[Step], frame: int) -> float:
    """What an episode's steps up to `frame` sum to; its first frame stands for none."""
    own = [step.dense for step in history[: frame + 1] if step.episode == history[frame].episode]
    return sum(own[1:])


@pytest.mark.parametrize(("n_step", "discount"), [(1, 0.9), (3, 0.97), (5, 0.5)])
@pytest.mark.parametrize("given_late", [False, True])
def test_progress_differs_from_steps_by_what_was_there_before_alone(
    n_step: int, discount: float, given_late: bool, tmp_path: Path
) -> None:
    """Steps: Σ d^k (p_k+1 - p_k) = (1 - d) Σ d^k p_k+1 - p_0 + d^m p_m, whatever the action; success counts in both."""
    replay = Replay(40, SHAPE, ACTIONS, n_step=n_step, held=given_late)
    history: list[Step] = []
    for episode in [(9, False), (4, True), (14, False), (20, False)]:  # the ring wraps around
        history = write(replay, [episode], history)
        if given_late:
            own = [step.dense for step in history if step.episode == history[-1].episode]
            replay.reward_episode(np.array([0.0, *own[1:]], np.float32))
    replay.save(tmp_path)
    loaded = Replay(40, SHAPE, ACTIONS, n_step=n_step, held=given_late)
    loaded.load(tmp_path)
    steps, progress = (
        ring.sample(np.random.default_rng(0), 200, discount, 2.0, form=form)
        for ring, form in ((replay, "steps"), (loaded, "progress"))
    )
    for i, observation in enumerate(steps.observation):
        frame = number_of(observation)
        _, _, last = expected(history, frame, n_step, discount, 2.0)
        before, after = progress_at(history, frame), progress_at(history, last)
        there = before - discount ** (last - frame) * after
        assert progress.reward[i] - steps.reward[i] == pytest.approx(there, abs=1e-4)


def test_a_step_can_be_drawn_at_once() -> None:
    replay = Replay(20, SHAPE, ACTIONS)
    rng = np.random.default_rng(0)
    replay.begin(image(0))
    assert len(replay) == 0
    for step in range(1, 5):
        replay.add(np.zeros(ACTIONS), image(step), 1.0, False)
        assert len(replay) == step
        batch = replay.sample(rng, 200, 0.5, 0.0)
        newest = [number_of(observation) == step - 1 for observation in batch.observation]
        assert any(newest)
        np.testing.assert_array_equal(batch.reward[newest], 1.0)  # one step so far
        np.testing.assert_array_equal(batch.discount[newest], 0.5)


def test_every_transition_is_as_likely_as_another() -> None:
    replay = Replay(40, SHAPE, ACTIONS)
    history = write(replay, [(1, False), (9, True), (0, False), (30, False), (2, True), (5, False)])
    valid = drawable(history, 40, 3)
    draws = 1000 * len(valid)
    batch = replay.sample(np.random.default_rng(0), draws, 0.99, 1.0)
    frames, counts = np.unique([number_of(observation) for observation in batch.observation], return_counts=True)
    assert set(frames.tolist()) == valid
    assert len(valid) < 40
    z = (counts - 1000) / np.sqrt(1000 * (1 - 1 / len(valid)))
    assert np.abs(z).max() < 4
    assert (z**2).sum() < 2 * len(valid)


def test_alpha_counts_for_the_past() -> None:
    replay = Replay(20, SHAPE, ACTIONS, n_step=1)
    replay.begin(image(0))
    replay.add(np.zeros(ACTIONS), image(1), 0.25, True)
    rewards = [replay.sample(np.random.default_rng(0), 1, 0.99, alpha).reward[0] for alpha in (0.0, 3.0)]
    assert rewards == [0.25, 3.25]


def test_termination_ends_the_bootstrap_and_truncation_does_not() -> None:
    for terminated, last in ((True, 0.0), (False, 0.5)):
        replay = Replay(20, SHAPE, ACTIONS, n_step=3)
        replay.begin(image(0))
        replay.add(np.zeros(ACTIONS), image(1), 1.0, False, terminated)
        replay.begin(image(2))
        batch = replay.sample(np.random.default_rng(0), 1, 0.5, 0.0)
        assert batch.discount[0] == last
        assert number_of(batch.next_observation[0]) == 1


def test_steps_need_an_episode() -> None:
    replay = Replay(20, SHAPE, ACTIONS)
    with pytest.raises(RuntimeError, match="begin"):
        replay.add(np.zeros(ACTIONS), image(0), 0.0, False)
    replay.begin(image(0))
    replay.add(np.zeros(ACTIONS), image(1), 0.0, False, terminated=True)
    with pytest.raises(RuntimeError, match="begin"):
        replay.add(np.zeros(ACTIONS), image(2), 0.0, False)


def test_wrong_observations_are_refused() -> None:
    replay = Replay(20, SHAPE, ACTIONS)
    with pytest.raises(ValueError, match="must be uint8"):
        replay.begin(np.zeros(SHAPE, np.float32))
    with pytest.raises(ValueError, match=r"must be uint8 \(2, 3, 3\)"):
        replay.begin(np.zeros((2, 3, 1), np.uint8))  # numpy would repeat it
    with pytest.raises(ValueError, match="empty"):
        draw(replay)
    with pytest.raises(ValueError, match="stack"):
        Replay(20, (4,), ACTIONS)
    with pytest.raises(UserError, match="--replay-capacity 6"):
        Replay(5, SHAPE, ACTIONS)


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    shift=st.integers(0, 4),
    stack=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_shift_equals_padding_and_cropping(size: tuple[int, int], shift: int, stack: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (6, *size, 3), dtype=np.uint8)
    places = rng.integers(6, size=(8, stack))
    moves = rng.integers(-shift, shift + 1, size=(8, 2))
    shifted = shifted_stacks(frames, places, moves)
    assert shifted.flags.c_contiguous
    for b, (dy, dx) in enumerate(moves):
        whole = np.concatenate([frames[place] for place in places[b]], axis=-1)
        padded = np.pad(whole, ((shift, shift), (shift, shift), (0, 0)), mode="edge")
        crop = padded[shift + dy : shift + dy + size[0], shift + dx : shift + dx + size[1]]
        np.testing.assert_array_equal(shifted[b], crop)


def test_shifts_are_uniform_and_independent() -> None:
    """One frame for all: whatever differs in the batch comes from the shift."""
    replay = Replay(10, (5, 5, 3), ACTIONS, stack=2)
    frame = np.arange(25, dtype=np.uint8).reshape(5, 5, 1).repeat(3, axis=2)
    replay.begin(frame)
    replay.add(np.zeros(ACTIONS), frame, 0.0, False)
    batch = replay.sample(np.random.default_rng(0), 9 * 9 * 200, 0.99, 0.0, shift=1)
    for observation in (batch.observation, batch.next_observation):
        np.testing.assert_array_equal(observation[..., :3], observation[..., 3:])  # stacked frames move together
    centres = [observation[:, 2, 2, 0].astype(int) for observation in (batch.observation, batch.next_observation)]
    pairs, counts = np.unique(centres, axis=1, return_counts=True)
    assert set(pairs[0]) == {6, 7, 8, 11, 12, 13, 16, 17, 18}
    assert len(counts) == 81
    assert np.abs(counts - 200).max() < 4.5 * np.sqrt(200)


def test_vectors() -> None:
    replay = Replay(6, (2,), ACTIONS, stack=1, n_step=2)
    replay.begin(np.array([0.0, 0.5]))
    for step in range(1, 9):
        replay.add(np.full(ACTIONS, step), np.array([step, 0.5]), step, False)
    assert len(replay) == 5
    batch = replay.sample(np.random.default_rng(0), 300, 0.5, 0.0, shift=4)
    at = batch.observation[:, 0]
    assert batch.observation.dtype == np.float32
    assert set(at) == {3, 4, 5, 6, 7}
    np.testing.assert_array_equal(batch.observation[:, 1], 0.5)
    np.testing.assert_array_equal(batch.action[:, 0], at + 1)
    np.testing.assert_array_equal(batch.next_observation[:, 0], np.minimum(at + 2, 8))
    np.testing.assert_array_equal(batch.reward, np.where(at == 7, 8, at + 1 + 0.5 * (at + 2)))
    np.testing.assert_array_equal(batch.discount, np.where(at == 7, 0.5, 0.25))


def test_types_and_shapes() -> None:
    replay = Replay(20, SHAPE, ACTIONS)
    write(replay, [(8, False)])
    batch = draw(replay)
    shapes = {field.name: getattr(batch, field.name).shape for field in fields(Transitions)}
    assert shapes == {
        "observation": (64, 2, 3, 9),
        "action": (64, ACTIONS),
        "reward": (64,),
        "discount": (64,),
        "next_observation": (64, 2, 3, 9),
    }
    assert batch.observation.dtype == batch.next_observation.dtype == np.uint8
    assert batch.action.dtype == batch.reward.dtype == batch.discount.dtype == np.float32


def test_bytes_a_transition() -> None:
    """84 px and episodes of 62 steps: at most 22,000 bytes, and as many as the arrays really have."""
    replay = Replay(500, (84, 84, 3), 4)
    frame = np.zeros((84, 84, 3), np.uint8)
    for _ in range(10):
        replay.begin(frame)
        for _ in range(62):
            replay.add(np.zeros(4), frame, 0.0, False)
    needed = bytes_needed(500, (84, 84, 3), 4)
    assert needed / len(replay) <= 22_000
    assert needed == sum(value.nbytes for value in vars(replay).values() if isinstance(value, np.ndarray))


@pytest.mark.parametrize(("limit", "free"), [("max", 8_000 * 1024), (None, 8_000 * 1024), ("5000000", 4_300_000)])
def test_a_containers_limit_counts(limit: str | None, free: int, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 16000 kB\nMemAvailable: 8000 kB\n")
    if limit:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
        (tmp_path / "sys/fs/cgroup/memory.current").write_text("1000000\n")
        (tmp_path / "sys/fs/cgroup/memory.stat").write_text("anon 700000\ninactive_file 300000\n")
    assert module.available_memory(tmp_path) == free
    assert module.available_memory(tmp_path / "another system") is None


def test_too_little_memory_or_disk_is_refused(tmp_path: Path) -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("this system does not say how much memory is free")
    with pytest.raises(
        UserError, match=r"needs 2121\d\d\d\.\d GB of memory.* --replay-capacity \d+ or --replay-on-disk"
    ):
        Replay(10**11, (84, 84, 3), 4)
    with pytest.raises(UserError, match=r"GB of disk at .*--replay-capacity \d+$"):
        Replay(10**13, (84, 84, 3), 4, folder=tmp_path)


def test_frames_on_disk_are_drawn_and_saved_alike(tmp_path: Path) -> None:
    in_memory, on_disk = Replay(40, SHAPE, ACTIONS), Replay(40, SHAPE, ACTIONS, folder=tmp_path / "ring")
    for replay in (in_memory, on_disk):
        write(replay, [(30, True), (25, False)])
    assert_same(draw(in_memory), draw(on_disk))
    assert sum(file.stat().st_size for file in (tmp_path / "ring").iterdir()) == 40 * 18
    on_disk.save(tmp_path / "save")
    other = Replay(40, SHAPE, ACTIONS, folder=tmp_path / "ring")  # a new run in the place of the old one
    other.load(tmp_path / "save")
    assert_same(draw(in_memory), draw(other))
    assert_same(draw(in_memory), draw(on_disk))


@settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=4), min_size=1, max_size=5),
    segment_frames=st.integers(1, 20),
)
def test_loaded_equals_saved(
    parts: list[list[tuple[int, bool]]], segment_frames: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Saved after every part; loaded each time, and once more as it was one save before. Both go on alike."""
    folder = tmp_path_factory.mktemp("replay")
    replay, history, frames, past = Replay(16, SHAPE, ACTIONS), [], 0, None
    for episodes in parts:
        history = write(replay, episodes, history)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "SEGMENT_FRAMES", segment_frames)
            replay.save(folder)
        loaded, before = Replay(16, SHAPE, ACTIONS), Replay(16, SHAPE, ACTIONS)
        loaded.load(folder)
        before.load(folder, frames)
        assert len(loaded) == len(replay)
        if len(replay):
            assert_same(draw(replay), draw(loaded))
        if past is not None:
            assert_same(past, draw(before))
        write(before, episodes, history[:frames])
        write(loaded, [(5, True)], history)
        assert len(before) == len(replay)
        if len(replay):
            assert_same(draw(replay), draw(before))
        frames, past = replay.frames, draw(replay) if len(replay) else None


def test_an_episode_goes_on_after_loading(tmp_path: Path) -> None:
    replay, loaded = Replay(20, SHAPE, ACTIONS), Replay(20, SHAPE, ACTIONS)
    write(replay, [(4, False)])
    replay.save(tmp_path)
    loaded.load(tmp_path)
    for each in (replay, loaded):
        each.add(np.zeros(ACTIONS), image(5), 1.0, False, terminated=True)
    assert_same(draw(replay), draw(loaded))


def test_going_back_by_one_save_forgets_what_came_after(tmp_path: Path) -> None:
    replay = Replay(40, SHAPE, ACTIONS)
    history = write(replay, [(9, False)])
    replay.save(tmp_path)
    write(replay, [(9, False)], history)
    replay.save(tmp_path)
    replay.load(tmp_path, frames=10)
    write(replay, [(3, True), (12, True)], history)  # another course than before
    replay.save(tmp_path)
    loaded = Replay(40, SHAPE, ACTIONS)
    loaded.load(tmp_path)
    assert_same(draw(replay), draw(loaded))


def segments(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*segment*")}


def test_a_save_writes_only_what_is_new(tmp_path: Path) -> None:
    replay = Replay(40, SHAPE, ACTIONS)
    history = write(replay, [(19, False)])
    replay.save(tmp_path)
    first = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("segment*")}
    history = write(replay, [(9, False)], history)
    replay.save(tmp_path)
    saved = json.loads((tmp_path / "replay.json").read_text())["segments"]
    assert [(segment["first"], segment["end"]) for segment in saved] == [(0, 20), (20, 30)]
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in first} == first
    replay.save(tmp_path)
    assert len(segments(tmp_path)) == 2
    history = write(replay, [(39, False)], history)  # everything before is overwritten, ...
    replay.save(tmp_path)
    assert len(segments(tmp_path)) == 3  # ... but needed to go back by one save
    write(replay, [(1, False)], history)
    replay.save(tmp_path)
    assert [segment["first"] for segment in json.loads((tmp_path / "replay.json").read_text())["segments"]] == [30, 70]
    assert segments(tmp_path) == {"segment-00002.safetensors", "segment-00003.safetensors"}


def test_a_save_into_another_folder_is_whole(tmp_path: Path) -> None:
    replay = Replay(40, SHAPE, ACTIONS)
    write(replay, [(19, False)])
    for name in ("one", "two", "one"):
        replay.save(tmp_path / name)
        loaded = Replay(40, SHAPE, ACTIONS)
        loaded.load(tmp_path / name)
        assert_same(draw(replay), draw(loaded))
    next((tmp_path / "one").glob("segment*")).unlink()  # lost: the next save mends it
    replay.save(tmp_path / "one")
    loaded.load(tmp_path / "one")
    assert_same(draw(replay), draw(loaded))


def test_an_unfinished_save_leaves_the_one_before(tmp_path: Path) -> None:
    """What a kill can leave before replay.json is replaced: new segments, and the beginning of one more."""
    replay = Replay(16, SHAPE, ACTIONS)
    history = write(replay, [(12, False)])
    replay.save(tmp_path)
    saved, state, old = draw(replay), (tmp_path / "replay.json").read_bytes(), segments(tmp_path)
    write(replay, [(15, False)], history)
    replay.save(tmp_path)
    (new,) = segments(tmp_path) - old
    content = (tmp_path / new).read_bytes()
    (tmp_path / "replay.json").write_bytes(state)
    for new_is_there in (True, False):
        if not new_is_there:
            (tmp_path / new).unlink()
        (tmp_path / f".{new.removesuffix('.safetensors')}.1-2.tmp.safetensors").write_bytes(content[:40])
        loaded = Replay(16, SHAPE, ACTIONS)
        loaded.load(tmp_path)
        assert_same(saved, draw(loaded))
    write(loaded, [(15, False)], history)
    loaded.save(tmp_path)
    assert segments(tmp_path) == old | {new}  # what the kill left is gone
    again = Replay(16, SHAPE, ACTIONS)
    again.load(tmp_path)
    assert_same(draw(replay), draw(again))


CHILD = """
import sys
from pathlib import Path
from tests.agents.test_replay import ACTIONS, SHAPE, Replay, write
from timerewarder.agents import replay as module

module.SEGMENT_FRAMES = 7
replay, history = Replay(100, SHAPE, ACTIONS, folder=Path(sys.argv[1])), []
for i in range(100_000):
    history = write(replay, [(i % 30, i % 2 == 0)], history)
    replay.save(Path(sys.argv[1]))
    print(i, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs kill -9")
def test_kill_in_the_midst_of_saving(tmp_path: Path) -> None:
    """A process that does nothing but save is killed; what it leaves is one of its saves, not a mixture."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, tmp_path], cwd=root, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        printed = [child.stdout.readline() for _ in range(40)]
        child.send_signal(signal.SIGKILL)
        printed += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    done = len(printed)
    loaded, replay, history = Replay(100, SHAPE, ACTIONS), Replay(100, SHAPE, ACTIONS), []
    loaded.load(tmp_path)
    for i in range(done):
        history = write(replay, [(i % 30, i % 2 == 0)], history)
    if loaded.frames > replay.frames:  # it was killed between the save and the print
        write(replay, [(done % 30, done % 2 == 0)], history)
    assert loaded.frames == replay.frames
    assert_same(draw(replay), draw(loaded))


def test_bad_saves_are_refused(tmp_path: Path) -> None:
    replay = Replay(20, SHAPE, ACTIONS)
    with pytest.raises(UserError, match=r"has no replay\.json"):
        replay.load(tmp_path)
    write(replay, [(9, False)])
    replay.save(tmp_path)
    for other, what in (
        (Replay(21, SHAPE, ACTIONS), "capacity 20, this run 21"),
        (Replay(20, (3, 2, 3), ACTIONS), r"shape \[2, 3, 3\], this run \[3, 2, 3\]"),
        (Replay(20, SHAPE, ACTIONS + 1), "actions 2, this run 3"),
    ):
        with pytest.raises(UserError, match=what):
            other.load(tmp_path)
    with pytest.raises(UserError, match="lacks frames 10 to 11"):
        replay.load(tmp_path, frames=11)
    file = tmp_path / "segment-00000.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"segment-00000\.safetensors cannot be read"):
        replay.load(tmp_path)
    file.unlink()
    with pytest.raises(UserError, match=r"segment-00000\.safetensors cannot be read"):
        replay.load(tmp_path)
    (tmp_path / "replay.json").write_text("[]")
    with pytest.raises(UserError, match="does not describe a replay"):
        replay.load(tmp_path)
