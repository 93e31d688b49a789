from __future__ import annotations

import re
import struct
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.data.sample_videos import CODECS, cut, encode, numbered, numbers, scene
from timerewarder.data.videos import check_frames, read_videos, resample_indices
from timerewarder.errors import UserError


def read_one(*args, **kwargs):
    (video,) = read_videos(*args, **kwargs)
    return video


def save_images(folder: Path, frames: np.ndarray, suffix: str = ".png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"frame{number}{suffix}")
    return folder


# --- formats


@pytest.mark.parametrize("suffix", list(CODECS))
def test_every_container_gives_its_frames_in_order(folder: Path, suffix: str) -> None:
    frames = numbered(25)
    video = read_one(encode(folder / f"clip{suffix}", frames, fps=20))
    assert (video.name, video.fps) == ("clip", 20)
    assert video.frames.shape == frames.shape
    assert video.frames.dtype == np.uint8
    assert numbers(video.frames) == list(range(25))


@pytest.mark.parametrize(("suffix", "error"), [(".mp4", 1.5), (".webm", 2.5), (".avi", 2.5), (".mkv", 1.5)])
def test_colours_survive(folder: Path, suffix: str, error: float) -> None:
    frames = scene(12)
    got = read_one(encode(folder / f"clip{suffix}", frames)).frames.astype(float)
    assert np.abs(got - frames).mean() < error
    assert np.abs((got - frames).mean(axis=(0, 1, 2))).max() < 0.6  # no colour cast, no darkening


def test_a_gif_reads_as_pillow_reads_it(folder: Path) -> None:
    pictures = [Image.fromarray(frame) for frame in scene(6)]
    pictures[0].save(folder / "a.gif", save_all=True, append_images=pictures[1:], duration=50)
    with Image.open(folder / "a.gif") as gif:
        expected = [np.asarray((gif.seek(i), gif.convert("RGB"))[1]) for i in range(gif.n_frames)]
    video = read_one(folder / "a.gif")
    assert video.fps == 20
    assert np.array_equal(video.frames, expected)


def test_upper_case_suffix_and_colon_in_the_name(folder: Path) -> None:
    encode(folder / "IMG_1.mov", numbered(5)).rename(folder / "IMG:1 %d.MOV")
    assert numbers(read_one(folder).frames) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("angle", "matrix"), [(90, (0, 1, -1, 0)), (180, (-1, 0, 0, -1)), (270, (0, -1, 1, 0))])
