"""Encoders: uint8 frames (N, S, S, 3) -> features (N, dim). Each one knows its image size and its preprocessing.

    small          a compact convolutional network, 84 px, trains in a minute on a CPU
    clip-vit-b16   CLIP's ViT-B/16 with its projection to 512 (the paper's backbone), 224 px, pretrained
    vit-b16        the same architecture from scratch (the paper's ablation)
    resnet34       VIP's backbone, from scratch or from a local folder, 224 px

The last three come from `transformers` (extra `clip`), imported only when asked for.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from timerewarder.data.resize import How
from timerewarder.errors import UserError

EncoderName = Literal["small", "clip-vit-b16", "vit-b16", "resnet34"]
LEARNING_RATES: dict[EncoderName, float] = {"small": 1e-3, "clip-vit-b16": 2e-5, "vit-b16": 2e-5, "resnet34": 3e-4}
CLIP_ID = "openai/clip-vit-base-patch16"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class Preprocessing(NamedTuple):
    """How a frame of any size becomes the encoder's input; `size` and `how` are applied by data.resize."""

    size: int
    how: How
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Encoder(nn.Module):
    """A backbone with its preprocessing. `architecture` rebuilds the same network without any download."""

    scale: Tensor
    offset: Tensor

    def __init__(self, backbone: nn.Module, dim: int, pre: Preprocessing, architecture: dict[str, Any]) -> None:
        super().__init__()
        self.backbone, self.dim, self.preprocessing, self.architecture = backbone, dim, pre, architecture
        mean, std = (torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (pre.mean, pre.std))
        self.register_buffer("scale", (1 / (255 * std)).float(), persistent=False)
        self.register_buffer("offset", (-mean / std).float(), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """uint8 (N, S, S, 3) -> (N, dim). The permuted view is already channels_last, the faster layout."""
        images = frames.permute(0, 3, 1, 2).to(self.scale.dtype).mul_(self.scale).add_(self.offset)
        return self.backbone(images)


def build_encoder(
    name: EncoderName,
    weights: str | None = None,
    image_size: int | None = None,
    architecture: dict[str, Any] | None = None,
) -> Encoder:
    """A new encoder (pretrained where `name` says so), or with `architecture` (from a checkpoint) an empty one."""
    if name == "small":
        if weights is not None:
            raise UserError(
                "--encoder-weights is for the encoders clip-vit-b16 and resnet34; 'small' trains from scratch"
            )
        return _small(image_size or 84)
    encoder = (
        _resnet34(weights, image_size, architecture)
        if name == "resnet34"
        else _vit(name, weights, image_size, architecture)
    )
    return encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class SmallBackbone(nn.Sequential):
    """Four stride-2 convolutions, then a linear layer that keeps where things are (no global pooling)."""

    def __init__(self, size: int, dim: int = 512, widths: tuple[int, ...] = (16, 32, 64, 64)) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for width in widths:
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU()]
            channels, size = width, (size + 1) // 2
        super().__init__(*layers, nn.Flatten(), nn.Linear(channels * size * size, dim), nn.LayerNorm(dim))


def _small(size: int) -> Encoder:
    if not 16 <= size <= 512:
        raise UserError(f"--image-size {size} is out of range for the encoder 'small': choose 16 to 512")
    pre = Preprocessing(size, "squash", IMAGENET_MEAN, IMAGENET_STD)
    backbone = SmallBackbone(size).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Encoder(backbone, 512, pre, {"image_size": size})


class _Projected(nn.Module):
    """CLIP's vision tower with its projection, returning the tensor alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(pixel_values=images).image_embeds


class _Pooled(nn.Module):
    """A residual network's pooled features, returning the tensor alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(pixel_values=images).pooler_output.flatten(1)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UserError(
            "this encoder needs the package transformers: pip install 'timerewarder[clip]', or use --encoder small"
        ) from None
    return transformers


def _vit(name: str, weights: str | None, image_size: int | None, architecture: dict[str, Any] | None) -> Encoder:
    tf = _transformers()
    if architecture is None and name == "clip-vit-b16":
        model = _pretrained(tf.CLIPVisionModelWithProjection, weights or CLIP_ID)
        if image_size not in (None, model.config.image_size):
            raise UserError(
                f"--image-size {image_size} does not fit {weights or CLIP_ID}, which takes {model.config.image_size}"
            )
    else:
        if architecture is None and weights is not None:
            raise UserError("--encoder-weights does not go with vit-b16, which trains from scratch; use clip-vit-b16")
        # CLIPVisionConfig's own defaults are ViT-B/32.
        config = tf.CLIPVisionConfig(
            **(architecture or {"patch_size": 16, "projection_dim": 512, "image_size": image_size or 224})
        )
        model = tf.CLIPVisionModelWithProjection(config)
    pre = Preprocessing(model.config.image_size, "crop", CLIP_MEAN, CLIP_STD)
    return Encoder(_Projected(model), model.config.projection_dim, pre, _plain(model.config))


def _resnet34(weights: str | None, image_size: int | None, architecture: dict[str, Any] | None) -> Encoder:
    tf = _transformers()
    if architecture is None and weights is not None:
        model = _pretrained(tf.ResNetModel, weights)
    else:
        shape = {
            "layer_type": "basic",
            "depths": [3, 4, 6, 3],
            "hidden_sizes": [64, 128, 256, 512],
            "embedding_size": 64,
        }
        model = tf.ResNetModel(tf.ResNetConfig(**{**shape, **(architecture or {})}))
    size = image_size or int((architecture or {}).get("image_size", 224))
    pre = Preprocessing(size, "crop", IMAGENET_MEAN, IMAGENET_STD)
    return Encoder(_Pooled(model), model.config.hidden_sizes[-1], pre, {**_plain(model.config), "image_size": size})


def _plain(config: Any) -> dict[str, Any]:
    """The fields of a transformers configuration that differ from its defaults, as JSON values."""
    drop = ("transformers_version", "architectures", "dtype", "torch_dtype", "_name_or_path")
    return {key: value for key, value in config.to_diff_dict().items() if key not in drop}


def _pretrained(cls: Any, source: str) -> Any:
    """`cls.from_pretrained(source)` from a hub id or a folder; `weights_only`: a checkpoint cannot execute code."""
    try:
        return cls.from_pretrained(source, weights_only=True)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot load the encoder weights {source!r}: if this machine is offline, download the model elsewhere and "
            f"pass its folder with --encoder-weights DIR, or use --encoder small ({str(error).splitlines()[0]})"
        ) from error
