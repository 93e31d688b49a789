"""How well the server batches streams: requests/s with 16 clients against 1, and against the encoder alone.

    python benchmarks/serve.py

The server, `timerewarder serve` with an untrained TimeRewarder of the `small` encoder, and the clients are processes of
their own. A client is a WebSocket that sends a frame of 84x84 pixels, waits for its reward and sends the next. The
encoder's own rate is that of its forward pass alone in a third process, with as many threads as the server uses (one
less than there are cores), on batches of one, of as many frames as the server's had on average, and of the server's
limit. These measurements alternate, and the medians are printed, so that a busy machine slows all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 84
WARM = 20  # steps of each client that are not counted
BATCH = 64
SERVER = "import sys; from timerewarder.serve.run import serve; serve([sys.argv[1]], port=0)"


async def robot(url: str, seconds: float, body: bytes) -> list[float]:
    """The latencies of one client's steps, in seconds."""
    from websockets.asyncio.client import connect

    taken: list[float] = []
    async with connect(url, compression=None, proxy=None) as socket:
        for _ in range(WARM):
            await socket.send(body)
            await socket.recv()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            await socket.send(body)
            answer = await socket.recv()
            taken.append(time.perf_counter() - start)
        assert '"reward"' in answer, answer
    return taken


async def load(url: str, clients: int, seconds: float) -> dict[str, float]:
    """Requests/s of so many clients at once, and how long they waited."""
    file = io.BytesIO()
    np.save(file, np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8))
    taken = await asyncio.gather(*(robot(url, seconds, file.getvalue()) for _ in range(clients)))
    latencies = np.concatenate(taken) * 1000
    p50, p99 = np.percentile(latencies, [50, 99])
    return {"requests_per_second": len(latencies) / seconds, "p50_ms": float(p50), "p99_ms": float(p99)}


def forward_rate(batch: int, threads: int, seconds: float) -> dict[str, float]:
    """Frames/s of the encoder's forward pass alone."""
    import torch

    from timerewarder.rewards.timerewarder import Config, TimeRewarder

    torch.set_num_threads(threads)
    encoder = TimeRewarder(Config()).eval().encoder
    frames = torch.randint(0, 256, (batch, SIZE, SIZE, 3), dtype=torch.uint8)
    with torch.inference_mode():
        for _ in range(WARM):
            encoder(frames)
        passes, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            encoder(frames)
            passes += 1
        return {"frames_per_second": passes * batch / (time.perf_counter() - start)}


def in_process(*arguments: object) -> dict[str, float]:
    """This file in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


class Server:
    """`timerewarder serve` in a process of its own."""

    def __init__(self, model: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(model)], stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)/", line)
        if not found:
            raise SystemExit(line + self.process.stderr.read())
        self.address = f"127.0.0.1:{found[1]}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def batches(self) -> tuple[float, float]:
        """How many frames and how many forward passes there have been."""
        with urllib.request.urlopen(f"http://{self.address}/metrics") as answer:
            text = answer.read().decode()
        frames, passes = (re.search(rf"timerewarder_batch_frames_{name}{{.*}} (.*)", text) for name in ("sum", "count"))
        return (float(frames[1]), float(passes[1])) if frames and passes else (0.0, 0.0)

    def under(self, clients: int, seconds: float) -> dict[str, float]:
        before = self.batches()
        measured = in_process("--clients", clients, "--url", f"ws://{self.address}/v1/stream", "--seconds", seconds)
        frames, passes = np.subtract(self.batches(), before)
        return {**measured, "mean_batch": float(frames / passes)}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.median([one[name] for one in rounds])) for name in rounds[0]}


def measure(clients: int, rounds: int, seconds: float) -> dict[str, Any]:
    from timerewarder.rewards.timerewarder import Config, TimeRewarder

    alone: list[dict[str, float]] = []
    together: list[dict[str, float]] = []
    encoder: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        TimeRewarder(Config()).save(folder)
        with Server(Path(folder)) as server:
            server.under(clients, 1.0)  # warms everything up
            for number in range(rounds):
                alone.append(server.under(1, seconds))
                together.append(server.under(clients, seconds))
                seen = max(1, round(together[-1]["mean_batch"]))
                rates = {"one": 1, "mean_batch": seen, "batch_limit": BATCH}
                encoder.append(
                    {
                        name: in_process("--batch", n, "--seconds", seconds)["frames_per_second"]
                        for name, n in rates.items()
                    }
                )
                print(f"round {number}: {alone[-1]} {together[-1]} {encoder[-1]}", file=sys.stderr, flush=True)
    rate = [one["requests_per_second"] for one in together]
    return {
        "encoder": "small",
        "clients": clients,
        "cores": os.cpu_count(),
        "one_client": medians(alone),
        "many_clients": medians(together),
        "encoder_frames_per_second": medians(encoder),
        "many_of_one": float(np.median([r / one["requests_per_second"] for r, one in zip(rate, alone, strict=True)])),
        **{
            f"many_of_encoder_at_{name}": float(
                np.median([r / one[name] for r, one in zip(rate, encoder, strict=True)])
            )
            for name in encoder[0]
        },
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement")
    parser.add_argument("--url", help="only load this server, and print what the clients saw")
    parser.add_argument("--batch", type=int, help="only measure the encoder on batches of so many frames")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) - 1), help="of the encoder")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    if options.url:
        print(json.dumps(asyncio.run(load(options.url, options.clients, options.seconds))))
    elif options.batch:
        print(json.dumps(forward_rate(options.batch, options.threads, options.seconds)))
    else:
        result = measure(options.clients, options.rounds, options.seconds)
        for name, value in result.items():
            print(f"{name:<34}{value:.3f}" if isinstance(value, float) else f"{name:<34}{value}")
        if options.json:
            print(json.dumps(result))


if __name__ == "__main__":
    main()
