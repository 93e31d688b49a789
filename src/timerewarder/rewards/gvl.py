"""GVL: a vision-language model says how far a task is (Ma et al., "Vision Language Models are In-Context Value
Learners", ICLR 2025).

    question   examples: 5 videos of 32 frames each, shuffled, each frame with its share of the video in percent
               the first frame o_1, said to be 0 %; then the frames of the episode, shuffled
    answer     "Frame i: Frame Description: ..., Task Completion Percentages: p_i%"
    value      V(o_i) = p_i / 100, linear between the frames that were asked for
    reward     V(o_t+1) - V(o_t)

Shuffling keeps the model from answering with a rising line whatever it sees. Nothing is trained: a fit keeps the
examples. Deviations: GVL's own number of frames is 30 (32 is TimeRewarder's for it). The examples come first in the
question, so that endpoints that cache beginnings compute them once. The first frame is also asked for among the others,
as in the paper's equation; its text can be read otherwise, and `first="zero"` does so.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from timerewarder.data.cache import cache_folder
from timerewarder.data.source import AS_THEY_ARE, Opening
from timerewarder.data.store import FrameStore, open_store
from timerewarder.errors import UserError
from timerewarder.models.chat import BadAnswer, Chat, Message, name_address
from timerewarder.models.encoders import Encoder, Preprocessing
from timerewarder.rewards.fitting import Sources
from timerewarder.rewards.reward import PotentialReward

Detail = Literal["auto", "low", "high"]
JPEG_QUALITY = 90
GENERIC_TASK = "completing what the examples show"

# The paper's prompt (its appendix A).
OPENING = (
    "You are an expert roboticist tasked to predict task completion percentages for frames of a robot for the task of "
    "{task}. The task completion percentages are between 0 and 100, where 100 corresponds to full task completion. "
)
OF_EXAMPLES = (
    "We provide several examples of the robot performing the task at various stages and their corresponding task "
    "completion percentages. "
)
RANDOM_ORDER = (
    "Note that these frames are in random order, so please pay attention to the individual frames when reasoning about "
    "task completion percentage."
)
QUESTION = (
    "In the initial robot scene, the task completion percentage is 0.\nNow, for the task of {task}, output the task "
    "completion percentage for the following {count} frames that are presented in random order. For each frame, format "
    "your response as follow: Frame {{i}}: Frame Description: {{}}, Task Completion Percentages:{{}}%"
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of GVL."""

    model: str | None = None
    """Vision-language model, by the name that the endpoint knows it by. Has to be given."""
    base_url: str | None = None
    """Address of an endpoint that speaks the OpenAI chat API. Default: OPENAI_BASE_URL when scoring, or OpenAI's."""
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the endpoint's key, if it needs one. The key itself is not saved."""
    task_text: str | None = None
    """What the task is, in words that continue "the task of", such as "opening the drawer". Default: generic words."""
    frames: int = 32
    """Frames asked for in an episode, and shown of each example, evenly over the video (GVL's own number is 30)."""
    examples: int = 5
    """Training videos shown as examples; 0 for none, with --task-text."""
    first: Literal["asked", "zero"] = "asked"
    """Value of the first frame: asked for among the others although shown as 0 percent, or 0 without asking."""
    image_size: int = 224
    """Side in pixels of the square pictures that are sent."""
    detail: Detail = "auto"
    """How closely the endpoint is to look at a picture, if it knows this option: auto, low (cheaper) or high."""
    temperature: float | None = None
    """Randomness of the answers; default: the model's own. Some models accept no other."""
    stop_at_rest: bool = True
    """Stop an example's clock where its picture comes to rest for good, so that waiting at the end is no progress."""
    attempts: int = 3
    """How often a question is put before an answer that cannot be used is an error."""
    retries: int = 5
    """How often a call that fails in passing (busy, unreachable, server error) is repeated, each time later."""
    timeout: float = 300.0
    """Seconds to wait for an answer."""
    max_calls: int = 200
    """Calls that one process may make; 0 answers from the cache alone."""
    cache: str | None = None
    """Folder that keeps answers. Default: gvl in the folder TIMEREWARDER_CACHE, or in the user's cache."""
    seed: int = 0
    """Seed of the choice of examples and of the shuffling."""

    def __post_init__(self) -> None:
        if self.frames < 2:
            raise UserError(f"--frames {self.frames} shows no progress: give at least 2, the paper's is 32")
        if self.examples < 0 or self.seed < 0:
            raise UserError("--examples and --seed must be at least 0")
        if not 16 <= self.image_size <= 1024:
            raise UserError(f"--image-size {self.image_size} is out of range: choose 16 to 1024")
        if self.model is not None and not self.model.strip():
            raise UserError("--model is empty: name the vision-language model as the endpoint does")
        if self.task_text is not None and not self.task_text.strip():
            raise UserError("--task-text is empty: say what the task is, or leave it out")
        self.chat()

    def chat(self) -> Chat:
        """The model that is asked."""
        return Chat(
            model=self.model or "",
            base_url=self.base_url,
            key_variable=self.key_variable,
            cache=Path(self.cache).expanduser() if self.cache else cache_folder() / "gvl",
            timeout=self.timeout,
            retries=self.retries,
            attempts=self.attempts,
            max_calls=self.max_calls,
            temperature=self.temperature,
        )

    def resolved(self) -> Config:
        """The same: no option's default follows from another."""
        return self


