"""The model card that goes to the Hub with a model."""

from __future__ import annotations

from typing import Any


def model_card(repo_id: str, method: str, about: str, record: dict[str, Any]) -> str:
    """Markdown: what the model is (`about` in a line), what it saw, how well it did, how to use it."""
    kept = record.get("training", {}).get("kept", {})
    validation = "\n".join(f"| {name} | {value:.4g} |" for name, value in kept.items() if name.startswith("val_"))
    table = f"\n| on validation videos | |\n|---|---|\n{validation}\n" if validation else ""
    return f"""---
library_name: timerewarder
tags: [reward-model, robotics, reinforcement-learning]
---
# {repo_id.split("/")[-1]}

A reward function learned from passive videos with `timerewarder`, method `{method}`.

{about}

Trained on {record.get("videos", "?")} videos ({record.get("frames", "?")} frames).
{table}
```python
import timerewarder as tr

reward = tr.load("{repo_id}")
rewards = reward.score(frames)  # uint8 (T, H, W, 3) -> float32 (T,)
```
"""
