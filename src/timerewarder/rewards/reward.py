"""What a reward is, and what every reward that looks at frames through an encoder shares.

    Reward          the interface: `score(frames) -> rewards`
    FrameReward     score, stream, save and load from two parts that a method gives: `encode` and `compare`
    PotentialReward a FrameReward whose step reward is the difference of a value given to each frame

A method is one file with its `Config`, its `fit` and its reward class; METHODS in rewards/__init__.py lists them. What
sets a method apart from TimeRewarder is said by a few words of its class: `is_value`, `is_ordered`, `streams`.
Methods that learn from the agent as well derive from OnlineReward (rewards/online.py).
"""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from timerewarder.config import to_dict
from timerewarder.data.resize import resize
from timerewarder.data.videos import check_frames
from timerewarder.errors import UserError
from timerewarder.files import write_json, write_text
from timerewarder.models.checkpoint import EVALUATION, FORMAT, load_tensors, save_checkpoint
from timerewarder.models.encoders import LEARNING_RATES, Encoder, EncoderName, Preprocessing, build_encoder
from timerewarder.rewards.familiarity import Familiarity
from timerewarder.rewards.training import Training

ENCODE_BATCH = 64
C = TypeVar("C", bound="FrameConfig")


class Reward(Protocol):
    """Frames in, rewards out."""

    def score(self, frames: np.ndarray) -> np.ndarray:
        """uint8 (T, H, W, 3) -> float32 (T,). Entry t rewards arriving at frame t; entry 0 is 0. Pure."""
        ...


@dataclass(frozen=True, kw_only=True)
class FrameConfig:
    """Options of every method that sees frames through an encoder."""

    encoder: EncoderName = "small"
    """Network that turns a frame into features: small (CPU), clip-vit-b16 (the paper's), vit-b16, resnet34."""
    encoder_weights: str | None = None
    """Hub id or folder of pretrained weights for clip-vit-b16 (default: openai/clip-vit-base-patch16) or resnet34."""
    image_size: int | None = None
    """Side in pixels of the square picture the encoder sees. Default: 84 for small, 224 for the others."""
    history: int = 0
    """Frames of the past that each side of a comparison sees beside its own; disambiguates back-and-forth motion."""
    stop_at_rest: bool = True
    """Stop a video's clock where its picture comes to rest for good, so that waiting at the end is no progress."""
    training: Training = field(default_factory=Training)

    def resolved(self: C) -> C:
        """The same configuration with the encoder's learning rate filled in."""
        if self.training.lr is not None:
            return self
        return replace(self, training=replace(self.training, lr=LEARNING_RATES[self.encoder]))


