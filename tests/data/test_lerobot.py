"""LeRobot datasets: the frames that LeRobot's own reader returns, episodes cut at any place, and what damage gets."""

from __future__ import annotations

import json
import shutil
import sys
import tracemalloc
import warnings
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.lerobot_sets import (
    FPS,
    IMAGES,
    SMALL,
    TOP,
    change_info,
    change_rows,
    move_episodes,
    numbered_episode,
    numbers_of,
    png,
    write_dataset,
    write_table,
)
from tests.data.sample_videos import encode, numbered, numbers
from timerewarder.data import store as store_module
from timerewarder.data.resize import resize
from timerewarder.data.source import Episode, Opening
from timerewarder.data.store import open_store
from timerewarder.data.videos import BadVideo, read_videos
from timerewarder.errors import UserError

TABLE = "meta/episodes/chunk-000/file-000.parquet"
MP4 = f"videos/{TOP}/chunk-000/file-000.mp4"
LENGTHS = (4, 6, 5, 3)


def truth(dataset: Path) -> tuple[dict, dict[str, np.ndarray]]:
    described = json.loads(dataset.with_name(f"{dataset.name}_truth.json").read_text())
    with np.load(dataset.with_name(f"{dataset.name}_truth.npz")) as arrays:
        return described, dict(arrays)


def grid(frames: np.ndarray) -> np.ndarray:
    """(T, 84, 84, 3) -> averages of boxes (T, 6, 6, 3)."""
    return frames.reshape(-1, 6, 14, 6, 14, 3).mean((2, 4))


@pytest.fixture
def copy(folder: Path) -> Path:
    """The small dataset, to be damaged."""
    return shutil.copytree(SMALL, folder / "set")


# --- the same as LeRobot reads


@pytest.mark.parametrize("dataset", [SMALL, IMAGES])
def test_every_frame_is_lerobots(dataset: Path) -> None:
    described, arrays = truth(dataset)
    videos = list(read_videos(dataset))
    assert len(videos) == len(described["episodes"])
    first = 0
    for index, (video, expected) in enumerate(zip(videos, described["episodes"], strict=True)):
        length = int(arrays["num_frames"][index])
        assert video.name == f"{dataset.name}/episode_{index:06d}"
        assert (video.task, video.fps) == (expected["task"], described["fps"])
        assert video.episode == Episode(index, first, length)
        assert video.frames.shape == (length, 84, 84, 3)
        key = f"episode_{index:03d}__{TOP}"
        rgb, boxes = arrays[f"{key}__rgb"], arrays[f"{key}__grid6"].astype(np.float64)
        assert np.abs(video.frames.mean((1, 2)) - rgb).max() < 1e-4  # one pixel off by one is 1.4e-4
        assert np.abs(grid(video.frames) - boxes).max() < 0.07  # they are kept in half precision
        # The test can tell a shift of one frame.
        assert np.abs(video.frames[1:].mean((1, 2)) - rgb[:-1]).max() > 0.01
        assert np.abs(grid(video.frames[1:]) - boxes[:-1]).max() > 3
        first += length


@pytest.mark.parametrize("dataset", [SMALL, IMAGES])
def test_resampling(dataset: Path) -> None:
    for half, video in zip(read_videos(dataset, fps=5), read_videos(dataset), strict=True):
        assert half.fps == 5
        assert np.array_equal(half.frames, video.frames[::2])
        assert (half.task, half.episode) == (video.task, video.episode)


def test_other_videos_have_no_task_and_no_episode(folder: Path) -> None:
    (video,) = read_videos(encode(folder / "a.mp4", numbered(3)))
    assert (video.task, video.episode) == (None, None)


# --- episodes and files


@pytest.mark.parametrize("kind", ["video", "image"])
@pytest.mark.parametrize(("files", "tables"), [((), ()), ((1, 3), (2,)), ((2,), (1, 2, 3))])
def test_files_and_tables_are_cut_at_different_episodes(folder: Path, kind: str, files: tuple, tables: tuple) -> None:
    dataset = write_dataset(folder / "set", LENGTHS, kind=kind, files=files, tables=tables)
    videos = list(read_videos(dataset))
    assert [numbers(video.frames) for video in videos] == [numbers_of(e, n) for e, n in enumerate(LENGTHS)]
    assert [video.episode.first for video in videos] == [0, 4, 10, 15]
    assert len({video.path for video in videos}) == len(files) + 1