class Pictures(Encoder):
    """Frames as they are: uint8 (N, S, S, 3) -> uint8 (N, 3 S S). The model at the endpoint does the looking."""

    def __init__(self, size: int) -> None:
        pre = Preprocessing(size, "squash", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        super().__init__(nn.Flatten(), 3 * size * size, pre, {"image_size": size})

    def forward(self, frames: Tensor) -> Tensor:
        return self.backbone(frames)


class Example(NamedTuple):
    """A frame with its answer."""

    video: int
    percent: int
    jpeg: bytes


class GVL(PotentialReward):
    method = "gvl"
    streams = False
    grown: ClassVar[tuple[str, ...]] = (*PotentialReward.grown, "pictures", "labels")
    config: Config
    pictures: Tensor  # uint8 (bytes of all,), the JPEG files of the example frames, one after the other
    labels: Tensor  # int64 (frames, 3): video, percent, bytes of the file

    def __init__(self, config: Config, architecture: dict[str, Any] | None = None) -> None:
        super().__init__(config, encoder=Pictures(config.image_size))
        self.register_buffer("pictures", torch.zeros(0, dtype=torch.uint8))
        self.register_buffer("labels", torch.zeros(0, 3, dtype=torch.int64))

    @property
    def looks_through(self) -> str:
        return f"model {self.config.model}"

    def potential(self, features: Tensor) -> Tensor:
        """Frames as bytes (T, 3 S S) -> values (T,) in [0, 1]; one call at most, none for a single frame."""
        length, size = len(features), self.config.image_size
        asked = picked(length, self.config.frames)
        if len(asked) < 2:
            return torch.zeros(length, device=features.device)
        frames = features[torch.from_numpy(asked).to(features.device)].cpu().numpy().reshape(-1, size, size, 3)
        values = np.interp(np.arange(length), asked, self.ask(frames))
        return torch.from_numpy(values.astype(np.float32)).to(features.device)

    def ask(self, frames: np.ndarray) -> np.ndarray:
        """uint8 (N, S, S, 3), in the order of time -> float64 (N,), completion from 0 to 1 as the model sees it."""
        start = 1 if self.config.first == "zero" else 0
        order = start + shuffled(len(frames) - start, frames, self.config.seed)
        jpegs = [jpeg(frame) for frame in frames]
        task = self.config.task_text or GENERIC_TASK
        question = prompt(task, self.examples, jpegs[0], [jpegs[i] for i in order], self.config.detail)
        values = np.zeros(len(frames))
        values[order] = self.config.chat().ask(question, partial(read_percentages, count=len(order))) / 100
        return values

    @property
    def examples(self) -> list[Example]:
        """The frames that are shown with their answers."""
        content, labels = self.pictures.cpu().numpy().tobytes(), self.labels.tolist()
        ends = np.cumsum([size for _, _, size in labels], dtype=int).tolist()
        return [
            Example(video, percent, content[end - size : end])
            for (video, percent, size), end in zip(labels, ends, strict=True)
        ]

    def remember(self, store: FrameStore) -> None:
        """Keep some of the videos as examples."""
        rng = np.random.default_rng([self.config.seed, 0x671])
        chosen = np.sort(rng.choice(len(store), min(self.config.examples, len(store)), replace=False))
        files: list[bytes] = []
        labels: list[tuple[int, int, int]] = []
        for number, video in enumerate(chosen.tolist()):
            index = rng.permutation(picked(int(store.lengths[video]), self.config.frames))
            percents = 100 * store.times(video, index) / (store.spans[video] - 1)
            for frame, percent in zip(store.frames(video, index), percents, strict=True):
                files.append(jpeg(frame))
                labels.append((number, round(float(percent)), len(files[-1])))
        self.pictures = torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8) if files else self.pictures
        self.labels = torch.tensor(labels, dtype=torch.int64).reshape(-1, 3)


def fit(videos: Sources, config: Config, folder: Path | None = None, *, opening: Opening = AS_THEY_ARE) -> GVL:
    """Keep examples. Nothing is trained and nothing is asked, so `folder` stays empty."""
    if config.model is None:
        raise UserError("gvl asks a vision-language model: name it with --model, and its endpoint with --base-url")
    if config.examples == 0 and config.task_text is None:
        raise UserError("without examples the model has to be told the task: give --task-text, or --examples 5")
    reward = GVL(config)
    pre = reward.preprocessing
    store = open_store(videos, pre.size, pre.how, opening)
    store = store.stopped_at_rest() if config.stop_at_rest else store
    reward.record = store.record
    reward.remember(store)
    if config.base_url is not None:
        name_address(config.base_url)
    return reward.eval()