class FrameReward(nn.Module):
    """A reward computed from per-frame features. As a network, `forward(batch)` is the training loss."""

    method: ClassVar[str]
    is_value: ClassVar[bool] = True
    """Whether rewards are the steps of a value, so that their running sum is progress and VOC means something."""
    is_ordered: ClassVar[bool] = True
    """Whether a success played backwards is worth less."""
    streams: ClassVar[bool] = True
    """Whether a step's reward depends on the first frame and the recent past alone, not on the whole episode."""
    grown: ClassVar[tuple[str, ...]] = ("familiarity.thumbnails",)
    """Buffers whose length is known only after the fit; a loaded model takes the checkpoint's."""
    config: Any

    def __init__(self, config: Any, architecture: dict[str, Any] | None = None, encoder: Encoder | None = None) -> None:
        """`encoder` for a method that does not take one of the usual ones by its configuration."""
        super().__init__()
        self.config = config
        self.history: int = getattr(config, "history", 0)
        if self.history < 0:
            raise UserError(f"--history {self.history} is negative: give the number of past frames, 0 for none")
        self.encoder = encoder or build_encoder(config.encoder, config.encoder_weights, config.image_size, architecture)
        self.familiarity = Familiarity()
        self.record: dict[str, Any] = {}  # what the model was trained on and how well it did; saved with it
        self.evaluation: dict[str, Any] | None = None  # evaluation.json of the folder that it was loaded from

    # A method gives the first of these, and the second if it knows distances ...

    def compare(self, features: Tensor) -> Tensor:
        """Features of consecutive frames (T, D) -> step rewards (T,); entry 0 is 0."""
        raise NotImplementedError

    def distances(self, features: Tensor) -> Tensor | None:
        """Features (T, D) -> (T, T): [u, v] is the predicted signed distance from u to v, as a share of the task."""
        return None

    # ... and gets the rest.

    def unit(self, length: int) -> int:
        """How many frames a whole task has, for a video of `length` frames: what a distance of 1 stands for."""
        return length

    @property
    def scale(self) -> float:
        """What the rewards of a whole video sum to."""
        return 1.0

    @property
    def whole(self) -> float:
        """What a running sum of rewards is divided by to be progress; 1 for a method that has none."""
        return self.scale if self.is_value else 1.0

    def progress(self, rewards: np.ndarray) -> np.ndarray:
        """Rewards (T,) of an episode -> their running sum as a share of the task, float32 (T,)."""
        return rewards.cumsum(dtype=np.float32) / np.float32(self.whole)

    @property
    def discount(self) -> float | None:
        """The discount factor that an agent is to use, for a method that says so."""
        return None

    @property
    def looks_through(self) -> str:
        """What turns frames into features, for titles."""
        return f"encoder {self.config.encoder}"

    @property
    def preprocessing(self) -> Preprocessing:
        """At which size, and cut how, frames are seen."""
        return self.encoder.preprocessing

    @property
    def window_dim(self) -> int:
        """Size of a frame's features together with those of the past that it is seen with."""
        return (self.history + 1) * self.encoder.dim

    @property
    def device(self) -> torch.device:
        return next(itertools.chain(self.parameters(), self.buffers())).device

    def encode_windows(self, frames: Tensor) -> Tensor:
        """Frames with their past, uint8 (N, history+1, S, S, 3) -> (N, (history+1) D), for training."""
        return self.encoder(frames.flatten(0, 1)).unflatten(0, frames.shape[:2]).flatten(1)

    @torch.no_grad()
    def encode(self, frames: np.ndarray) -> Tensor:
        """uint8 (T, H, W, 3) of any size -> features (T, D); every frame passes the encoder once."""
        frames = check_frames(frames)
        self.eval()
        pre = self.preprocessing
        features = []
        for start in range(0, len(frames), ENCODE_BATCH):
            batch = np.ascontiguousarray(resize(frames[start : start + ENCODE_BATCH], pre.size, pre.how))
            features.append(self.encoder(torch.from_numpy(batch).to(self.device)))
        return torch.cat(features)

    @torch.no_grad()
    def score(self, frames: np.ndarray) -> np.ndarray:
        """uint8 (T, H, W, 3) -> float32 (T,). Entry t rewards arriving at frame t; entry 0 is 0."""
        return self.compare(self.encode(frames)).cpu().numpy()

    def stream(self) -> Stream:
        """Rewards one frame at a time: `reset(first_frame)`, then `step(frame) -> float`, one encode a step."""
        if not self.streams:
            raise UserError(
                f"{self.method} rewards whole episodes, not steps as they come: "
                "use score(frames) at an episode's end, or `timerewarder train`"
            )
        return Stream(self)

    def windows(self, features: Tensor) -> Tensor:
        """(T, D) -> (T, (history+1) D): a frame's features and those before it; the start is padded by repetition."""
        if self.history == 0:
            return features
        padded = torch.cat([features[:1].expand(self.history, -1), features])
        return padded.unfold(0, self.history + 1, 1).transpose(1, 2).flatten(1)

    def save(self, folder: str | Path) -> None:
        """Write the model as safetensors and JSON; `timerewarder.load` reads it back."""
        save_checkpoint(Path(folder), self.description, self.state_dict())

    @property
    def description(self) -> dict[str, Any]:
        """All of the model but its weights, as plain JSON values."""
        return {
            "format": FORMAT,
            "method": self.method,
            "config": to_dict(self.config),
            "encoder": self.encoder.architecture,
            "record": self.record,
        }

    @classmethod
    def from_checkpoint(cls, config: Any, description: dict[str, Any], folder: Path) -> FrameReward:
        reward = cls(config, description["encoder"])
        weights = folder / description["weights"]
        tensors = load_tensors(weights)
        for name, empty in reward.familiarity.state_dict().items():  # models of before it was thought of have none
            tensors.setdefault(f"familiarity.{name}", empty)
        for name in cls.grown:
            owner, _, buffer = name.rpartition(".")
            if name in tensors:
                module = reward.get_submodule(owner)
                like: Tensor = getattr(module, buffer)
                setattr(module, buffer, like.new_empty(len(tensors[name]), *like.shape[1:]))
        try:
            reward.load_state_dict(tensors)
        except RuntimeError as error:
            raise UserError(f"{weights} does not fit {folder}'s configuration: {error}".replace("\n", " ")) from error
        if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
            raise UserError(f"{weights} holds what is no number, in {broken[0]}: copy it again, or fit again")
        reward.record = description.get("record", {})
        return reward.eval()

    def push_to_hub(self, repo_id: str, private: bool = False, license: str | None = None) -> str:
        """Upload the model and a model card to the Hugging Face Hub (or $HF_ENDPOINT); returns the commit's address.

        The card tells the metrics of `evaluation`, which `load` takes from the model's folder. `license` is an
        identifier of the Hub, such as "mit"; without one the card names none.
        """
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError

        from timerewarder.rewards.card import model_card, without_places

        api = HfApi()
        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            if self.evaluation is not None:
                write_json(Path(folder, EVALUATION), without_places(self.evaluation))
            write_text(Path(folder, "README.md"), model_card(self, repo_id, license))
            try:
                api.create_repo(repo_id, private=private, exist_ok=True)
                commit = api.upload_folder(
                    repo_id=repo_id,
                    folder_path=folder,
                    commit_message="Upload reward model",
                    delete_patterns=EVALUATION,  # that of another model, if this one has none
                )
                return str(commit)
            except (HTTPError, OSError, ValueError) as error:  # refused, unreachable, not a name for a model
                reason = str(error).strip().split("\n")[0]
                raise UserError(
                    f"{repo_id} cannot be uploaded to {api.endpoint} ({reason}): "
                    "check the name, the network and the login (`hf auth login` or HF_TOKEN)"
                ) from error


