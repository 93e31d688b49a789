"""The .rrd file holds the very numbers of the clip, read back with Rerun's own reader."""

import sys
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from timerewarder.errors import UserError
from timerewarder.report.overlay import write_scores
from timerewarder.report.rerun import write_rerun

RrdReader = pytest.importorskip("rerun.chunk", reason="Rerun's SDK, with its reader").RrdReader


class Recording:
    """What is in a file: `columns(place)` gives the values logged there, by their names."""

    def __init__(self, path: Path) -> None:
        self.reader = RrdReader(path)
        self.batches: dict[str, list] = {}
        for chunk in self.reader.stream().to_chunks():
            self.batches.setdefault(chunk.entity_path, []).append(chunk.to_record_batch())

    def columns(self, place: str) -> dict[str, list]:
        found: dict[str, list] = {}
        for batch in self.batches[place]:
            found |= {name: batch[name].to_pylist() for name in batch.schema.names}
        return found

    def scalars(self, place: str) -> np.ndarray:
        return np.array([value for (value,) in self.columns(place)["Scalars:scalars"]])


@pytest.fixture
def recorded(make_clip, tmp_path):
    clip = make_clip("dir/square", length=12)
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=12).astype(np.float32)
    distances = rng.normal(size=(12, 12)).astype(np.float32)
    clip = replace(clip, fps=7.3, rewards=rewards, progress=rewards.cumsum(dtype=np.float32), distances=distances)
    write_rerun(clip, tmp_path / "new" / "clip.rrd")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["clip.rrd"]
    return clip, Recording(tmp_path / "new" / "clip.rrd")


def test_curves_are_the_clips(recorded):
    clip, recording = recorded
    assert np.array_equal(recording.scalars("/curves/progress"), clip.progress.astype(np.float64))
    assert np.array_equal(recording.scalars("/curves/reward"), clip.rewards.astype(np.float64))
    for place in ("/curves/progress", "/curves/reward", "/video"):
        columns = recording.columns(place)
        assert columns["frame"] == list(range(12))
        seconds = [time.total_seconds() for time in columns["time"]]
        assert seconds == pytest.approx(np.arange(12) / 7.3, abs=1e-6)


def test_matrix_is_the_clips(recorded):
    clip, recording = recorded
    ((tensor,),) = recording.columns("/distances")["Tensor:data"]
    assert tensor["shape"] == [12, 12]
    assert tensor["names"] == ["from frame", "to frame"]
    assert np.array_equal(np.array(tensor["buffer"], np.float32).reshape(12, 12), clip.distances)
    ((limits,),) = recording.columns("/distances")["Tensor:value_range"]
    assert limits == pytest.approx([-np.abs(clip.distances).max(), np.abs(clip.distances).max()])


def test_video_has_every_frame_at_its_time(recorded, tmp_path):
    clip, recording = recorded
    columns = recording.columns("/video")
    assert columns["AssetVideo:media_type"] == [["video/mp4"]]
    (blob,) = columns["AssetVideo:blob"][0]
    (tmp_path / "video.mp4").write_bytes(bytes(blob))
    with av.open(str(tmp_path / "video.mp4")) as container:
        frames = list(container.decode(video=0))
    assert len(frames) == 12
    for frame, picture, (shown,) in zip(frames, clip.frames, columns["VideoFrameReference:timestamp"], strict=True):
        assert shown / 1e9 == pytest.approx(float(frame.time), abs=1e-6)
        error = np.abs(frame.to_ndarray(format="rgb24").astype(int) - picture).mean()
        assert error < 3  # of another frame's picture: 6


def test_layout_comes_with_it(recorded):
    _, recording = recorded
    assert [entry.application_id for entry in recording.reader.recordings()] == ["timerewarder"]
    (blueprint,) = recording.reader.blueprints()
    chunks = [chunk.to_record_batch() for chunk in recording.reader.stream(store=blueprint).to_chunks()]
    classes = [
        value
        for batch in chunks
        for name in batch.schema.names
        if name == "ViewBlueprint:class_identifier"
        for value in batch[name].to_pylist()[0]
    ]
    assert sorted(classes) == ["2D", "Tensor", "TimeSeries", "TimeSeries"]
    ((name,),) = recording.columns("/__properties")["RecordingInfo:name"]
    assert name == "dir/square"


def test_without_matrix_and_with_a_plain_sum(make_clip, tmp_path):
    clip = replace(make_clip("odd \udcff", length=2, size=(33, 21)), distances=None, is_value=False)
    write_rerun(clip, tmp_path / "clip.rrd")
    recording = Recording(tmp_path / "clip.rrd")
    assert set(recording.batches) == {"/__properties", "/video", "/curves/sum", "/curves/reward"}
    assert np.array_equal(recording.scalars("/curves/sum"), clip.progress.astype(np.float64))


def test_written_with_the_other_files(make_clip, tmp_path):
    clip = make_clip("a/v1.2", length=3)
    assert write_scores(clip, tmp_path, rerun=True)["rrd"] == tmp_path / "a" / "v1.2.rrd"
    assert len(Recording(tmp_path / "a" / "v1.2.rrd").scalars("/curves/reward")) == 3


def test_a_failed_write_leaves_the_old_file(make_clip, tmp_path):
    target = tmp_path / "clip.rrd"
    target.mkdir()
    with pytest.raises(OSError, match=r"clip\.rrd"):
        write_rerun(make_clip(length=2), target)
    assert list(tmp_path.iterdir()) == [target]


def test_says_what_to_install(make_clip, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(UserError, match=r"pip install 'timerewarder\[rerun\]'"):
        write_rerun(make_clip(), tmp_path / "clip.rrd")
    assert not list(tmp_path.iterdir())
