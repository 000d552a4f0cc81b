"""Measure how much attention a policy pays to noise channels, compared with each signal.

    python -m experiments noise_attention models/cartpole.safetensors --noise 5 --sd 0.1 1

Each row is one standard deviation of the noise. It shows the mean magnitude of the attention
weights over all queries and steps, for each signal and for a noise channel, and the mean return.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from an_control.disturbance import Disturber
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.load import make_policy
from an_control.policy import Policy, read_model
from an_control_sim.gym.environments import find_environment_id, make_environment

NOISE = "a noise channel"


def measure_attention_and_mean_return(
    policy: Policy, task: str, protocol: str, episodes: int, seed: int
) -> tuple[dict[str, float], float]:
    """Measure how much attention a policy pays to each signal, and its mean return.

    `protocol` is the disturbance of the episodes, which adds channels of noise.

    Returns:
        The mean magnitude of the attention weights by signal, with the key `NOISE` for all channels
        of noise, and the mean return.
    """
    env = make_environment(find_environment_id(task))
    weights: dict[str, list[float]] = defaultdict(list)

    def add_attention(policy: Policy, disturber: Disturber) -> None:
        """Add each signal's mean attention magnitude in this step to the lists to be averaged."""
        attention = policy.attention
        assert attention is not None
        shown = dict(zip(disturber.ids, disturber.signal_ids_by_slot, strict=True))
        for channel, column in zip(policy.channel_order, np.abs(attention).T, strict=True):
            weights[shown.get(channel, NOISE)].append(float(column.mean()))

    channels = tuple(policy.model.task.channels)
    results = play_episodes(
        policy,
        env,
        channels,
        episodes,
        seed,
        EvaluationProtocol.parse(protocol),
        watch=add_attention,
    )
    env.close()
    means = {name: float(np.mean(some)) for name, some in weights.items()}
    return means, float(np.mean([one.total for one in results]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how much attention a policy pays to signals and noise; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--noise", type=int, default=5, help="number of noise channels (default: 5)"
    )
    parser.add_argument(
        "--sd", nargs="+", default=["0.1", "1"], help="their standard deviations (default: 0.1 1)"
    )
    parser.add_argument("--episodes", type=int, default=100, help="(default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    given = parser.parse_args(arguments)
    model = read_model(given.model)
    names = [*model.task.channels, NOISE]
    print(f"| sd | {' | '.join(names)} | return |\n{'|---' * (len(names) + 2)}|")
    for sd in given.sd:
        protocol = f"reset,noise={given.noise},noise-sd={sd}"
        policy = make_policy(model, "off")
        means, total = measure_attention_and_mean_return(
            policy, model.task.name, protocol, given.episodes, given.seed
        )
        cells = " | ".join(f"{means[name]:.2f}" for name in names)
        print(f"| {sd} | {cells} | {total:.0f} |", flush=True)
    return 0