def test_phone_rotation_is_applied(folder: Path, angle: int, matrix: tuple[int, ...]) -> None:
    """The track header's matrix turns the picture clockwise by the angle."""
    frames = scene(4, 32, 64)
    path = encode(folder / "phone.mp4", frames)
    upright = read_one(path).frames
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 44
    a, b, c, d = (value << 16 for value in matrix)
    data[place : place + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    assert np.array_equal(read_one(path).frames, np.rot90(upright, k=-angle // 90, axes=(1, 2)))


def test_a_video_trimmed_at_its_end(folder: Path) -> None:
    """Phones trim by an edit list: what lies outside stays in the file, is not shown, and is no damage."""
    path = encode(folder / "a.mp4", numbered(30), options={"g": "10", "bf": "0"})
    data = bytearray(path.read_bytes())
    place = data.index(b"elst") + 12
    assert struct.unpack(">I", data[place : place + 4]) == (3000,)  # milliseconds
    data[place : place + 4] = struct.pack(">I", 1200)
    path.write_bytes(data)
    assert numbers(read_one(path).frames) == list(range(12))


def test_a_video_trimmed_at_its_start(folder: Path) -> None:
    path = encode(folder / "long.mp4", numbered(30), options={"g": "10", "bf": "0"})
    with (
        av.open(str(path)) as whole,
        av.open(str(folder / "trimmed.mp4"), "w", options={"avoid_negative_ts": "disabled"}) as trimmed,
    ):
        stream = whole.streams.video[0]
        copy = trimmed.add_stream_from_template(stream)
        for packet in whole.demux(stream):
            if packet.dts is not None:
                packet.pts -= int(1.5 / stream.time_base)
                packet.dts -= int(1.5 / stream.time_base)
                packet.stream = copy
                trimmed.mux(packet)
    assert numbers(read_one(folder / "trimmed.mp4").frames) == list(range(15, 30))


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".webp", ".jpg"])
def test_image_folders(folder: Path, suffix: str) -> None:
    video = read_one(save_images(folder / "run", numbered(12), suffix))
    assert (video.name, video.fps) == ("run", 10)
    assert numbers(video.frames) == list(range(12))  # frame2 before frame10


def test_images_of_any_mode_become_rgb(folder: Path) -> None:
    for mode in ("L", "RGBA", "P", "1", "CMYK", "LA"):
        Image.fromarray(scene(1)[0]).convert(mode).save(folder / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}")
    assert read_one(folder).frames.shape == (6, 48, 64, 3)


def test_photographs_are_turned_upright(folder: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6  # turn clockwise to view
    for number, frame in enumerate(scene(2)):
        Image.fromarray(frame).save(folder / f"{number}.png", exif=exif)
    assert np.array_equal(read_one(folder).frames, np.rot90(scene(2), k=-1, axes=(1, 2)))


def test_arrays(folder: Path) -> None:
    frames = scene(7)
    np.save(folder / "a.npy", frames)
    np.savez_compressed(folder / "b.npz", episode=frames, actions=np.zeros((7, 4)), fps=25)
    np.savez(folder / "c.npz", first=frames, second=frames[::-1])
    videos = list(read_videos(folder))
    assert [(v.name, v.fps) for v in videos] == [("a", 10), ("b", 25), ("c/first", 10), ("c/second", 10)]
    for video, expected in zip(videos, [frames, frames, frames, frames[::-1]], strict=True):
        assert np.array_equal(video.frames, expected)


@pytest.mark.parametrize("n", [1, 3, 64])
def test_chunks_are_the_frames(folder: Path, n: int) -> None:
    frames = scene(10)
    encode(folder / "a.mp4", frames)
    np.save(folder / "b.npy", frames)
    save_images(folder / "c", frames)
    for video in read_videos(folder, fps=7):
        chunks = list(video.chunks(n))
        assert all(len(chunk) == n for chunk in chunks[:-1])
        assert len(chunks[-1]) <= n
        assert np.array_equal(np.concatenate(chunks), video.frames)


def test_frames_are_in_memory_once(folder: Path) -> None:
    np.save(folder / "a.npy", np.zeros((500, 64, 64, 3), np.uint8))
    video = read_one(folder)
    tracemalloc.start()
    frames = video.frames
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.4 * frames.nbytes
    assert video.frames is frames


# --- which videos there are


def test_a_mixed_tree_in_natural_order(folder: Path) -> None:
    for name in ("ep10.mp4", "ep2.mp4", "later/ep1.webm", ".hidden.mp4", ".git/x.mp4"):
        encode(folder / name, numbered(3))
    save_images(folder / "pictures", numbered(3))
    save_images(folder, numbered(1), ".jpg")  # thumbnails beside videos
    (folder / "index.json").write_text("{}")
    np.savez(folder / "actions.npz", actions=np.zeros((3, 4)))
    np.save(folder / "states.npy", np.zeros((3, 9)))
    assert [video.name for video in read_videos(folder)] == ["ep2", "ep10", "later/ep1", "pictures"]


def test_each_video_once_under_a_name_of_its_own(folder: Path) -> None:
    for name in (
        "a/success/ep0.mp4",
        "a/failure/ep0.mp4",
        "b/success/ep0.mp4",
        "a/success/ep1.mp4",
        "a/success/ep1.mov",
    ):
        encode(folder / name, numbered(3))
    (folder / "a/success/circle").symlink_to(folder / "a/success")
    given = [
        folder / "a/success",
        folder / "a/success/ep0.mp4",
        str(folder / "a/failure/ep0.mp4"),
        folder / "b/success",
    ]
    names = [video.name for video in read_videos(given)]
    assert names == ["a/success/ep0", "ep1.mov", "ep1.mp4", "failure/ep0", "b/success/ep0"]


# --- resampling


@given(gaps=st.lists(st.floats(0.001, 2), min_size=1, max_size=60), start=st.floats(-5, 5), fps=st.floats(0.1, 100))
def test_resampling_shows_the_nearest_frame_at_every_tick(gaps: list[float], start: float, fps: float) -> None:
    times = start + np.cumsum([0, *gaps])
    shown = resample_indices(times, fps)
    ticks = start + np.arange(len(shown)) / fps
    distance = np.abs(times[:, None] - ticks).min(axis=0)
    assert np.abs(times[shown] - ticks) == pytest.approx(distance, abs=1e-6)
    assert (np.diff(shown) >= 0).all()
    duration = (times[-1] - times[0]) * len(times) / (len(times) - 1)
    assert len(shown) >= 2
    assert len(shown) == 2 or -1e-3 < len(shown) - duration * fps < 1 + 1e-3


@given(length=st.integers(2, 300), fps=st.sampled_from([1, 10, 24, 25, 29.97, 30, 60]), factor=st.integers(1, 5))
def test_resampling_a_steady_video_takes_every_nth_frame(length: int, fps: float, factor: int) -> None:
    times = np.arange(length) / fps
    assert resample_indices(times, fps).tolist() == list(range(length))
    every = list(range(0, length, factor))
    assert resample_indices(times, fps / factor).tolist()[: len(every)] == every


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_variable_frame_rates_resample_by_time(folder: Path, suffix: str) -> None:
    times = [0, 0.1, 0.2, 0.3, 1.0, 1.04, 1.08, 2.0]
    video = read_one(encode(folder / f"phone{suffix}", numbered(8), times=times, options={"bf": "0"}), fps=5)
    assert video.fps == 5
    assert numbers(video.frames) == [0, 2, 3, 3, 4, 4, 6, 6, 7, 7, 7, 7]


@pytest.mark.parametrize("suffix", [".mov", ".avi", ".gif", ".npy"])
def test_resampling_every_kind(folder: Path, suffix: str) -> None:
    if suffix == ".npy":
        np.save(folder / "a.npy", numbered(24))
    else:
        encode(folder / f"a{suffix}", numbered(24), fps=10)
    assert numbers(read_one(folder, fps=5).frames) == list(range(0, 24, 2))
    assert numbers(read_one(folder, fps=0.1).frames) == [0, 23]


def test_resampling_an_avi_with_pictures_out_of_order(folder: Path) -> None:
    """Avi has no presentation times; H.264 with B-frames makes that visible."""
    reordered = {"bf": "3", "x264-params": "b-adapt=0:b-pyramid=2:scenecut=0:keyint=100"}
    encode(folder / "a.avi", numbered(24), like=".mov", options=reordered)
    assert numbers(read_one(folder, fps=5).frames) == list(range(0, 24, 2))


@pytest.mark.parametrize("fps", [0, -1, float("nan"), 1e9])
def test_a_senseless_rate(folder: Path, fps: float) -> None:
    np.save(folder / "a.npy", scene(3))
    with pytest.raises(UserError, match="fps must be above 0"):
        read_videos(folder, fps=fps)


def test_timestamps_of_years_do_not_fill_the_memory(folder: Path) -> None:
    np.savez(folder / "a.npz", numbered(3, 1, 1), fps=1e-6)
    with pytest.raises(UserError, match="timestamps are broken"):
        for _ in read_one(folder, fps=10).chunks():
            pass


# --- what bad input gets


def reason(source, **kwargs) -> str:
    """The one line that reading all of `source` ends with."""
    with pytest.raises(UserError) as caught:
        np.concatenate([video.frames.ravel() for video in read_videos(source, **kwargs)])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_paths_that_lead_nowhere(folder: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        read_videos(folder / "nowhere")  # at once, before anything is read
    assert "holds no videos: put mp4, mov" in reason(folder)
    (folder / "index.json").write_text("{}")
    assert "holds no videos" in reason(folder)
    assert "index.json is not a video: give mp4, mov" in reason(folder / "index.json")
    Image.fromarray(scene(1)[0]).save(folder / "a.png")
    assert "a.png is not a video" in reason(folder / "a.png")
    assert "no videos given" in reason([])


@pytest.mark.parametrize("suffix", list(CODECS))
@pytest.mark.parametrize("keep", [0.3, 0.6, 0.97, -1])
def test_cut_off_files(folder: Path, suffix: str, keep: float) -> None:
    faststart = {"movflags": "+faststart"} if suffix in (".mp4", ".mov", ".m4v") else {}
    path = encode(folder / f"clip{suffix}", scene(40), options={"g": "8"}, **faststart)
    assert len(read_one(path).frames) == 40
    assert f"clip{suffix}: " in reason(cut(path, keep))
    assert "--skip-bad" in reason(path)


def test_an_mp4_without_its_index(folder: Path) -> None:
    """As a camera leaves it whose battery died: the index would come last."""
    data = encode(folder / "a.mp4", scene(40)).read_bytes()
    (folder / "a.mp4").write_bytes(data[: data.index(b"moov") - 4])
    assert "a.mp4: cannot be decoded as a video (Invalid data" in reason(folder)


def test_junk_after_the_end_is_no_damage(folder: Path) -> None:
    path = encode(folder / "a.mp4", numbered(5))
    path.write_bytes(path.read_bytes() + b"\0" * 1000)
    assert numbers(read_one(path).frames) == [0, 1, 2, 3, 4]


def damage(path: Path, offset: int, data: bytes) -> Path:
    """Overwrite a part of the twelfth picture."""
    with av.open(str(path)) as container:
        place = [packet.pos for packet in container.demux(video=0)][11] + offset
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + data + whole[place + len(data) :])
    return path


def test_damage_that_the_decoder_reports(folder: Path) -> None:
    path = damage(encode(folder / "a.mp4", scene(40)), 0, bytes(20))
    assert "a.mp4: cannot be decoded as a video (Invalid data" in reason(path)


def test_damage_that_the_decoder_marks(folder: Path) -> None:
    path = damage(encode(folder / "a.mp4", scene(40), like=".mov"), 14, b"\x13\x37\xca\xfe" * 5)
    assert re.search(r"a\.mp4: is damaged at frame \d+", reason(path))


def test_damage_that_the_decoder_passes_over(folder: Path) -> None:
    """A picture under a reserved number is left out without a word."""
    path = damage(encode(folder / "a.mp4", scene(40), like=".mkv"), 4, bytes([44 << 1]))
    assert re.search(r"a\.mp4: is damaged: \d+ of 40 frames cannot be decoded", reason(path))


def test_not_a_video_at_all(folder: Path) -> None:
    (folder / "notes.mp4").write_text("pick up the cup\n" * 50)
    assert "notes.mp4: cannot be decoded as a video (Invalid data" in reason(folder)
    (folder / "notes.mp4").write_bytes(b"")
    assert "notes.mp4: cannot be decoded" in reason(folder)


def test_a_playlist_opens_no_other_files(folder: Path) -> None:
    encode(folder / "secret.mp4", numbered(5))
    (folder / "list.mp4").write_text("ffconcat version 1.0\nfile secret.mp4\n")
    assert "list.mp4: cannot be decoded" in reason(folder / "list.mp4")


def test_sound_without_pictures(folder: Path) -> None:
    with av.open(str(folder / "song.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.rate = 8000
        container.mux(stream.encode(silence))
        container.mux(stream.encode(None))
    assert "song.mp4: holds no video stream" in reason(folder)


@pytest.mark.parametrize("fps", [None, 30])
def test_one_frame(folder: Path, fps: float | None) -> None:
    encode(folder / "a/a.mp4", numbered(1))
    save_images(folder / "b", numbered(1))
    (folder / "c").mkdir()
    np.save(folder / "c/c.npy", numbered(1))
    for name in ("a", "b", "c"):
        assert "has one frame; at least 2 are needed" in reason(folder / name, fps=fps)


def test_a_size_that_changes(folder: Path) -> None:
    save_images(folder, scene(3))
    Image.fromarray(scene(1, 20, 30)[0]).save(folder / "odd.png")
    assert "frame0.png is 64x48 but odd.png is 30x20: make them one size" in reason(folder)


@pytest.mark.parametrize(
    ("array", "remedy"),
    [
        (np.zeros((4, 8, 8, 3), np.float32), "float32 (4, 8, 8, 3): if they lie in [0, 1], multiply by 255"),
        (np.zeros((4, 8, 8, 3), np.int64), "int64 (4, 8, 8, 3): scale to 0..255 and cast to uint8"),
        (np.zeros((4, 3, 8, 8), np.uint8), "uint8 (4, 3, 8, 8): move the channels last"),
        (np.zeros((4, 8, 8, 4), np.uint8), "drop the alpha channel"),
        (np.zeros((4, 8, 8, 1), np.uint8), "repeat the grey channel"),
        (np.zeros((4, 8, 8, 7), np.uint8), "the last axis must be red, green, blue"),
        (np.zeros((8, 8, 3), np.uint8), "add a time axis with frames[None]"),
        (np.zeros((4, 8), np.uint8), "give one array of all frames"),
        (np.zeros((0, 8, 8, 3), np.uint8), "no side may be empty"),
        (np.zeros((4, 0, 8, 3), np.uint8), "no side may be empty"),
    ],
)
def test_arrays_that_are_no_frames(folder: Path, array: np.ndarray, remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        check_frames(array)
    assert remedy in str(caught.value)
    np.save(folder / "a.npy", array)
    assert remedy in reason(folder / "a.npy")


def test_check_frames_lets_frames_pass() -> None:
    frames = scene(2)
    assert check_frames(frames) is frames
    with pytest.raises(UserError, match="not list"):
        check_frames([[1, 2]])


def test_damaged_arrays(folder: Path) -> None:
    np.savez(folder / "a.npz", actions=np.zeros((3, 4)))
    assert "holds no array uint8 (T, H, W, 3) but actions float64 (3, 4)" in reason(folder / "a.npz")
    np.savez_compressed(folder / "a.npz", x=scene(20))
    assert "a.npz: cannot be read as a NumPy npz file" in reason(cut(folder / "a.npz", 0.7))
    (folder / "a.npz").unlink()
    np.save(folder / "b.npy", scene(20))
    assert "b.npy: is cut off: it holds 13 of 20 frames" in reason(cut(folder / "b.npy", 0.7))
    (folder / "b.npy").write_bytes(b"hello")
    assert "b.npy: cannot be read as a NumPy npy file" in reason(folder)
    np.save(folder / "b.npy", np.asfortranarray(scene(3)))
    assert "Fortran order" in reason(folder)
    np.savez(folder / "b.npz", x=scene(3), fps=-5)
    assert "fps must be a positive number" in reason(folder / "b.npz")


def test_pickles_are_not_opened(folder: Path) -> None:
    class Trap:
        def __reduce__(self):
            return (Path.touch, (folder / "sprung",))

    np.save(folder / "a.npy", np.array([[[[Trap()]]]], dtype=object), allow_pickle=True)
    assert "a.npy" in reason(folder)
    assert not (folder / "sprung").exists()


def test_damaged_images(folder: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    save_images(folder, noise)
    cut(folder / "frame1.png", 0.5)
    assert "frame1.png cannot be read as an image" in reason(folder)
    (folder / "frame1.png").write_text("no image")
    assert "frame1.png cannot be read as an image" in reason(folder)
    Image.fromarray(np.zeros((64, 64), np.uint16)).save(folder / "frame1.png")
    assert "convert it to 8 bits" in reason(folder)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_000, 60_000])
def test_a_decompression_bomb(folder: Path, side: int) -> None:
    """A header that claims a picture of many gigabytes."""
    for name in ("a.png", "b.png"):
        Image.new("1", (8, 8)).save(folder / name)
        data = bytearray((folder / name).read_bytes())
        data[16:24] = struct.pack(">2I", side, side)
        (folder / name).write_bytes(data)
    assert ": a.png " in reason(folder)


def test_a_zip_bomb_is_read_as_a_stream(folder: Path) -> None:
    """A small file that unpacks to 600 MB gives its first frames at once."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (200_000, 32, 32, 3)}
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(32 * 32 * 3 * 1000))
    tracemalloc.start()
    assert len(next(read_one(folder).chunks())) == 64
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_skip_bad(folder: Path) -> None:
    for number in range(4):
        encode(folder / f"{number}.mp4", scene(30), options={"g": "8"}, movflags="+faststart")
    cut(folder / "1.mp4", 0.8)
    encode(folder / "3.mp4", numbered(1))
    with pytest.warns(UserWarning, match="skipped") as caught:
        assert [video.name for video in read_videos(folder, skip_bad=True)] == ["0", "2"]
    assert [str(w.message).split("videos/")[1] for w in caught] == [
        "1.mp4: is cut off: the file is shorter than its header says",
        "3.mp4: has one frame; at least 2 are needed",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "1.mp4: is cut off" in reason(folder)
    with pytest.warns(UserWarning, match="skipped"):
        assert "no video is left of 1" in reason(folder / "1.mp4", skip_bad=True)
