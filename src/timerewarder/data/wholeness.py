"""Is a media file all there? Its outer structure says how long it must be, whatever a decoder makes of the rest.

A decoder plays the beginning of a file that was cut off by a broken download and stops without a word. Here
- mp4, mov: every top-level box must end inside the file;
- webm, mkv: the segment must (a live recording declares no length, and a cut in it cannot be seen);
- avi: the RIFF chunk must (an unfinished recording declares no length either);
- gif: the file must end with the trailer byte.
A fragmented mp4 that was cut exactly between two fragments is a whole, shorter video.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

BOXES = {b"ftyp", b"moov", b"mdat", b"moof", b"free", b"skip", b"wide", b"udta", b"uuid", b"mfra", b"sidx", b"styp"}


def is_cut_off(path: Path) -> bool:
    """True if the file is shorter than it says itself; False if it is whole or does not say."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(12)
        file.seek(0)
        if start[4:8] in BOXES:
            return _boxes_end(file, size) > size
        if start[:4] == b"\x1aE\xdf\xa3":
            return _segment_end(file) > size
        if start[:4] == b"RIFF":
            declared = int.from_bytes(start[4:8], "little")
            return declared != 0xFFFFFFFF and 8 + declared > size
        if start[:3] == b"GIF":
            file.seek(max(0, size - 1024))
            return not file.read().rstrip(b"\0").endswith(b"\x3b")
    return False


def _boxes_end(file: BinaryIO, size: int) -> int:
    """Where the last top-level box of an mp4 or mov ends. Some cameras append junk: an unknown box ends the walk."""
    offset = 0
    while offset < size:
        file.seek(offset)
        length, kind = int.from_bytes(file.read(4), "big"), file.read(4)
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        if kind not in BOXES or length < 8:  # length 0: the box reaches to the end of the file
            break
        offset += length
    return offset


def _segment_end(file: BinaryIO) -> int:
    """Where the segment of a webm or mkv ends; 0 if it does not say."""
    file.seek(4)
    header = _ebml_length(file)
    if header is None:
        return 0
    file.seek(header, 1)
    if file.read(4) != b"\x18S\x80g":
        return 0
    length = _ebml_length(file)
    return 0 if length is None else file.tell() + length


def _ebml_length(file: BinaryIO) -> int | None:
    """Read a number of 1-8 bytes whose leading zero bits tell how many follow; all ones mean "unknown"."""
    first = file.read(1)
    if not first or first[0] == 0:
        return None
    extra = 8 - first[0].bit_length()
    value = int.from_bytes(first + file.read(extra), "big") - (1 << (7 * (extra + 1)))
    return None if value == (1 << (7 * (extra + 1))) - 1 else value