class PotentialReward(FrameReward):
    """A value for every frame of an episode; the step reward is its forward difference."""

    def potential(self, features: Tensor) -> Tensor:
        """Features (T, D) -> values (T,), in shares of the task; may look at the first frame and at the past."""
        raise NotImplementedError

    def compare(self, features: Tensor) -> Tensor:
        values = self.potential(features)
        return torch.diff(values, prepend=values[:1])

    def distances(self, features: Tensor) -> Tensor:
        values = self.potential(features)
        return values[None, :] - values[:, None]


class Stream:
    """Step-by-step rewards of one episode, equal to `score` on the whole of it.

    Keeps the features of the first frame and of the last few, because a comparison looks at the first frame and at
    `history` past frames only.
    """

    def __init__(self, reward: FrameReward) -> None:
        self.reward = reward
        self.first: Tensor | None = None
        self.recent: deque[Tensor] = deque(maxlen=reward.history + 2)

    def reset(self, frame: np.ndarray) -> None:
        """Begin an episode at `frame`, uint8 (H, W, 3)."""
        self.begin(self.reward.encode(np.asarray(frame)[None])[0])

    def step(self, frame: np.ndarray) -> float:
        """The reward for arriving at `frame`, uint8 (H, W, 3)."""
        if self.first is None:
            raise UserError("call stream.reset(first_frame) before stream.step(frame)")
        return self.arrive(self.reward.encode(np.asarray(frame)[None])[0])

    def begin(self, features: Tensor) -> None:
        """`reset` at a frame that was encoded already, perhaps together with others, to features (D,)."""
        self.first = features[None]
        self.recent.clear()
        self.recent.append(self.first)

    @torch.no_grad()
    def arrive(self, features: Tensor) -> float:
        """`step` to a frame that was encoded already, to features (D,)."""
        assert self.first is not None
        self.recent.append(features[None])
        dropped = [] if self.recent[0] is self.first else [self.first]
        return float(self.reward.compare(torch.cat([*dropped, *self.recent]))[-1])
