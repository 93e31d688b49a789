"""A scored video as a recording for the Rerun viewer: `rerun NAME.rrd` shows the picture, the curves and the matrix.

    video              the frames as H.264, and for each time the frame that is shown
    curves/progress    the running sum (`curves/sum` for a reward that is not the steps of a value)
    curves/reward      the reward for arriving at each frame
    distances          the T x T matrix, for a method that knows it

Everything but the matrix lies on two timelines, `frame` (a number) and `time` (seconds from the first frame). The file
holds the layout too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from timerewarder.data.videos import write_video
from timerewarder.errors import UserError
from timerewarder.files import atomic
from timerewarder.report.clip import Clip
from timerewarder.report.plots import CURVE, UP, progress_limits

if TYPE_CHECKING:
    import rerun as rr
    from rerun.blueprint import Blueprint

APPLICATION = "timerewarder"  # the viewer remembers what a user changed in the layout under this name
VIDEO, CURVES, DISTANCES = "video", "curves", "distances"


def import_rerun() -> ModuleType:
    """Rerun's SDK, or what to install; called before the work of which it is the last step."""
    try:
        import rerun
    except ImportError as error:
        raise UserError(f"--rerun needs Rerun's SDK ({error}): pip install 'timerewarder[rerun]'") from error
    return rerun


def write_rerun(clip: Clip, path: Path | str) -> None:
    """Write the clip as an .rrd file."""
    recording = import_rerun().RecordingStream(APPLICATION)
    # Into memory first: a stream that saves to a file tells nobody when the disk is full.
    stream = recording.binary_stream()
    recording.send_blueprint(_layout(clip))
    recording.send_recording_name(_text(clip.name))
    _send_video(recording, clip)
    _send_curves(recording, clip)
    if clip.distances is not None:
        _send_distances(recording, clip.distances)
    data = stream.read()
    recording.disconnect()
    with atomic(path) as temporary:
        temporary.write_bytes(data)


def _send_video(recording: rr.RecordingStream, clip: Clip) -> None:
    import rerun as rr

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "video.mp4")
        write_video(file, clip.frames, clip.fps, quality="web")
        asset = rr.AssetVideo(contents=file.read_bytes(), media_type="video/mp4")
    recording.log(VIDEO, asset, static=True)
    # A frame is asked for by the time that the file gives it, which is rounded to the file's own clock.
    times = np.sort(asset.read_frame_timestamps_nanos())
    recording.send_columns(VIDEO, _timelines(clip), rr.VideoFrameReference.columns_nanos(times))


def _send_curves(recording: rr.RecordingStream, clip: Clip) -> None:
    import rerun as rr

    for name, values, colour in ((clip.sum_name, clip.progress, CURVE), ("reward", clip.rewards, UP)):
        place = f"{CURVES}/{name}"
        recording.log(place, rr.SeriesLines(colors=_rgb(colour), names=name, widths=2), static=True)
        recording.send_columns(place, _timelines(clip), rr.Scalars.columns(scalars=values))


def _send_distances(recording: rr.RecordingStream, distances: np.ndarray) -> None:
    import rerun as rr

    limit = max(1.0, float(np.max(np.abs(distances), initial=0, where=np.isfinite(distances))))
    # The same colours for the same distance in every video, no distance in the middle of the scale.
    matrix = rr.Tensor(distances, dim_names=("from frame", "to frame"), value_range=(-limit, limit))
    recording.log(DISTANCES, matrix, static=True)


def _layout(clip: Clip) -> Blueprint:
    """The picture above the matrix, the curves beside them, and the clock on frames, at the pace of the video."""
    import rerun.blueprint as rrb

    seen: list[rrb.View] = [rrb.Spatial2DView(origin=VIDEO, name="video")]
    if clip.distances is not None:
        colours = rrb.TensorScalarMapping(colormap="Spectral", mag_filter="Nearest")
        seen.append(rrb.TensorView(origin=DISTANCES, name="distances", scalar_mapping=colours))
    axis = rrb.ScalarAxis(range=progress_limits(clip.progress, clip.is_value))
    curves = [
        rrb.TimeSeriesView(origin=f"{CURVES}/{clip.sum_name}", name=clip.sum_name, axis_y=axis),
        rrb.TimeSeriesView(origin=f"{CURVES}/reward", name="reward"),
    ]
    return rrb.Blueprint(
        rrb.Horizontal(rrb.Vertical(*seen), rrb.Vertical(*curves, row_shares=[2, 1]), column_shares=[2, 3]),
        rrb.SelectionPanel(state="hidden"),
        rrb.BlueprintPanel(state="collapsed"),
        rrb.TimePanel(timeline="frame", fps=clip.fps),
    )


def _timelines(clip: Clip) -> tuple[rr.TimeColumn, rr.TimeColumn]:
    import rerun as rr

    frames = np.arange(len(clip.frames))
    return rr.TimeColumn("frame", sequence=frames), rr.TimeColumn("time", duration=frames / clip.fps)


def _rgb(colour: str) -> list[int]:
    """`#rrggbb` -> [r, g, b]."""
    return list(bytes.fromhex(colour.removeprefix("#")))


def _text(name: str) -> str:
    """A file's name may hold bytes that are not characters."""
    return name.encode("utf-8", "replace").decode()
