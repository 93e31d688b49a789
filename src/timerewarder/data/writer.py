"""Write frames as an mp4 that any player and browser opens: H.264, yuv420p, the index at the front.

Colours are BT.709 in limited range and say so, so that players show them and `read_videos` returns them as they were.
Half of the chroma resolution is lost in any such file: that, not the quantiser, makes up nearly all of the error of
"near-lossless" (mean over pixels 1.2 of 255 on an 84-pixel Meta-World view, 0.7 on a 320-pixel one). The same frames
give the same bytes on every machine: one encoder thread, and never the encoder's AVX-512 code, with which one file in
twenty came out different on a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from timerewarder.data.colours import TO_YUV
from timerewarder.data.frames import check_frames
from timerewarder.errors import UserError
from timerewarder.files import atomic

Quality = Literal["near-lossless", "web"]
CRF: dict[Quality, int] = {"near-lossless": 4, "web": 20}  # x264's scale: 0 is exact but plays nowhere, 51 is worst

BT709 = 1  # the same number for matrix, primaries and transfer


def write_video(path: Path | str, frames: Iterable[np.ndarray], fps: float, quality: Quality = "near-lossless") -> None:
    """Write frames, an array uint8 (T, H, W, 3) or any iterable of uint8 (H, W, 3), to an mp4 file.

    An odd width or height is made even, as H.264 needs, by repeating the last column or row.
    """
    if not 0 < fps <= 1000:
        raise UserError(f"fps must be above 0 and at most 1000, not {fps}")
    path = Path(path)
    with (
        atomic(path) as temporary,
        av.open(str(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container,
    ):
        encoder = None
        reformatter = VideoReformatter()
        for frame in frames:
            picture = _even(check_frames(frame[None])[0])
            if encoder is None:
                encoder = _add_encoder(container, picture.shape[:2], fps, quality)
            if (encoder.height, encoder.width) != picture.shape[:2]:
                raise UserError(
                    f"{path}: frames must have one size, not {(encoder.height, encoder.width)} and {picture.shape[:2]}"
                )
            yuv = reformatter.reformat(
                av.VideoFrame.from_ndarray(picture, format="rgb24"),
                format="yuv420p",
                dst_colorspace=Colorspace.ITU709,
                dst_color_range=ColorRange.MPEG,
                interpolation=TO_YUV,
                threads=1,
            )
            container.mux(encoder.encode(yuv))
        if encoder is None:
            raise UserError(f"{path}: there are no frames to write")
        container.mux(encoder.encode(None))


def _add_encoder(
    container: av.container.OutputContainer, shape: tuple[int, int], fps: float, quality: Quality
) -> av.VideoStream:
    rate = Fraction(fps).limit_denominator(1001)  # 29.97... is 30000/1001
    keyframes = max(1, round(2 * fps))  # one in two seconds, so that a page can jump to any moment
    stream = container.add_stream(
        "libx264",
        rate=rate,
        options={"crf": str(CRF[quality]), "preset": "veryfast", "threads": "1", "g": str(keyframes), **_repeatable()},
    )
    stream.height, stream.width = shape
    stream.pix_fmt = "yuv420p"
    stream.color_range = ColorRange.MPEG
    stream.colorspace = stream.color_primaries = stream.color_trc = BT709
    return stream


def _repeatable() -> dict[str, str]:
    """What keeps x264 from its AVX-512 code; only where there is such code, since it trusts what it is told here."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    has_it = any(name.startswith("AVX512") or name == "X86_V4" for name in found)  # as older and newer NumPy say it
    return {"x264-params": "asm=avx2"} if has_it else {}


def _even(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    if height % 2 or width % 2:
        picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(picture)