def test_the_nearest_frame_not_the_one_before(folder: Path) -> None:
    """Times in the file that are now a little early, now a little late."""
    dataset = write_dataset(folder / "set", LENGTHS)
    frames = np.concatenate([numbered_episode(e, n) for e, n in enumerate(LENGTHS)])
    times = [0.2 + number / FPS + (-1) ** number * 0.03 for number in range(len(frames))]
    encode(dataset / MP4, frames, FPS, times)
    move_episodes(dataset, 0.2)
    videos = list(read_videos(dataset))
    assert [numbers(video.frames) for video in videos] == [numbers_of(e, n) for e, n in enumerate(LENGTHS)]


def test_key_frames_far_apart(folder: Path) -> None:
    dataset = write_dataset(folder / "set", LENGTHS, options={"g": "500", "bf": "3", "preset": "medium"})
    videos = list(read_videos(dataset))
    assert [numbers(video.frames) for video in videos] == [numbers_of(e, n) for e, n in enumerate(LENGTHS)]


def test_only_the_episode_is_decoded(copy: Path) -> None:
    """Damage at the beginning of the shared file spoils the first episode alone."""
    whole = [video.frames for video in read_videos(copy)]
    with av.open(str(copy / MP4)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    with (copy / MP4).open("r+b") as file:
        for position, size in packets[:4]:
            file.seek(position)
            file.write(b"\xff" * size)
    first, *others = read_videos(copy)
    with pytest.raises(BadVideo, match=r"file-000\.mp4: episode 0: cannot be decoded as a video"):
        _ = first.frames
    assert all(np.array_equal(video.frames, frames) for video, frames in zip(others, whole[1:], strict=True))
    with pytest.warns(UserWarning, match=r"skipped .*file-000\.mp4: episode 0: "):
        assert [video.episode.index for video in read_videos(copy, skip_bad=True)] == [1, 2, 3, 4, 5]
    with pytest.raises(UserError, match=r"1 of 6 videos cannot be read: .*file-000\.mp4 \(episode 0: "):
        open_store(copy, 24, cache=copy.parent / "cache")


def test_memory_is_flat(folder: Path) -> None:
    """12 MB of pictures in one group of rows, of which a few are in memory at a time."""
    noise = np.random.default_rng(0).integers(0, 256, (4, 200, 200, 3), dtype=np.uint8)
    pictures = [png(picture) for picture in noise]
    dataset = write_dataset(folder / "set", (50, 50), kind="image")
    rows = [{"frame_index": n % 50, "episode_index": n // 50, TOP: {"bytes": pictures[n % 4]}} for n in range(100)]
    write_table(dataset / "data/chunk-000/file-000.parquet", rows, use_dictionary=False, write_batch_size=4)
    video = list(read_videos(dataset))[1]
    assert sum(len(chunk) for chunk in video.chunks(4)) == 50  # and what is imported once is
    tracemalloc.start()
    assert max(pa.total_allocated_bytes() for _ in video.chunks(4)) < 8e6
    assert tracemalloc.get_traced_memory()[1] < 6e6
    tracemalloc.stop()


# --- among other videos


def test_datasets_and_files_mixed(folder: Path) -> None:
    encode(folder / "clips" / "a.mp4", numbered(5))
    shutil.copytree(IMAGES, folder / "more" / "drawers")
    videos = list(read_videos([SMALL, folder]))
    assert [video.name for video in videos] == [
        *(f"lerobot_v3_small/episode_{index:06d}" for index in range(6)),
        "clips/a",
        *(f"more/drawers/episode_{index:06d}" for index in range(3)),
    ]
    assert [video.task is None for video in videos] == [*[False] * 6, True, *[False] * 3]


def test_names_are_unique(folder: Path) -> None:
    for place in ("a/set", "b/set"):
        write_dataset(folder / place, (3,))
    assert [v.name for v in read_videos([folder / "a/set", folder / "b/set"])] == [
        "a/set/episode_000000",
        "b/set/episode_000000",
    ]
    assert [v.name for v in read_videos([folder / "a/set", folder])] == ["set/episode_000000", "b/set/episode_000000"]


def test_a_part_of_a_dataset_is_a_plain_folder() -> None:
    (video,) = read_videos(SMALL / "videos")
    assert (video.name, video.episode, len(video.frames)) == (f"{TOP}/chunk-000/file-000", None, 277)


# --- camera and task


def test_camera(folder: Path) -> None:
    dataset = write_dataset(folder / "set", LENGTHS, cameras=("observation.images.top", "observation.images.wrist"))
    (top, *_), (wrist, *_) = (read_videos(dataset, camera=f"observation.images.{name}") for name in ("top", "wrist"))
    assert numbers(top.frames) == numbers(wrist.frames)[::-1] == [0, 1, 2, 3]
    with pytest.raises(UserError, match=r"set has 2 cameras: choose one with --camera \(.*top, .*wrist\)$"):
        read_videos(dataset)
    with pytest.raises(UserError, match=r"no camera 'observation.image.wrist'; did you mean observation.images.wrist"):
        read_videos(dataset, camera="observation.image.wrist")
    with pytest.raises(UserError, match=r"has no camera 'left'; known: observation.images.top$"):
        read_videos(SMALL, camera="left")
    stores = [open_store(dataset, 24, opening=Opening(camera=f"observation.images.{n}")) for n in ("top", "wrist")]
    assert not set(stores[0].files) & set(stores[1].files)


def test_task(folder: Path) -> None:
    tasks = (("Open the drawer",), ("Close the drawer",), ("Open the drawer", "Wave"))
    dataset = write_dataset(folder / "set", LENGTHS, tasks)
    assert [video.task for video in read_videos(dataset)] == [
        "Open the drawer",
        "Close the drawer",
        "Open the drawer; Wave",
        "Open the drawer",
    ]
    for text, found in {"Open the drawer": [0, 2, 3], " open  the DRAWER": [0, 2, 3], "wave": [2]}.items():
        assert [video.episode.index for video in read_videos(dataset, task=text)] == found
    for text in ("drawer", "Open", ""):
        with pytest.raises(UserError, match=f"no episode has the task '{text}'; known: Close the drawer, Open the "):
            read_videos(dataset, task=text)
    with pytest.raises(UserError, match="did you mean Open the drawer"):
        read_videos(dataset, task="open the drawr")
    # In another dataset there is none; a plain video has no task to differ.
    encode(folder / "a.mp4", numbered(3))
    names = [video.name for video in read_videos([dataset, SMALL, folder / "a.mp4"], task="wave")]
    assert names == ["set/episode_000002", "a"]


def test_many_tasks_are_not_all_listed(folder: Path) -> None:
    dataset = write_dataset(folder / "set", [2] * 25, tasks=[(f"task number {n}",) for n in range(25)])
    with pytest.raises(UserError, match=r"'swim'; known: task number 0, .*, and 5 more$"):
        read_videos(dataset, task="swim")
    with pytest.raises(UserError, match=r"'tsk number 24'; did you mean task number 24"):
        read_videos(dataset, task="tsk number 24")


def test_camera_and_task_without_a_dataset(folder: Path) -> None:
    encode(folder / "a.mp4", numbered(3))
    with pytest.warns(UserWarning, match=r"--task are not used: there is no LeRobot dataset in .*/videos$"):
        assert [video.name for video in read_videos(folder, task="wave")] == ["a"]


# --- the frame store


def test_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    digest = store_module.digest
    monkeypatch.setattr(store_module, "digest", lambda file: (hashed.append(file.name), digest(file))[1])
    store = open_store([SMALL, IMAGES], 24, cache=tmp_path)
    assert sorted(hashed) == ["file-000.mp4", "file-000.parquet"]  # shared files once
    videos = list(read_videos([SMALL, IMAGES]))
    assert list(store.names) == [video.name for video in videos]
    for number, video in enumerate(videos):
        assert np.array_equal(store.frames(number, range(store.lengths[number])), resize(video.frames, 24, "squash"))
    assert store.fps.tolist() == [10] * 9


def test_the_cache_knows_the_cut(copy: Path, tmp_path: Path) -> None:
    first = open_store(copy, 24, cache=tmp_path)
    assert len(set(first.files)) == 6
    moved = shutil.copytree(copy, tmp_path / "elsewhere")
    assert open_store(moved, 24, cache=tmp_path).files == first.files
    move_episodes(moved, 0.1)
    change_rows(moved / TABLE, lambda row: row.update({"length": row["length"] - 1}))
    shifted = open_store(moved, 24, cache=tmp_path)
    assert not set(shifted.files) & set(first.files)
    assert np.array_equal(shifted.frames(2, range(53)), first.frames(2, range(1, 54)))


# --- bad frames


def bad(dataset: Path, episode: int, **options: object) -> str:
    """What is said when the frames of an episode are read."""
    video = list(read_videos(dataset, **options))[episode]
    with pytest.raises(BadVideo) as caught:
        list(video.chunks())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_frames(folder: Path) -> None:
    dataset = write_dataset(folder / "set", LENGTHS)
    frames = np.concatenate([numbered_episode(e, n) for e, n in enumerate(LENGTHS)])
    encode(dataset / MP4, frames[:-1], FPS)
    assert "file-000.mp4: episode 3: frame 2 of 3 is missing: there is none at 1.700 s" in bad(dataset, 3)
    times = [(number + (number >= 6)) / FPS for number in range(17)]
    encode(dataset / MP4, frames[:-1], FPS, times)
    assert "file-000.mp4: episode 1: frame 2 of 6 is missing: there is none at 0.600 s" in bad(dataset, 1)
    assert numbers(next(read_videos(dataset)).frames) == [0, 1, 2, 3]
    change_rows(dataset / TABLE, lambda row: row.update({f"videos/{TOP}/from_timestamp": 1e6}))
    assert "episode 0: frame 0 of 4 is missing" in bad(dataset, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows.pop(5), "episode 1: frame 1 of 6 is missing: frame 2 is in its place"),
        (lambda rows: rows[9].update(episode_index=2), "episode 1: frame 5 of 6 is missing: there are no more rows"),
        (lambda rows: rows[6][TOP].update(bytes=None), "episode 1: frame 2 holds no picture"),
        (lambda rows: rows[6][TOP].update(bytes=b"GIF89a"), "episode 1: frame 2 cannot be read as an image"),
        (lambda rows: rows[6][TOP].update(bytes=png(np.zeros((9, 9), np.uint16))), "convert it to 8 bits"),
        (lambda rows: rows[6][TOP].update(bytes=png(np.zeros((9, 9), np.uint8))), "episode 1: changes its size"),
        (lambda rows: [row.pop(TOP) for row in rows], f"episode 1: has no column {TOP}.bytes"),
        (lambda rows: [row.update({TOP: b"x"}) for row in rows], f"episode 1: has no column {TOP}.bytes"),
        (lambda rows: [row.pop("frame_index") for row in rows], "episode 1: has no column frame_index"),
    ],
)
def test_bad_pictures(folder: Path, change, reason: str) -> None:
    dataset = write_dataset(folder / "set", LENGTHS, kind="image")
    file = dataset / "data/chunk-000/file-000.parquet"
    rows = pq.ParquetFile(file).read().to_pylist()
    change(rows)
    write_table(file, rows)
    assert reason in bad(dataset, 1)


def test_bad_files(folder: Path) -> None:
    for kind, name in (("video", MP4), ("image", "data/chunk-000/file-000.parquet")):
        dataset = write_dataset(folder / kind, LENGTHS, kind=kind)
        data = (dataset / name).read_bytes()
        for content in (b"", b"no such file at all", data[: len(data) // 2]):
            (dataset / name).write_bytes(content)
            assert ": episode 2: " in bad(dataset, 2)
        (dataset / name).unlink()
        with pytest.raises(BadVideo, match=r"episode 0: the file does not exist \(download the whole dataset\)"):
            next(read_videos(dataset))
        with pytest.raises(UserError, match=r"4 of 4 videos cannot be read: .*\(episode 0: cannot be read"):
            open_store(dataset, 24, cache=folder / "cache")


def test_a_dataset_of_one_frame(folder: Path) -> None:
    assert "episode 1: has one frame; at least 2 are needed" in bad(write_dataset(folder / "set", (3, 1)), 1)


# --- bad metadata


def refusal(dataset: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_videos(dataset)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"codebase_version": "v2.1"}, "only v3 is read: convert it with LeRobot's convert_dataset_v21_to_v30 (python"),
        ({"codebase_version": "v4.0"}, "of version v4.0, but only v3 is read"),
        ({"codebase_version": None}, "of version None, but only v3 is read"),
        ({"fps": 0}, "info.json is damaged (fps must be a number above 0 and at most 1000, not 0)"),
        ({"fps": float("nan")}, "not nan"),
        ({"fps": "10"}, "not '10'"),
        ({"fps": True}, "not True"),
        ({"features": []}, "features must be an object of objects"),
        ({"features": {"top": "video"}}, "features must be an object of objects"),
        ({"features": {}}, "has no cameras"),
        ({"features": {"action": {"dtype": ["video"]}}}, "has no cameras"),
        ({"video_path": 3}, "data_path and video_path must be texts"),
        ({"video_path": None}, "the path '' leads out of the dataset"),
        ({"video_path": "../{video_key}.mp4"}, "leads out of the dataset"),
        ({"video_path": "videos/../../{video_key}.mp4"}, "leads out of the dataset"),
        ({"video_path": "..\\{video_key}.mp4"}, "leads out of the dataset"),
        ({"video_path": "/etc/hostname"}, "the path '/etc/hostname' leads out of the dataset"),
        ({"video_path": "C:/x.mp4"}, "leads out of the dataset"),
        ({"video_path": "\0.mp4"}, "leads out of the dataset"),
        ({"video_path": "{video_key.__class__}.mp4"}, "is not a template of paths"),
        ({"video_path": "{video_key!r}.mp4"}, "is not a template of paths"),
        ({"video_path": "{chunk_index:0999999999d}.mp4"}, "is not a template of paths"),
        ({"video_path": "{episode}.mp4"}, "is not a template of paths"),
        ({"video_path": "{}.mp4"}, "is not a template of paths"),
        ({"video_path": "{video_key"}, "is damaged"),
    ],
)  # fmt: skip
def test_bad_info(copy: Path, info: dict, reason: str) -> None:
    change_info(copy, **info)
    assert reason in refusal(copy)


