"""The one loop that fits a network by gradient descent, for every method that needs one.

The network's `forward(batch)` is its loss; `sample(rng)` draws a batch; `validate(network)` measures it on videos that
are not trained on and picks the checkpoint. Step s draws from a generator seeded with (seed, s), so a run that was
killed and resumed takes exactly the steps of an uninterrupted one. More than one device goes through `accelerate`
(`accelerate launch -m timerewarder fit ...`, or `torchrun` for several CPU processes): each process draws its own
batches, and gradients are averaged.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from timerewarder.config import differing_keys
from timerewarder.errors import UserError
from timerewarder.files import read_json, write_json, write_text
from timerewarder.models.checkpoint import load_tensors, optimizer_tensors, restore_optimizer, save_tensors
from timerewarder.models.precision import bf16_is_native
from timerewarder.progress import bar, console


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of the training loop."""

    epochs: float = 5.0
    """Length of the training in epochs; see --epoch-frames."""
    minutes: float | None = None
    """Length of the training in minutes of wall time instead of epochs."""
    epoch_frames: int = 20_000
    """Encoded frames in an epoch. The paper's epoch is 10,000 pairs, which is 20,000 frames."""
    lr: float | None = None
    """Learning rate; default: what suits the encoder (1e-3 for small, 3e-4 for resnet34, 2e-5 for the ViTs)."""
    warmup_epochs: float = 0.05
    """Epochs over which the learning rate rises linearly from zero."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """Optimiser; the paper's is adam."""
    weight_decay: float = 0.01
    """Weight decay of adamw."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0 for no limit."""
    ema: float = 0.99
    """Decay of the running average of the weights that is validated and kept; 0 keeps the weights themselves."""
    validation: float = 0.1
    """Share of the videos set aside to pick the checkpoint (at least one video, none if there is only one)."""
    validate_every: int = 4_000
    """Encoded frames between two validations; a checkpoint to resume from is written at each."""
    patience: int = 10
    """Validations without improvement after which the training stops early; 0 for never."""
    seed: int = 0
    """Seed of the split, the weights and the batches."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; auto takes CUDA or MPS when present."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 autocast or fp32; auto takes bf16 where the hardware computes it natively."""

    def __post_init__(self) -> None:
        least = {"epoch_frames": 1, "validate_every": 1} | dict.fromkeys(
            ("lr", "warmup_epochs", "weight_decay", "clip_norm", "patience", "seed"), 0
        )
        for name, low in least.items():
            if getattr(self, name) is not None and not getattr(self, name) >= low:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is too small: give at least {low}")
        if self.seed >= 2**63:
            raise UserError(f"--seed {self.seed} is too large: give less than {2**63}")
        for name in ("epochs", "minutes"):
            length = getattr(self, name)
            if length is not None and not 0 < length < math.inf:
                raise UserError(f"--{name} {length} is not a length of time: give a positive number")
        if not 0 <= self.validation < 1 or not 0 <= self.ema < 1:
            raise UserError("--validation and --ema are shares: give a number from 0 up to, but not including, 1")


@dataclass(frozen=True)
class Batch:
    """Tensors for the network's forward; `tensors["frames"]` is uint8 (..., S, S, 3). `origin` is for messages."""

    tensors: dict[str, Tensor]
    origin: str

    @property
    def encoded_frames(self) -> int:
        return math.prod(self.tensors["frames"].shape[:-3])


@dataclass
class Progress:
    """Where a training stands; everything but the tensors, kept as JSON beside them."""

    step: int = 0
    frames: int = 0
    seconds: float = 0.0
    best: float | None = None  # the number that picks the checkpoint
    best_row: dict[str, float] = field(default_factory=dict)  # the validation that picked it
    stale: int = 0  # validations since then
    rows: list[dict[str, float]] = field(default_factory=list)
    stopped: str = ""  # why it ended before its time, if it diverged


class Diverged(UserError):
    """Raised by a network's loss or validation where going on makes no sense: the training ends with the best weights.

    Without any validation before, there are none to keep, and it is an error.
    """


