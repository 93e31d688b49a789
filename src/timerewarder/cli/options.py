"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import tyro

Json = Annotated[bool, tyro.conf.arg(help="Print one JSON object as the last line of the output.")]
Fps = Annotated[float | None, tyro.conf.arg(help="Resample every video to this rate; default: its own frames.")]
SkipBad = Annotated[
    bool, tyro.conf.arg(help="Leave out videos that cannot be read, with a warning, instead of stopping.")
]
Camera = Annotated[
    str | None, tyro.conf.arg(metavar="KEY", help="Of LeRobot datasets: camera to look at; default: the only one.")
]
Task = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="TEXT", help="Of LeRobot datasets: only episodes of this task (its whole text); default: all."
    ),
]
Model = Annotated[str, tyro.conf.arg(metavar="MODEL", help="Model folder, or a Hub id.")]
Videos = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="VIDEO...",
        help="Files and folders, mixed at will: mp4, mov, webm, mkv, avi, gif, npz, npy, folders of images, "
        "LeRobot datasets (v3; folders or Hub ids).",
    ),
]