def picked(length: int, most: int) -> np.ndarray:
    """At most so many frames, evenly over a video: int64, the first and the last included."""
    return np.linspace(0, length - 1, min(length, most)).round().astype(np.int64)


def shuffled(count: int, frames: np.ndarray, seed: int) -> np.ndarray:
    """A permutation of so many, that depends on what the frames show: the same episode, the same question."""
    content = hashlib.sha256(np.ascontiguousarray(frames).tobytes()).digest()
    return np.random.default_rng([seed, int.from_bytes(content[:8], "little")]).permutation(count)


def jpeg(frame: np.ndarray) -> bytes:
    """uint8 (H, W, 3) -> a JPEG file, its colours at full resolution."""
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "jpeg", quality=JPEG_QUALITY, subsampling=0)
    return file.getvalue()


def prompt(
    task: str, examples: Sequence[Example], first: bytes, frames: Sequence[bytes], detail: Detail
) -> list[Message]:
    """The question as one message of texts and pictures."""
    opening = OPENING.format(task=task) + (OF_EXAMPLES if examples else "") + RANDOM_ORDER
    pieces: list[str | bytes] = [opening]
    for number, (video, percent, picture) in enumerate(examples, 1):
        pieces += [f"Example {video + 1}, picture {number}:", picture, f"Task Completion Percentages: {percent}%"]
    pieces += ["Initial robot scene:", first, QUESTION.format(task=task, count=len(frames))]
    for number, picture in enumerate(frames, 1):
        pieces += [f"Frame {number}:", picture]
    content: list[dict[str, Any]] = []
    for kind, group in itertools.groupby(pieces, type):
        if kind is str:
            content.append({"type": "text", "text": "\n".join(map(str, group))})
        else:
            content += [_picture(bytes(piece), detail) for piece in group]  # type: ignore[arg-type]
    return [{"role": "user", "content": content}]


def _picture(file: bytes, detail: Detail) -> dict[str, Any]:
    address = {"url": f"data:image/jpeg;base64,{base64.b64encode(file).decode()}"}
    return {"type": "image_url", "image_url": address if detail == "auto" else {**address, "detail": detail}}


NUMBER = r"([+-]?\d+(?:\.\d+)?)(?!\.?\d)(?!\s*(?:[-–—]|to)\s*\d)"  # not the beginning of a range
HEADING = re.compile(r"^\W*frame\W{0,4}(\d+)\b|\bframe\W{0,4}(\d+)\W{0,4}:", re.IGNORECASE | re.MULTILINE)
ANSWER = re.compile(rf"completion percentages?[^\d%+-]{{0,8}}{NUMBER}", re.IGNORECASE)
LAST_WORD = re.compile(rf"(?:^\W*?|[:,;(]\s*|\.\s+){NUMBER}\s*%\W*$")  # some models say nothing before the number


def read_percentages(answer: str, count: int) -> np.ndarray:
    """`Frame 1: ..., Task Completion Percentages: 40%` ... -> float64 (count,). All of them, or BadAnswer."""
    answer = answer.rpartition("</think>")[2]  # what a model says to itself, where an endpoint passes it on
    headings = list(HEADING.finditer(answer))
    found: dict[int, float] = {}
    ends = [*(heading.start() for heading in headings[1:]), len(answer)]
    for heading, end in zip(headings, ends, strict=False):  # without headings there is one end
        number = int(heading[1] or heading[2])
        for percentage in _percentages(answer[heading.end() : end]):
            if not 1 <= number <= count:
                raise BadAnswer(f"it speaks of frame {number}, and the frames are 1 to {count}")
            if not 0 <= percentage <= 100:
                raise BadAnswer(f"frame {number} has {percentage:g} %, which is not between 0 and 100")
            if found.setdefault(number, percentage) != percentage:
                raise BadAnswer(f"frame {number} has two answers, {found[number]:g} % and {percentage:g} %")
    if not found:
        raise BadAnswer('there is no line of the form "Frame 1: ..., Task Completion Percentages: 50%"')
    missing = [number for number in range(1, count + 1) if number not in found]
    if missing:
        listed = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise BadAnswer(f"{len(missing)} of {count} frames have no percentage: {listed}")
    values = np.array([found[number] for number in range(1, count + 1)])
    if values.max() <= 1 and (values % 1).any():
        raise BadAnswer("the numbers are shares from 0 to 1, not percentages from 0 to 100")
    return values


def _percentages(words: str) -> list[float]:
    """The completion in what is said of a frame; percentages in its description do not count."""
    return [float(number) for number in ANSWER.findall(words) or LAST_WORD.findall(words)]
