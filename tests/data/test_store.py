from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.sample_videos import cut, encode, numbered, numbers, scene
from timerewarder.data.cache import cache_folder
from timerewarder.data.resize import resize
from timerewarder.data.source import Opening
from timerewarder.data.store import FrameStore, open_store
from timerewarder.data.videos import read_videos
from timerewarder.errors import UserError


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def mixed(folder: Path) -> Path:
    """Videos of many formats, sizes, lengths and rates."""
    encode(folder / "a.mp4", scene(12, 48, 64, seed=1), fps=10)
    encode(folder / "b.webm", scene(20, 32, 32, seed=2), fps=25)
    encode(folder / "c.avi", scene(7, 80, 64, seed=3), fps=5)
    np.save(folder / "d.npy", scene(9, 40, 40, seed=4))
    np.savez(folder / "e.npz", x=scene(5, 30, 50, seed=5), y=scene(6, 50, 30, seed=6))
    (folder / "f").mkdir()
    for number, frame in enumerate(scene(11, 20, 70, seed=7)):
        Image.fromarray(frame).save(folder / f"f/{number}.png")
    return folder


def state(cache: Path) -> dict[str, tuple[int, int]]:
    """Every file of the cache with what a rewrite would change."""
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in (cache / "frames").iterdir()}


def contents(store: FrameStore) -> list[np.ndarray]:
    return [store.frames(i, range(store.lengths[i])) for i in range(len(store))]


@pytest.mark.parametrize(("how", "fps"), [("squash", None), ("crop", 8)])
def test_the_store_holds_what_the_reader_reads(mixed: Path, cache: Path, how: str, fps: float | None) -> None:
    store = open_store(mixed, 40, how, Opening(fps), cache=cache)
    videos = list(read_videos(mixed, fps))
    assert store.names == tuple(v.name for v in videos) == ("a", "b", "c", "d", "e/x", "e/y", "f")
    assert store.lengths.tolist() == [len(v.frames) for v in videos]
    assert store.lengths.dtype == np.int64
    assert store.fps.tolist() == [v.fps for v in videos]
    assert (len(store), store.size) == (7, 40)
    for got, video in zip(contents(store), videos, strict=True):
        assert np.array_equal(got, resize(video.frames, 40, how))


def test_frames_at_random(folder: Path, cache: Path) -> None:
    np.save(folder / "a.npy", numbered(20))
    store = open_store(folder, 32, cache=cache)
    got = store.frames(0, np.array([7, 3, 3, 19, -1]))
    assert numbers(got) == [7, 3, 3, 19, 19]
    got[:] = 0  # a copy
    assert numbers(store.frames(0, [7])) == [7]
    assert store.frames(0, []).shape == (0, 32, 32, 3)
    with pytest.raises(IndexError):
        store.frames(0, [20])


def test_a_second_opening_decodes_nothing(mixed: Path, cache: Path) -> None:
    first = open_store(mixed, 24, cache=cache)
    before = state(cache)
    second = open_store(mixed, 24, cache=cache)
    assert state(cache) == before
    assert second.fps.tolist() == first.fps.tolist()
    assert all(map(np.array_equal, contents(first), contents(second)))


def test_a_video_is_known_by_its_content_and_the_settings(folder: Path, cache: Path) -> None:
    path = encode(folder / "a.mp4", scene(10))
    first = open_store(path, 24, cache=cache)
    path.rename(folder / "moved.mp4")
    moved = open_store(folder, 24, cache=cache)
    assert moved.files == first.files
    assert moved.names == ("moved",)
    assert moved.fingerprint == first.fingerprint
    others = [open_store(folder, 25, cache=cache), open_store(folder, 24, "crop", cache=cache)]
    others += [open_store(folder, 24, opening=Opening(3), cache=cache)]
    encode(folder / "moved.mp4", scene(10, seed=1))
    others += [open_store(folder, 24, cache=cache)]
    assert len({first.fingerprint, *(store.fingerprint for store in others)}) == 5


def test_the_order_of_pictures_counts(folder: Path, cache: Path) -> None:
    for number, frame in enumerate(scene(3, 8, 8)):
        Image.fromarray(frame).save(folder / f"{number}.png")
    first = open_store(folder, 8, cache=cache)
    (folder / "0.png").rename(folder / "9.png")
    assert np.array_equal(contents(open_store(folder, 8, cache=cache))[0], np.roll(contents(first)[0], -1, axis=0))


