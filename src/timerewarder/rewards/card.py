"""The model card that goes to the Hub with a model: what it is, how to use it, how well it does, what it saw.

The metadata is written by huggingface_hub, which quotes it. Texts that a user chose (a task, an option) are escaped, so
that they can neither end a table or a code block nor become HTML. Names and places of videos stay at home.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any

from timerewarder.config import to_dict

if TYPE_CHECKING:
    from timerewarder.rewards.reward import FrameReward

TAGS = ["reward-model", "robotics", "reinforcement-learning", "video"]
METRICS = {
    "voc": "rank correlation of the running sum of rewards with time",
    "voc_from_first": "rank correlation of the distance from the first frame with time",
    "voc_reversed": "`voc` of the videos played backwards; best is -1",
    "frozen_sum": "what a video that stands still is worth; best is 0",
    "pair_mae": "mean error of the distance over all pairs of frames; best is 0",
    "adjacent_sign_accuracy": "share of neighbouring frames, in both orders, with the right sign",
    "success_auroc": "how well final values tell success from failure (area under the ROC curve)",
}


def model_card(reward: FrameReward, repo_id: str, license: str | None = None) -> str:
    """Markdown with the Hub's metadata in front."""
    about = (sys.modules[type(reward).__module__].__doc__ or "").split("\n\n")[0]  # a method's file says it first
    parts = [
        f"---\n{_metadata(reward, repo_id, license)}\n---",
        f"# {_escaped(repo_id.split('/')[-1])}",
        f"A reward function learned from passive videos with `timerewarder`, method `{reward.method}`: frames in, a "
        "reward for every step out.",
        about,
        _use(reward, repo_id),
        *_evaluation(reward.evaluation),
        *_validation(reward.record),
        *_training_data(reward),
        f"## Options\n\n{_fenced(json.dumps(to_dict(reward.config), indent=2, ensure_ascii=False), 'json')}",
    ]
    return "\n\n".join(parts) + "\n"


def without_places(evaluation: dict[str, Any]) -> dict[str, Any]:
    """An evaluation as others may see it: its videos have numbers for names, and no paths."""
    finals = evaluation.get("final_values", {})
    numbered = {kind: {f"{n}": value for n, value in enumerate(values.values())} for kind, values in finals.items()}
    return {**evaluation, "videos": [], "failures": [], "final_values": numbered}


def _metadata(reward: FrameReward, repo_id: str, license: str | None) -> str:
    """YAML; the metrics as the Hub's `model-index`."""
    from huggingface_hub import EvalResult, ModelCardData

    measured = _measured(reward.evaluation)
    results = [
        EvalResult(
            task_type="reward-modeling",
            task_name="Reward from video",
            dataset_type="video",
            dataset_name="held-out videos",
            metric_type=name,
            metric_name=name,
            metric_value=value,
        )
        for name, value in measured.items()
    ]
    data = ModelCardData(
        library_name="timerewarder",
        pipeline_tag="robotics",
        license=license,
        tags=[*TAGS, reward.method],
        model_name=repo_id.split("/")[-1] if results else None,
        eval_results=results or None,
    )
    return data.to_yaml().strip()


def _use(reward: FrameReward, repo_id: str) -> str:
    stream = """
stream = reward.stream()  # or one frame at a time, as a robot sees them
stream.reset(video.frames[0])
step = stream.step(video.frames[1])
"""
    code = f"""import timerewarder as tr

reward = tr.load({json.dumps(repo_id)})
video = next(tr.read_videos("video.mp4"))
rewards = reward.score(video.frames)  # uint8 (T, H, W, 3) -> float32 (T,); entry t is for arriving at frame t
{stream if reward.streams else ""}"""
    shell = f"pip install timerewarder\ntimerewarder score {repo_id} video.mp4 --out scores  # tables, plots and videos"
    return f"## Use\n\n{_fenced(shell, 'bash')}\n\n{_fenced(code.strip(), 'python')}"


def _evaluation(evaluation: dict[str, Any] | None) -> list[str]:
    measured = _measured(evaluation)
    if evaluation is None or not measured:
        return []
    counts = {kind: len(values) for kind, values in evaluation.get("final_values", {}).items()}
    videos, frames = (evaluation["metrics"].get(name) for name in ("videos", "frames"))
    failures = f" and {counts['failure']} failed attempts" if counts.get("failure") else ""
    rows = [f"| {name} | {value:.4g} | {METRICS[name]} |" for name, value in measured.items()]
    return [
        f"## Evaluation\n\nOn {videos} held-out videos ({frames} frames){failures}.",
        "\n".join(["| metric | value | |", "|---|---|---|", *rows]),
    ]


def _validation(record: dict[str, Any]) -> list[str]:
    kept = record.get("training", {}).get("kept", {})
    rows = [f"| {name} | {value:.4g} |" for name, value in kept.items() if name.startswith("val_")]
    if not rows:
        return []
    held = len(record.get("validation_videos", []))
    return [
        f"## Validation\n\nOn {held} of the videos below, which the training did not see; they chose the checkpoint.",
        "\n".join(["| metric | value |", "|---|---|", *rows]),
    ]


def _training_data(reward: FrameReward) -> list[str]:
    record, pre = reward.record, reward.preprocessing
    if "videos" not in record:
        return []
    lines = [f"- {record['videos']} videos ({record.get('frames', '?')} frames), without actions or labels"]
    if {"shortest_video", "longest_video"} <= record.keys():
        lines.append(f"- {record['shortest_video']} to {record['longest_video']} frames to the end of the task")
    how = "stretched to a square" if pre.how == "squash" else "the middle square"
    lines.append(f"- seen at {pre.size} x {pre.size} pixels ({how})")
    if getattr(reward.config, "stop_at_rest", False):
        lines.append("- a video's clock stops where its picture comes to rest for good")
    opening = record.get("opening", {})
    if opening.get("fps"):
        lines.append(f"- resampled to {opening['fps']:g} frames a second")
    if opening.get("camera"):
        lines.append(f"- camera {_escaped(opening['camera'])}")
    lines += [f"- task: {_escaped(task)}" for task in record.get("tasks", [])]
    return ["## Training data", "\n".join(lines)]


def _measured(evaluation: dict[str, Any] | None) -> dict[str, float]:
    """The metrics that say something of this model."""
    metrics = (evaluation or {}).get("metrics", {})
    return {n: metrics[n] for n in METRICS if isinstance(metrics.get(n), int | float) and math.isfinite(metrics[n])}


def _escaped(text: str) -> str:
    """A user's words on one line of Markdown, with no meaning but their own."""
    return re.sub(r"([\\`*_\[\]<>|~#!&$])", r"\\\1", " ".join(text.split()))


def _fenced(text: str, language: str) -> str:
    """A code block that its content cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
