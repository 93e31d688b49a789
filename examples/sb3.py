"""Train a Stable-Baselines3 policy on a reward that was learned from videos.

    pip install 'timerewarder[metaworld]' stable-baselines3
    timerewarder demos --task drawer-open --episodes 100 --out demos
    timerewarder fit demos --composites 0.5 --erase 0.5 --out model
    python examples/sb3.py --model model --task drawer-open --steps 20000 --out policy.zip

The policy sees the simulator's state, which is cheap to learn from; the reward sees pictures only.
"""

from __future__ import annotations

import argparse

import numpy as np
from stable_baselines3 import SAC
from stable_baselines3.common.monitor import Monitor

from timerewarder import LearnedReward
from timerewarder.envs.metaworld import MetaWorld

EVALUATION_SEED = 1_000_000  # episodes that training does not meet


def make_env(task: str, model: str) -> Monitor:
    """The task, rewarded by the model: what it predicts for each step, and alpha for success."""
    # Guards and weight of success as in `timerewarder train --preset cpu`; without them the reward is the paper's.
    env = LearnedReward(MetaWorld(task), model, alpha=0.1, familiar=2.5, anchored=True)
    # Any environment that renders will do in place of MetaWorld(task): gymnasium.make(..., render_mode="rgb_array").
    # Monitor logs the return of the learned reward, and what the wrapper tells of the task at an episode's end.
    return Monitor(env, info_keywords=("success", "task_reward", "alpha"))


def success_rate(policy: SAC, task: str, episodes: int) -> float:
    """Share of episodes in which the task was solved. The learned reward has no say in it."""
    env, solved = MetaWorld(task), []
    for episode in range(episodes):
        observation, _ = env.reset(seed=EVALUATION_SEED + episode)
        success = truncated = False
        while not truncated:
            action, _ = policy.predict(observation, deterministic=True)
            observation, _, _, truncated, info = env.step(action)
            success = success or info["success"]
        solved.append(success)
    return float(np.mean(solved))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train SAC on a reward learned from videos.")
    parser.add_argument("--model", required=True, help="folder of a fitted reward, or its name on the Hub")
    parser.add_argument("--task", default="drawer-open", help="Meta-World task")
    parser.add_argument("--steps", type=int, default=20_000, help="steps of the agent, each two of the simulator")
    parser.add_argument("--out", default="policy.zip", help="where to save the policy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=10, help="episodes to measure the policy on")
    arguments = parser.parse_args()

    env = make_env(arguments.task, arguments.model)
    # Episodes end because time is up, not because the task is over: SAC looks beyond that end by itself.
    policy = SAC("MlpPolicy", env, learning_starts=500, seed=arguments.seed, device="cpu", verbose=1)
    policy.learn(arguments.steps, log_interval=10)
    policy.save(arguments.out)

    rate = success_rate(policy, arguments.task, arguments.episodes)
    print(f"success in {rate:.0%} of {arguments.episodes} new episodes; policy saved to {arguments.out}")


if __name__ == "__main__":
    main()
