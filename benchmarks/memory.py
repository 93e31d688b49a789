"""Peak memory of `timerewarder fit` on 1,000 videos as a ratio to that on 100.

    python benchmarks/memory.py

Writes short videos of a moving square, fits on the first 100 and on all 1,000 in processes of their own, and compares
their peak resident memory. Decoding counts: each process starts from an empty frame cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from timerewarder.data.videos import write_video
from timerewarder.progress import track


def moving_square(seed: int, length: int = 40, size: int = 84) -> np.ndarray:
    """uint8 (length, size, size, 3)."""
    rng = np.random.default_rng(seed)
    frames = np.broadcast_to(rng.integers(0, 60, (size, size, 3)), (length, size, size, 3)).astype(np.uint8)
    top = int(rng.integers(0, size - 16))
    for t in range(length):
        left = t * (size - 16) // (length - 1)
        frames[t, top : top + 16, left : left + 16] = (240, 200, 60)
    return frames


def peak_of_fit(videos: Path, work: Path, frames: int) -> int:
    """Peak resident memory in MB of a fit, measured by the operating system for a child of a child."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); " \
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"  # fmt: skip
    command = [sys.executable, "-m", "timerewarder", "fit", str(videos), f"--out={work / 'model'}", "--epochs=1"]
    command += [f"--epoch-frames={frames}", "--validate-every=1000", "--patience=0", "--json"]
    environment = {**os.environ, "TIMEREWARDER_CACHE": str(work / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, *command], env=environment, check=True, capture_output=True, text=True
    )
    return int(done.stdout.splitlines()[-1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--frames", type=int, default=4000, help="encoded frames of each fit")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peaks = {}
        for count in (options.few, options.many):
            videos = Path(folder) / f"videos{count}"
            for seed in track(range(count), f"Writing {count} videos"):
                write_video(videos / f"{seed:04d}.mp4", moving_square(seed), 20)
            peaks[count] = peak_of_fit(videos, Path(folder) / f"work{count}", options.frames)
            print(f"peak memory of fit on {count} videos: {peaks[count]} MB")
    ratio = peaks[options.many] / peaks[options.few]
    print(f"ratio {ratio:.3f}")
    if options.json:
        print(json.dumps({"few": options.few, "many": options.many, "peaks_mb": list(peaks.values()), "ratio": ratio}))


if __name__ == "__main__":
    main()