def split(lengths: np.ndarray, options: Training) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the videos to train on and of those that pick the checkpoint."""
    order = np.random.default_rng([options.seed, 0xDA7A]).permutation(len(lengths))
    held = min(max(1, round(options.validation * len(order))), len(order) - 1) if options.validation > 0 else 0
    return np.sort(order[held:]), np.sort(order[:held])


def train(
    network: nn.Module,
    sample: Callable[[np.random.Generator], Batch],
    validate: Callable[[Any], dict[str, float]] | None,
    options: Training,
    folder: Path | None = None,
    identity: dict[str, Any] | None = None,
) -> Progress:
    """Fit `network` in place and leave it with the weights that validated best (the last ones without validation).

    `validate` returns a dictionary whose first entry is to be minimised. With a `folder` the training can be resumed
    from it, provided that `identity` (configuration, data) is the same.
    """
    accelerator = Accelerator(cpu=options.device == "cpu")
    with torch.random.fork_rng():
        loop = _Loop(network, options, accelerator, folder, identity or {})
        loop.run(sample, validate)
    return loop.progress


def running_average(decay: float) -> Callable[[Any, Any, Any], None]:
    """Exponential average of weights for AveragedModel; its memory grows with the steps, up to 1 / (1 - decay)."""

    @torch.no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], taken: Tensor) -> None:
        weight = 1 - min(decay, (1 + float(taken)) / (10 + float(taken)))
        for average, value in zip(averaged, current, strict=True):
            average.lerp_(value, weight)

    return update


class _Loop:
    def __init__(
        self,
        network: nn.Module,
        options: Training,
        accelerator: Accelerator,
        folder: Path | None,
        identity: dict[str, Any],
    ) -> None:
        self.options, self.accelerator, self.folder, self.identity = options, accelerator, folder, identity
        assert options.lr is not None, "resolve the configuration first"
        self.lr = options.lr
        if options.device not in ("auto", accelerator.device.type):
            raise UserError(
                f"--device {options.device} is not available here (found {accelerator.device.type}): use --device auto"
            )
        self.bf16 = options.precision == "bf16" or (options.precision == "auto" and bf16_is_native(accelerator.device))
        optimizers = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
        decay = {"weight_decay": options.weight_decay} if options.optimizer == "adamw" else {}
        self.network = network.to(accelerator.device)
        self.optimizer = optimizers[options.optimizer](network.parameters(), lr=self.lr, fused=True, **decay)
        self.average = AveragedModel(network, multi_avg_fn=running_average(options.ema)) if options.ema > 0 else None
        self.best: dict[str, Tensor] | None = None
        self.progress = Progress()
        self._resume()
        self.prepared, self.prepared_optimizer = accelerator.prepare(self.network, self.optimizer)

    @property
    def kept(self) -> nn.Module:
        """The network that is validated and kept: the running average if there is one."""
        return self.average.module if self.average is not None else self.network

    def run(
        self, sample: Callable[[np.random.Generator], Batch], validate: Callable[[Any], dict[str, float]] | None
    ) -> None:
        self.losses: list[float] = []
        started = time.monotonic() - self.progress.seconds
        with bar() as display:
            display.disable = not self.accelerator.is_main_process
            task = display.add_task("Fitting", total=round(self._goal()), note="")
            while not self._finished():
                try:
                    loss = self._advance(sample, validate, started)
                except Diverged as error:
                    self._stop(error)
                else:
                    display.update(task, completed=round(self._done()), note=self._note(loss))
        if self.best is not None:
            self.network.load_state_dict(self.best)
        else:
            self.network.load_state_dict(self.kept.state_dict())
        self.network.eval()

    def _advance(
        self,
        sample: Callable[[np.random.Generator], Batch],
        validate: Callable[[Any], dict[str, float]] | None,
        started: float,
    ) -> float:
        """A step, and a validation when it is due; returns the loss."""
        now = self.progress
        loss, frames = self._step(sample)
        now.step += 1
        self.losses.append(loss)
        due = (now.frames + frames) // self.options.validate_every > now.frames // self.options.validate_every
        now.frames += frames
        now.seconds = self._agree(time.monotonic() - started)
        if due or self._finished():
            self._validate(validate)
            now.seconds = self._agree(time.monotonic() - started)
            self._checkpoint()
            self.losses = []
        return loss

    def _stop(self, error: Diverged) -> None:
        if self.best is None:
            raise error
        now = self.progress
        now.stopped = (
            f"{error}; the training ended at step {now.step} with the best weights, of step {now.best_row['step']}"
        )
        self._checkpoint()

    def _goal(self) -> float:
        minutes = self.options.minutes
        return minutes * 60 if minutes is not None else self.options.epochs * self.options.epoch_frames

    def _done(self) -> float:
        return min(self.progress.seconds if self.options.minutes is not None else self.progress.frames, self._goal())

    def _finished(self) -> bool:
        impatient = 0 < self.options.patience <= self.progress.stale
        return self._done() >= self._goal() or impatient or self.progress.stopped != ""

    def _note(self, loss: float) -> str:
        best = "" if self.progress.best is None else f" val {self.progress.best:.3f}"
        return f"loss {loss:.2f}{best}"

    def _agree(self, value: float) -> float:
        """The main process's number, so that all processes stop at the same step."""
        if self.accelerator.num_processes == 1:
            return value
        return float(broadcast(torch.tensor(value, dtype=torch.float64, device=self.accelerator.device)))

    def _step(self, sample: Callable[[np.random.Generator], Batch]) -> tuple[float, int]:
        """One gradient step; returns the loss and the number of frames encoded by all processes."""
        step, options = self.progress.step, self.options
        rng = np.random.default_rng([options.seed, step, self.accelerator.process_index])
        torch.manual_seed(int(rng.integers(2**62)))
        batch = sample(rng)
        warmup = options.warmup_epochs * options.epoch_frames
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * min(1.0, (self.progress.frames + batch.encoded_frames) / max(warmup, 1))
        self.prepared.train()
        with torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.prepared({name: t.to(self.accelerator.device) for name, t in batch.tensors.items()})
        value = float(loss.detach())
        if not math.isfinite(value):
            kept = (
                f"the last good checkpoint is kept in {self.folder}"
                if self.folder and self.progress.rows
                else "no checkpoint yet"
            )
            raise UserError(
                f"loss is {value} at step {step} on {batch.origin}; {kept}; lower --lr or use --precision fp32"
            )
        self.prepared_optimizer.zero_grad(set_to_none=True)
        self.accelerator.backward(loss)
        if options.clip_norm > 0:
            self.accelerator.clip_grad_norm_(self.prepared.parameters(), options.clip_norm)
        self.prepared_optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.network)
        return value, batch.encoded_frames * self.accelerator.num_processes

    def _validate(self, validate: Callable[[Any], dict[str, float]] | None) -> None:
        now = self.progress
        row = {
            "step": now.step,
            "frames": now.frames,
            "seconds": round(now.seconds, 3),
            "loss": sum(self.losses) / len(self.losses),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
        }
        if validate is not None:
            self.kept.eval()
            measured = validate(self.kept)
            criterion = next(iter(measured))
            measured[criterion] = self._agree(measured[criterion])
            row |= measured
            if now.best is None or measured[criterion] < now.best:
                now.best, now.best_row, now.stale = measured[criterion], row, 0
                self.best = {name: tensor.detach().clone() for name, tensor in self.kept.state_dict().items()}
            else:
                now.stale += 1
        now.rows.append(row)

    def _checkpoint(self) -> None:
        """Write the state, the table and TensorBoard's log; the JSON names the tensors and comes last."""
        if self.folder is None or not self.accelerator.is_main_process:
            return
        now = self.progress
        state = {f"network.{name}": t for name, t in self.network.state_dict().items()}
        if self.average is not None:
            state |= {f"average.{name}": t for name, t in self.average.state_dict().items()}
        state |= optimizer_tensors(self.optimizer, "optimizer")
        names = {"state": f"state-{now.step}.safetensors"}
        save_tensors(self.folder / names["state"], {name: t.clone() for name, t in state.items()})
        if self.best is not None:
            names["best"] = f"best-{int(now.best_row['step'])}.safetensors"
            if not (self.folder / names["best"]).exists():
                save_tensors(self.folder / names["best"], self.best)
        write_json(self.folder / "state.json", {"identity": self.identity, "files": names, "progress": vars(now)})
        for stale in set(self.folder.glob("*.safetensors")) - {self.folder / name for name in names.values()}:
            stale.unlink()
        write_log(self.folder.parent / "log.csv", now.rows)
        self._tensorboard(now.rows[-1])

    def _tensorboard(self, row: dict[str, float]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        assert self.folder is not None
        if not hasattr(self, "writer"):
            self.writer = SummaryWriter(str(self.folder / "tensorboard"), purge_step=int(row["frames"]))
        for name, value in row.items():
            self.writer.add_scalar(name, value, int(row["frames"]))
        self.writer.flush()

    def _resume(self) -> None:
        if self.folder is None or not (self.folder / "state.json").exists():
            return
        saved = read_json(self.folder / "state.json")
        different = differing_keys(saved["identity"], self.identity)
        if different:
            raise UserError(
                f"{self.folder.parent} holds a training with other settings ({', '.join(different)}): "
                "give the same settings to resume it, another --out, or --overwrite"
            )
        self.progress = Progress(**saved["progress"])
        state = load_tensors(self.folder / saved["files"]["state"])
        part = lambda prefix: {name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)}  # noqa: E731
        self.network.load_state_dict(part("network."))
        if self.average is not None:
            self.average.load_state_dict(part("average."))
        restore_optimizer(self.optimizer, state, "optimizer")
        if "best" in saved["files"]:
            self.best = load_tensors(self.folder / saved["files"]["best"])
        if self.accelerator.is_main_process:
            console.print(f"Resuming {self.folder.parent} at {self.progress.frames:,} frames")


def write_log(path: Path, rows: list[dict[str, float]]) -> None:
    """The training log as CSV, one row a validation."""
    text = io.StringIO()
    writer = csv.DictWriter(
        text, fieldnames=list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