def test_no_path_of_a_camera_leads_out(folder: Path) -> None:
    encode(folder / "secret.mp4", numbered(9))
    dataset = write_dataset(folder / "set", (9,), cameras=("../secret",), video_path="{video_key}.mp4")
    assert "the path '../secret.mp4' leads out of the dataset" in refusal(dataset)


@pytest.mark.parametrize("text", ["", "[]", "{", '"v3.0"', "[" * 100_000, "\xff"])
def test_unreadable_info(copy: Path, text: str) -> None:
    (copy / "meta/info.json").write_text(text, encoding="latin-1")
    assert "info.json is " in refusal(copy)
    assert "info.json is " in refusal(copy.parent)


def test_missing_keys(copy: Path) -> None:
    info = json.loads((copy / "meta/info.json").read_text())
    for name in ("fps", "features"):
        rest = {key: value for key, value in info.items() if key != name}
        (copy / "meta/info.json").write_text(json.dumps(rest))
        assert f"info.json is damaged (it has no {name})" in refusal(copy)


def test_a_folder_with_other_metadata_is_searched(folder: Path) -> None:
    encode(folder / "a.mp4", numbered(3))
    (folder / "meta").mkdir()
    (folder / "meta/info.json").write_text('{"author": "me"}')
    assert [video.name for video in read_videos(folder)] == ["a"]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("episode_index", 0, "episode 0 is there twice"),
        ("episode_index", -1, "episode_index must be a whole number, at least 0, not -1"),
        ("length", 0, "length must be a whole number, at least 1, not 0"),
        ("length", 1.5, "not 1.5"),
        ("length", None, "not None"),
        ("dataset_from_index", "0", "not '0'"),
        (f"videos/{TOP}/file_index", float("inf"), "not inf"),
        (f"videos/{TOP}/from_timestamp", float("nan"), "must be a time in seconds, not nan"),
        (f"videos/{TOP}/from_timestamp", -1.0, "not -1.0"),
        (f"videos/{TOP}/from_timestamp", 1e300, "not 1e+300"),
        ("tasks", 3, "tasks must be texts, not 3"),
    ],
)
def test_bad_rows(folder: Path, column: str, value: object, reason: str) -> None:
    dataset = write_dataset(folder / "set", LENGTHS)
    change_rows(dataset / TABLE, lambda row: row.update({column: value}))
    assert "file-000.parquet is damaged (" in refusal(dataset)
    assert reason in refusal(dataset)


def test_bad_tables(folder: Path) -> None:
    dataset = write_dataset(folder / "set", LENGTHS)
    change_rows(dataset / TABLE, lambda row: row.pop("tasks"))
    assert [video.task for video in read_videos(dataset)] == [None] * 4
    change_rows(dataset / TABLE, lambda row: row.pop("length"))
    assert "file-000.parquet is damaged (it has no column length)" in refusal(dataset)
    pq.write_table(pq.ParquetFile(SMALL / TABLE).read().slice(0, 0), dataset / TABLE)
    assert "has no episodes" in refusal(dataset)
    (dataset / TABLE).write_text("no table")
    assert "file-000.parquet is damaged (" in refusal(dataset)
    shutil.rmtree(dataset / "meta/episodes")
    assert "has no meta/episodes/*/*.parquet: download the whole dataset" in refusal(dataset)


# --- pyarrow


def test_without_pyarrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    encode(folder / "a.mp4", numbered(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(next(read_videos(folder)).frames) == 3
    assert refusal(SMALL) == "a LeRobot dataset is read with pyarrow: pip install 'timerewarder[lerobot]'"