def test_copies_are_two_videos_in_one_file(folder: Path, cache: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        encode(folder / name, scene(10))
    store = open_store([folder, folder / "a.mp4"], 24, cache=cache)
    assert store.names == ("a", "b")
    assert store.files[0] == store.files[1]


@pytest.mark.parametrize("damage", ["cut", "longer", "no header", "no json", "json"])
def test_a_damaged_cache_is_mended(folder: Path, cache: Path, damage: str) -> None:
    np.save(folder / "a.npy", scene(10, 24, 24))
    (file,) = open_store(folder, 24, cache=cache).files
    whole = file.read_bytes()
    if damage == "cut":
        cut(file, 0.5)
    elif damage == "longer":
        file.write_bytes(file.read_bytes() + b"x")
    elif damage == "no header":
        file.write_bytes(b"x" + file.read_bytes()[1:])
    elif damage == "no json":
        file.with_suffix(".json").unlink()
    else:
        file.with_suffix(".json").write_text(json.dumps([1]))
    store = open_store(folder, 24, cache=cache)
    assert np.array_equal(contents(store)[0], scene(10, 24, 24))
    assert store.fps == [10]
    assert file.read_bytes() == whole


def test_a_cached_file_is_an_ordinary_npy(folder: Path, cache: Path) -> None:
    np.save(folder / "a.npy", scene(10, 24, 24))
    (file,) = open_store(folder, 24, cache=cache).files
    assert np.array_equal(np.load(file), scene(10, 24, 24))


def test_a_cache_that_goes_away(folder: Path, cache: Path) -> None:
    np.save(folder / "a.npy", scene(10))
    store = open_store(folder, 24, cache=cache)
    store.files[0].unlink()
    with pytest.raises(UserError, match="gone from the frame cache"):
        store.frames(0, [1])


def test_subset(mixed: Path, cache: Path) -> None:
    store = open_store(mixed, 24, cache=cache)
    some = store.subset(np.array([3, 0]))
    assert some.names == ("d", "a")
    assert some.lengths.tolist() == [9, 12]
    assert some.fps.tolist() == [10, 10]
    assert np.array_equal(some.frames(0, [2]), store.frames(3, [2]))
    assert some.fingerprint != store.fingerprint
    assert len(store.subset([])) == 0


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_reading_leaves_nothing_open_and_nothing_mapped(folder: Path, cache: Path) -> None:
    for number in range(30):
        np.save(folder / f"{number}.npy", scene(5, 24, 24, seed=number))
    store = open_store(folder, 24, cache=cache)
    before = len(os.listdir("/proc/self/fd"))
    kept = [store.frames(i, [1, 2]) for i in range(30)]
    assert len(kept) == 30
    assert len(os.listdir("/proc/self/fd")) == before
    assert str(cache) not in Path("/proc/self/maps").read_text()


# --- bad input


def spoil(folder: Path, count: int) -> None:
    for number in range(count):
        cut(encode(folder / f"bad{number}.mp4", scene(30), movflags="+faststart"), 0.8)


def test_all_bad_videos_are_named_at_once(folder: Path, cache: Path) -> None:
    encode(folder / "good.mp4", scene(10))
    spoil(folder, 2)
    np.save(folder / "one.npy", scene(1))
    (folder / "text.mp4").write_text("hello")
    with pytest.raises(UserError) as caught:
        open_store(folder, 24, cache=cache)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("4 of 5 videos cannot be read: ")
    assert message.endswith(": mend or remove them, or pass --skip-bad")
    for part in ("bad0.mp4 (is cut off", "bad1.mp4 (is cut off", "one.npy (has one frame;", "text.mp4 (cannot be"):
        assert part in message
    spoil(folder, 9)
    with pytest.raises(UserError) as caught:
        open_store(folder, 24, cache=cache)
    assert str(caught.value).count(".mp4") == 5
    assert ", ...: mend" in str(caught.value)


def test_skip_bad(folder: Path, cache: Path) -> None:
    encode(folder / "good.mp4", scene(10))
    spoil(folder, 2)
    with pytest.warns(UserWarning, match=r"skipped .*bad[01].mp4: is cut off") as caught:
        store = open_store(folder, 24, opening=Opening(skip_bad=True), cache=cache)
    assert (store.names, len(caught)) == (("good",), 2)
    (folder / "good.mp4").unlink()
    with pytest.raises(UserError, match="2 of 2 videos cannot be read"):
        open_store(folder, 24, opening=Opening(skip_bad=True), cache=cache)
    assert len(state(cache)) == 2  # nothing of the bad ones


def test_a_link_to_nowhere(folder: Path, cache: Path) -> None:
    (folder / "a.mp4").symlink_to(folder / "nothing")
    with pytest.raises(UserError, match=r"a\.mp4 \(cannot be read"):
        open_store(folder, 24, cache=cache)


def test_a_cache_folder_that_cannot_be_written(folder: Path, cache: Path) -> None:
    np.save(folder / "a.npy", scene(3))
    cache.write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"cannot write to the frame cache .*cache.*set TIMEREWARDER_CACHE"):
        open_store(folder, 24, cache=cache)


def run(script: str, *args: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_no_space_left(folder: Path, cache: Path) -> None:
    """A limit on the size of files stands in for a full disk: writing fails in the middle of a video."""
    np.save(folder / "a.npy", scene(200, 24, 24))
    script = """
import resource, sys
from pathlib import Path
from timerewarder.data.store import open_store
from timerewarder.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    open_store(sys.argv[1], 24, cache=Path(sys.argv[2]))
except UserError as error:
    print("UserError:", error)
"""
    output = run(script, folder, cache).communicate(timeout=120)[0]
    assert f"UserError: cannot write to the frame cache {cache / 'frames'} (" in output
    assert "free some space there, or set TIMEREWARDER_CACHE" in output
    assert state(cache) == {}


def test_two_processes_at_once(folder: Path, cache: Path) -> None:
    for number in range(12):
        encode(folder / f"{number}.mp4", scene(40, seed=number))
    script = """
import sys
from pathlib import Path
from timerewarder.data.store import open_store
store = open_store(sys.argv[1], 24, cache=Path(sys.argv[2]))
print("sum", sum(int(store.frames(i, range(40)).sum()) for i in range(len(store))))
"""
    sums = {p.communicate(timeout=120)[0].split("sum")[-1] for p in [run(script, folder, cache) for _ in range(2)]}
    store = open_store(folder, 24, cache=cache)
    assert sums == {f" {sum(int(frames.sum()) for frames in contents(store))}\n"}
    assert len(state(cache)) == 24


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIMEREWARDER_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("TIMEREWARDER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "timerewarder"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "timerewarder"
