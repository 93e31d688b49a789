"""Frames of video files (mp4, mov, webm, mkv, avi, gif), decoded with PyAV.

- The rotation that a phone writes into the display matrix is applied; a mirroring in it is not.
- Colours are converted exactly (`colours`), by the matrix and range that the file declares.
- Times are presentation times, so variable frame rates are exact. Avi has none: there frame i is at i / rate.
- A file is bad if it is cut off (`wholeness`), if the decoder reports an error or a corrupt picture, or if pictures are
  missing. Damage that still decodes as some picture cannot be seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from timerewarder.data.colours import TO_RGB
from timerewarder.data.source import DEFAULT_FPS, MAX_PIXELS, BadVideo, Source, TimedFrame
from timerewarder.data.wholeness import is_cut_off

SUFFIXES = (".mp4", ".mov", ".m4v", ".webm", ".mkv", ".avi", ".gif")

# Only formats that hold their own pictures: a playlist named x.mp4 would make FFmpeg open other files.
FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,gif,mpegts,mpeg,flv,asf,ogg"
# Every packet of these holds one picture that is shown, so a missing picture is a damaged one.
ONE_PICTURE_A_PACKET = {"h264", "hevc", "av1", "libdav1d", "vp9", "mjpeg", "gif"}


def rate(source: Source) -> float:
    """Frames per second, the average if they vary."""
    with opened(source.path) as (_, stream):
        return _rate(stream)


def decode(source: Source) -> Iterator[TimedFrame]:
    """Every frame that is shown, in order."""
    with opened(source.path) as (container, stream):
        fps, timeless = _rate(stream), container.format.name == "avi"
        reformatter = VideoReformatter()
        due: list[int | None] = []  # presentation times of the pictures that should come
        count, first = 0, None
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                due.append(packet.pts)
            for frame in packet.decode():
                if frame.is_corrupt:
                    raise BadVideo(source.path, f"is damaged at frame {count}")
                if count == 0:
                    first = frame.pts
                time = count / fps if timeless or frame.pts is None else frame.time
                yield time, partial(picture, source.path, frame, reformatter)
                count += 1
        if stream.codec_context.name in ONE_PICTURE_A_PACKET:
            _check_none_missing(source.path, due, first, count)


def _rate(stream: VideoStream) -> float:
    return float(stream.average_rate or stream.guessed_rate or DEFAULT_FPS)


def picture(path: Path, frame: VideoFrame, reformatter: VideoReformatter, conversion: int = TO_RGB) -> np.ndarray:
    """uint8 (H, W, 3), upright; `conversion` is one of `colours`."""
    try:
        # One thread: swscale's own cost more than they save, and several videos are decoded at once.
        rgb = reformatter.reformat(frame, format="rgb24", interpolation=conversion, threads=1)
    except FFmpegError as error:
        raise BadVideo(path, f"has {frame.format.name} pixels, which cannot be converted ({error.strerror})") from error
    return np.rot90(rgb.to_ndarray(), k=round(frame.rotation / 90))


def _check_none_missing(path: Path, due: list[int | None], first: int | None, count: int) -> None:
    """A trimmed video may begin with pictures that refer to lost ones; from the first that decodes, all must come."""
    expected = len(due) if first is None else sum(pts is None or pts >= first for pts in due)
    if count < expected:
        raise BadVideo(path, f"is damaged: {expected - count} of {expected} frames cannot be decoded")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    try:
        if is_cut_off(path):
            raise BadVideo(path, "is cut off: the file is shorter than its header says")
        # "file:" keeps FFmpeg from reading a protocol into a name with a colon.
        with av.open(f"file:{path.absolute()}", options={"format_whitelist": FORMATS}) as container:
            stream = container.streams.best("video")
            if not isinstance(stream, VideoStream):
                raise BadVideo(path, "holds no video stream")
            if stream.codec_context is None:
                raise BadVideo(path, "is encoded in a way that PyAV cannot decode (convert it to H.264)")
            stream.codec_context.options = {"max_pixels": str(MAX_PIXELS)}
            yield container, stream
    except (FFmpegError, OSError) as error:
        raise BadVideo(path, f"cannot be decoded as a video ({error.strerror})") from error
    except UnicodeDecodeError as error:  # before PyAV 19
        raise BadVideo(path, "has a title or other tags that are not UTF-8: remove them, or install PyAV 19") from error
