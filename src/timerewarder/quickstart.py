"""The whole way in a few minutes: record a Meta-World task, fit, evaluate on held-out videos and failures, show it.

    runs/quickstart/videos      100 demonstrations of drawer-open by the scripted policy
    runs/quickstart/heldout      30 more from other seeds, never trained on
    runs/quickstart/failures     30 failed attempts of a disturbed policy
    runs/quickstart/model        the reward
    runs/quickstart/report.html  the page

Every step is a verb of the command line and reuses what an earlier run left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from timerewarder import api
from timerewarder.envs.demos import collect
from timerewarder.progress import console
from timerewarder.report.page import METRICS
from timerewarder.report.run import report_run
from timerewarder.rewards import preset_config

TASK = "drawer-open"
HELDOUT_SEED, FAILURE_SEED = 100_000, 200_000


def run_quickstart(out: Path, minutes: float = 1.0, episodes: int = 100) -> dict[str, Any]:
    """Run all steps into `out`, print the table of metrics and return them with the page's path."""
    config = api.with_options(preset_config("timerewarder"), {"minutes": minutes})  # a mistake shows before the work
    videos, heldout, failures, model = (out / name for name in ("videos", "heldout", "failures", "model"))
    console.print(f"[bold]1/4[/] Recording {TASK} in Meta-World")
    collect(TASK, episodes, videos)
    tests = max(1, 3 * episodes // 10)
    collect(TASK, tests, heldout, seed=HELDOUT_SEED)
    collect(TASK, tests, failures, seed=FAILURE_SEED, policy="noisy", keep="failure")
    console.print(f"[bold]2/4[/] Learning the reward from {videos} (no actions, no labels), {minutes:g} minutes")
    api.fit(videos, model, config=config)
    console.print("[bold]3/4[/] Evaluating on videos that were not trained on")
    metrics = api.evaluate_model(model, heldout, failures)
    console.print("[bold]4/4[/] Drawing the page")
    page = report_run(out)["page"]
    console.print(metrics_table(metrics))
    console.print(f"Open [bold]{page}[/] in a browser to see the reward.", soft_wrap=True)
    return {"page": page, **metrics}


def metrics_table(metrics: dict[str, float | None]) -> Table:
    """Value, what a perfect reward gets, and what a constant one gets."""
    table = Table("metric", "value", "perfect", "constant reward")
    for name, metric in METRICS.items():
        value = metrics.get(name)
        shown = "-" if value is None else f"{value:.3f}"
        table.add_row(name, shown, f"{metric.perfect:g}", f"{metric.constant:g}")
    return table
