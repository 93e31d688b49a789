"""Write the measured numbers of results/ into the marked places of the documents; none is typed by hand.

python benchmarks/tables.py          # writes
python benchmarks/tables.py --check  # exits with 1 if a document is stale
"""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

from timerewarder.agents.online import Config
from timerewarder.agents.presets import preset_named
from timerewarder.config import to_dict
from timerewarder.rewards import METHODS
from timerewarder.rewards.goals import GoalConfig
from timerewarder.rewards.online import OnlineReward

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/training.md", "docs/methods/timerewarder.md")


def load(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def voc() -> str:
    """The ten tasks; videos that end at success, and what is gained after it in videos that go on."""
    rows = list(csv.DictReader((ROOT / "results" / "voc.csv").open()))
    full = {row["task"]: row for row in rows if row["ends"] == "full-length"}
    lines = [
        "| task | paper's VOC | voc | voc_from_first | voc_reversed | frozen_sum | pair_mae | success_auroc "
        "| gained after success | gained standing still |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = ("paper_voc", "voc", "voc_from_first", "voc_reversed", "frozen_sum", "pair_mae", "success_auroc")
    for row in rows:
        if row["ends"] == "to-success":
            after = full.get(row["task"])
            gains = [
                f"{float(after[f'value_{when}']):.3f}" if after else "–" for when in ("after_success", "standing_still")
            ]
            values = [f"{float(row[name]):.2f}" if name == "paper_voc" else f"{float(row[name]):.3f}" for name in names]
            lines.append(f"| {row['task']} | {' | '.join(values + gains)} |")
    return "\n".join(lines)


def speed() -> str:
    render, score, memory, pairing, agent, serve = map(load, ("render", "score", "memory", "pairing", "agent", "serve"))
    slowest = min(task["fast_vs_default"] for task in render["tasks"].values())
    return "\n".join(
        [
            "| what | measured | command |",
            "|---|---|---|",
            f"| rendering at 84 px against Meta-World's own renderer | {render['fast_vs_default']:.0f} times as fast "
            f"(least of the ten tasks {slowest:.0f}), mean pixel difference to undecimated meshes "
            f"{render['pixel_difference_fast_plain']:.2f} of 255 | `{render['command']}` |",
            f"| `score` against the encoder's forward pass | {score['score_rate_of_encoder_rate']:.0%} of its rate, "
            f"{score['encodes_per_scored_frame']:.0f} encode a frame | `{score['command']}` |",
            f"| peak memory of `fit` on {memory['many']:,} videos against {memory['few']} "
            f"| {memory['ratio']:.3f} times | `{memory['command']}` |",
            f"| encoded frames to `voc_from_first` 0.98 on a hard view, independent against shared pairing "
            f"({pairing['frames_a_step']} frames a step) | {pairing['independent']['voc_from_first']:,.0f} against "
            f"{pairing['shared']['voc_from_first']:,.0f}: {pairing['ratio']:.2f} times; with the running-sum `voc` at "
            f"0.98 too, {pairing['ratio_both']:.2f} times | `{pairing['command']}` |",
            f"| an update of DrQ-v2 (batch 256, 84 px) against a plain one of the same networks, {agent['precision']} "
            f"| {agent['update_ratio']:.2f} times as fast; sampling {agent['sampling_share']:.1%} of it; "
            f"{agent['bytes_a_transition'] / 1000:.1f} KB a transition | `{agent['command']}` |",
            f"| what the learned reward adds to a step of training, and the preset `cpu` against `paper` "
            f"| {agent['reward_adds']:.0%}; {agent['cpu_over_paper']:.0f} times the frames a second "
            f"| `{agent['command']}` |",
            f"| streams of {serve['clients']} clients of `serve` against one, on {serve['cores']} cores that the "
            f"clients share | {serve['many_of_one']:.1f} times the requests a second, "
            f"{serve['many_of_encoder_at_mean_batch']:.0%} of the encoder's own rate at the same batches; p50 "
            f"{serve['many_clients']['p50_ms']:.0f} ms, p99 {serve['many_clients']['p99_ms']:.0f} ms (one client: "
            f"{serve['one_client']['p50_ms']:.1f} and {serve['one_client']['p99_ms']:.1f}) | `{serve['command']}` |",
        ]
    )


# Success after 200,000 frames, read off the paper's curves.
PAPER_METHODS = ("timerewarder", "env", "gaifo", "vip", "rank2reward", "progressor", "ads", "ot", "bc")
PAPER_SUCCESS = {
    "button-press-topdown": (1.00, 0.75, 1.00, 0.50, 0.26, 0.64, 0.42, 0.00, 0.20),
    "door-open": (1.00, 0.34, 0.58, 0.00, 0.50, 1.00, 0.00, 0.00, 0.00),
    "window-close": (0.88, 1.00, 1.00, 0.88, 0.38, 0.20, 0.13, 0.10, 0.10),
    "drawer-open": (1.00, 0.00, 1.00, 1.00, 1.00, 0.50, 0.50, 0.00, 0.40),
    "window-open": (1.00, 0.87, 0.97, 0.13, 0.62, 0.76, 0.04, 0.00, 0.10),
}


Curve = dict[int, float]  # environment frames -> success_gt3, the mean over seeds


def curves() -> dict[tuple[str, str, str], tuple[int, Curve]]:
    """Of each task, what the policy sees and the reward: how many seeds, and their mean where all have been."""
    groups: dict[tuple[str, str, str], dict[str, Curve]] = {}
    for row in csv.DictReader((ROOT / "results" / "learning.csv").open()):
        seed = groups.setdefault((row["task"], row["obs"], row["reward"]), {}).setdefault(row["seed"], {})
        seed[int(row["env_frames"])] = float(row["success_gt3"])
    means = {}
    for key, seeds in groups.items():
        common = sorted(set.intersection(*(set(curve) for curve in seeds.values())))
        mean = {frames: sum(curve[frames] for curve in seeds.values()) / len(seeds) for frames in common}
        means[key] = (len(seeds), mean)
    return means


def learning() -> str:
    """Success of policies, evaluation by evaluation; the paper's own number is at the end of its runs."""
    lines = [
        "| task | policy sees | reward | seeds | success_gt3 after every 10,000 frames | paper, 200,000 frames |",
        "|---|---|---|---|---|---|",
    ]
    found, rewards = curves(), ("timerewarder", "sparse", *PAPER_METHODS[1:], "bco")
    for task, obs, reward in itertools.product(PAPER_SUCCESS, ("pixels", "features", "state"), rewards):
        if (task, obs, reward) not in found:
            continue
        seeds, curve = found[task, obs, reward]
        published = dict(zip(PAPER_METHODS, PAPER_SUCCESS[task], strict=True))
        paper = f"{published[reward]:.2f}" if reward in published else "–"
        lines.append(f"| {task} | {obs} | {reward} | {seeds} | {_told(curve)} | {paper} |")
    return "\n".join(lines)


PAPER_FRAMES = {  # until TimeRewarder's success is 0.8, read off the paper's curves
    "button-press-topdown": 60_000,
    "door-open": 42_000,
    "window-close": 100_000,
    "drawer-open": 25_000,
    "window-open": 70_000,
}


def reached() -> str:
    """After how many frames policies succeed in 8 of 10 evaluation episodes, on the mean over seeds."""
    columns = list(itertools.product(("pixels", "state"), ("timerewarder", "env", "sparse")))
    lines = [
        f"| task | {' | '.join(f'{obs}: {reward}' for obs, reward in columns)} | paper, pixels: timerewarder |",
        "|---" * (2 + len(columns)) + "|",
    ]
    found = curves()
    for task, paper in PAPER_FRAMES.items():
        cells = [_reached(*found.get((task, *column), (0, {}))) for column in columns]
        lines.append(f"| {task} | {' | '.join(cells)} | {paper:,} |")
    return "\n".join(lines)


def _reached(seeds: int, curve: Curve, enough: float = 0.8) -> str:
    if not curve:
        return "–"
    frames = [frames for frames, success in sorted(curve.items()) if success >= enough - 1e-9]
    several = f" ({seeds} seeds)" if seeds > 1 else ""
    if frames:
        return f"{_thousands(frames[0])}{several}"
    return f"not by {_thousands(max(curve))}: {curve[max(curve)]:.1f}{several}"


def _thousands(frames: int) -> str:
    """Evaluations are at the ends of episodes, a little after the round number."""
    return f"{frames // 1000 * 1000:,}"


def _told(curve: Curve) -> str:
    """A curve in a line: the first evaluation after every 10,000 frames, or the only one."""
    marks = range(10_000, max(curve) + 1, 10_000) or [0]
    return " ".join(f"{curve[min(frames for frames in curve if frames >= mark)]:.2f}" for mark in marks)


def mimed() -> str:
    """What real and mimed demonstrations are worth from the first frame to the last, by the options of the fit."""
    tasks: dict[str, dict[str, dict[str, str]]] = {}
    for row in csv.DictReader((ROOT / "results" / "mimed.csv").open()):
        tasks.setdefault(row["task"], {})[_options_told(row)] = row
    shares = list(dict.fromkeys(share for found in tasks.values() for share in found))
    lines = [f"| task | {' | '.join(f'{told}: real, mimed' for told in shares)} |", "|---" * (1 + len(shares)) + "|"]
    for task, found in tasks.items():
        cells = (f"{float(found[s]['demos_first']):.2f}, {float(found[s]['mimed_first']):.2f}" for s in shares)
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def free_hand() -> str:
    """What models see of the object wherever the hand is."""
    shares = ("0", "25", "50", "75", "100")
    lines = [
        f"| task | fit | {' | '.join(f'{share} %' for share in shares)} | at most at 0 % | opened | order | approach |",
        "|---" * (6 + len(shares)) + "|",
    ]
    for row in csv.DictReader((ROOT / "results" / "free_hand.csv").open()):
        means = (f"{float(row[f'first_{share}']):.2f}" for share in shares)
        others = (f"{float(row[name]):.2f}" for name in ("closed_high", "opened", "order", "approach"))
        lines.append(f"| {row['task']} | {_options_told(row)} | {' | '.join([*means, *others])} |")
    return "\n".join(lines)


def _options_told(row: dict[str, str]) -> str:
    """How a model was fitted, in words."""
    told = [f"{name} {float(row[name]):g}" for name in ("composites", "erase") if float(row[name])]
    return ", ".join(told) or "plain"


def update() -> str:
    """How fast an update is, and how fast it could be."""
    agent, single = load("agent"), load("agent-fp32")
    return (
        "An update of DrQ-v2's own size (batch 256, 84 px) in "
        f"{agent['precision']} is {agent['update_ratio']:.1f} times as fast as a plain one in fp32; at the rate of "
        f"large matrix products of that precision it would be {agent['update_bound']:.1f} times. With "
        f"`torch.compile` the encoder alone takes {1 / agent['compile_gain']:.2f} of its time, so it is not used. "
        f"In fp32 an update is {single['update_ratio']:.1f} times as fast as the plain one "
        f"([results/agent-fp32.json](../results/agent-fp32.json)), {single['kept_memory_gain']:.1f} times of it "
        "because freed memory is kept."
    )


WHY = {  # the preset cpu departs from the paper
    "reward_form": "see below",
    "discount": "see below",
    "alpha": "see below",
    "anchored": "see below",
    "familiar": "see below",
    "exploration_colour": "pink noise, see below",
    "saturation": "see below",
    "bounded": "see below",
    "policy_size": "a quarter of the pixels; the reward still sees all of them",
    "encoder": "two convolutions of stride 2 (16 and 32 channels) instead of four of 32",
    "shift": "the same share of the picture",
    "batch": "the time of an update",
    "hidden": "the time of an update",
    "lr": "fewer frames have to do",
    "tau": "likewise",
    "update_every": "likewise, at the price of time",
    "random_steps": "start learning at once",
    "seed_frames": "likewise",
}
PIXELS_ONLY = ("policy_size", "encoder", "shift")


def presets() -> str:
    """Every option in which the preset `cpu` departs from `paper`, and what it is worth in time."""
    pixels, state = (_options(preset_named("cpu", obs)) for obs in ("pixels", "state"))
    paper, factors = _options(preset_named("paper", "pixels")), load("agent")["deviations"]
    lines = ["| option | paper | cpu, pixels | cpu, state or features | why | time |", "|---|---|---|---|---|---|"]
    changed = [name for name in paper if {pixels[name], state[name]} - {paper[name]} and name != "obs"]
    assert set(changed) == set(WHY), set(changed) ^ set(WHY)
    for name, why in WHY.items():
        shown = [paper[name], pixels[name], "–" if name in PIXELS_ONLY else state[name]]
        times = [f"{factors[obs][name]:.1f} ({obs})" for obs in ("pixels", "state") if name in factors[obs]]
        told = " | ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in shown)
        lines.append(f"| `{name.replace('_', '-')}` | {told} | {why} | {', '.join(times) or '–'} |")
    return "\n".join(lines)


SET_BACK = {  # rewards of results/learning.csv -> options of the preset cpu that have the paper's values there
    "timerewarder": "none",
    "plain": "`fit` without `--composites` and `--erase`",
    "steps": "`reward-form`",
    "long-horizon": "`discount`",
    "adaptive-alpha": "`alpha`",
    "unanchored": "`anchored`",
    "unfamiliar": "`familiar`",
    "white-noise": "`exploration-colour`",
    "saturating": "`saturation`",
    "unbounded": "`bounded`",
    "slow-rates": "`lr`, `tau`",
    "fewer-updates": "`update-every`",
    "late-start": "`random-steps`, `seed-frames`",
}


def set_back() -> str:
    """What the preset `cpu` learns from state without one of its departures from the paper, where that was tried."""
    lines = ["| task | set back to the paper's | seeds | success_gt3 after every 10,000 frames |", "|---|---|---|---|"]
    found = {(task, reward): seen for (task, obs, reward), seen in curves().items() if obs == "state"}
    for task in ("drawer-open", "door-open"):
        for reward, options in SET_BACK.items():
            seeds, curve = found.get((task, reward), (0, {}))
            lines += [f"| {task} | {options} | {seeds} | {_told(curve)} |"] if curve else []
    return "\n".join(lines)


def _options(config: Config) -> dict[str, Any]:
    flat = to_dict(config)
    return flat | flat.pop("agent")


PAPERS = {
    "timerewarder": "TimeRewarder (2026)", "from-init": "its ablation: only from init",
    "single-frame": "its ablation: single frame", "order": "its ablation: order prediction",
    "vip": "VIP (Ma et al., 2023)",
    "rank2reward": "Rank2Reward (Yang et al., 2024)", "progressor": "PROGRESSOR (Ayalew et al., 2024)",
    "gaifo": "GAIfO (Torabi et al., 2018)", "ot": "OT (Papagiannis & Li, 2022)", "ads": "ADS (Liu et al., 2024)",
    "temporal-ot": "TemporalOT (Fu et al., 2024)", "orca": "ORCA (Huey et al., 2025)", "gvl": "GVL (Ma et al., 2024)",
}  # fmt: skip
ADAPTS = {"ads": "adapts its discount", "ot": "scale", "temporal-ot": "scale"}


def methods() -> str:
    """Every method: paper, file, what it needs, and what `compare` and policies on drawer-open measured."""
    compared = {(row["task"], row["method"]): row for row in csv.DictReader((ROOT / "results" / "compare.csv").open())}
    lines = [
        "| method | paper | file | learns from the agent? | goal image? | voc, drawer-open "
        "| success_auroc, drawer-open | success_auroc, basketball | policy, drawer-open |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entry in METHODS.items():
        file = Path(sys.modules[entry.reward.__module__].__file__ or "")
        online = "yes" if issubclass(entry.reward, OnlineReward) else ADAPTS.get(name, "no")
        goal = "yes" if issubclass(entry.config, GoalConfig) else "no"
        told = [
            _number(compared.get((task, name), {}).get(metric, ""))
            for task, metric in (
                ("drawer-open", "voc"), ("drawer-open", "success_auroc"), ("basketball", "success_auroc")
            )
        ]  # fmt: skip
        lines.append(
            f"| [`{name}`](docs/methods/{name}.md) | {PAPERS[name]} "
            f"| [`rewards/{file.name}`](src/timerewarder/rewards/{file.name}) | {online} | {goal} "
            f"| {' | '.join(told)} | {_policy(name)} |"
        )
    for name, paper in {
        "bc": "behaviour cloning, with the experts' actions",
        "bco": "BCO (Torabi et al., 2018)",
    }.items():
        file, online = f"agents/{name}.py", "yes" if name == "bco" else "no"
        lines.append(
            f"| [`{name}`](docs/methods/{name}.md) | {paper} | [`{file}`](src/timerewarder/{file}) | {online} | no "
            f"| – | – | – | {_policy(name)} |"
        )
    return "\n".join(lines)


def _number(text: str) -> str:
    return f"{float(text):.3f}" if text else "–"


def _policy(reward: str) -> str:
    """success_gt3 of policies on drawer-open that see the state, at their last evaluation."""
    rows = csv.DictReader((ROOT / "results" / "learning.csv").open())
    seeds: dict[str, tuple[int, float]] = {}
    for row in rows:
        if (row["task"], row["obs"], row["reward"]) == ("drawer-open", "state", reward):
            seeds[row["seed"]] = (int(row["env_frames"]), float(row["success_gt3"]))
    if not seeds:
        return "–"
    frames = max(frames for frames, _ in seeds.values())
    mean = sum(success for _, success in seeds.values()) / len(seeds)
    return f"{mean:.2f} at {frames:,} frames" if frames else f"{mean:.2f}"


def filled(text: str) -> str:
    """A document with every `<!-- results:NAME -->` ... `<!-- end -->` made anew."""
    tables = {
        "voc": voc,
        "speed": speed,
        "learning": learning,
        "reached": reached,
        "methods": methods,
        "presets": presets,
        "set_back": set_back,
        "mimed": mimed,
        "free_hand": free_hand,
        "update": update,
    }
    pattern = re.compile(r"(<!-- results:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{tables[match[2]]()}\n{match[3]}", text)


def main() -> None:
    stale = {path: new for name in DOCUMENTS if (new := filled(old := (path := ROOT / name).read_text("utf-8"))) != old}
    if "--check" in sys.argv:
        sys.exit(bool(stale))
    for path, new in stale.items():
        path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
