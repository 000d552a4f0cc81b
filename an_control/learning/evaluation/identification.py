"""Measure how soon a policy recognises which input is which channel, and how much each one matters.

A channel counts as identified if the attention of its sensory neuron is largest at the query of
that channel. This is defined only for softmax attention, whose queries stand for the channels in
the environment's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from matplotlib.figure import Figure

from an_control.disturbance import DisturbanceSettings, Disturber, Shuffle
from an_control.learning.evaluation.comparison import format_standard_error
from an_control.learning.evaluation.evaluate import make_environment_for_model
from an_control.learning.evaluation.plots import save_figures
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.episode import PlayedEpisode, play_episode
from an_control.load import load_policy
from an_control.policy import AttentionSizes, Policy
from an_control_sim.gym.environments import describe_task

TABLES = "identification", "frozen"
"""Titles of the two tables that `measure_channel_identification` makes."""
UNKNOWN = 0.5
"""Minimum sum of the attention to a neuron. If a neuron gets less, the policy is taken to assign
that neuron's input slot to none of the channels.
"""


@dataclass(frozen=True)
class IdentifiedShares:
    """How often a policy identified each of N channels, by the number of steps since a shuffle.

    The channels are shuffled at the reset of each episode, and again every K steps.

    Attributes:
        first: Shares (K, N) after a shuffle at the reset. Entry [k, n] is the share (0..1) of the
            episodes in which channel n was identified after k steps; NaN if none is so long.
        later: Shares (K, N) like `first`, but after the shuffles during the episodes.
        confusion: Counts (N, N + 1); entry [n, m] is the number of steps at which the policy took
            channel n for channel m. The last column stands for "no channel".
    """

    first: np.ndarray
    later: np.ndarray
    confusion: np.ndarray


class _IdentificationCounter:
    """Counter of how often a policy identifies each of the channels, at each step.

    `play_episode` calls it after each action of an episode.

    Args:
        channels: Ids of the channels, in the environment's order.
        shuffle_interval: Number of steps between two shuffles of the channels.
    """

    def __init__(self, channels: Sequence[str], shuffle_interval: int) -> None:
        self._index = {name: place for place, name in enumerate(channels)}
        self._every, self._step = shuffle_interval, 0
        self.right, self.seen = (np.zeros((2, shuffle_interval, len(channels))) for _ in range(2))
        self.confusion = np.zeros((len(channels), len(channels) + 1), np.int64)

    def start_episode(self) -> None:
        """Set the step to 0 for a new episode."""
        self._step = 0

    def __call__(self, policy: Policy, disturber: Disturber) -> None:
        """Count which channels the policy has identified at the present step of the episode."""
        shows = dict(zip(disturber.ids, disturber.signal_ids_by_slot, strict=True))
        truth = np.array([self._index[shows[slot]] for slot in policy.channel_order])
        attention = policy.attention
        assert attention is not None
        taken = np.where(attention.sum(0) < UNKNOWN, len(self._index), attention.argmax(0))
        since = self._step % self._every
        part = int(self._step >= self._every)
        self.seen[part, since, truth] += 1
        self.right[part, since, truth] += taken == truth
        if since >= self._every // 2:
            np.add.at(self.confusion, (truth, taken), 1)
        self._step += 1


def measure_identified_channel_shares(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    episodes: int,
    seed: int,
    shuffle_interval: int,
) -> IdentifiedShares:
    """Play episodes and measure at every step which channels a policy identifies.

    The result's field `confusion` counts only the second half of the steps after each shuffle. A
    policy needs the first steps to identify its channels.

    Args:
        policy: A policy with softmax attention and without a monitor.
        env: The environment.
        channels: Ids of the observation's entries, in their order.
        episodes: Number of episodes.
        seed: Seed of starts and permutations.
        shuffle_interval: Number of steps between two reshuffles.

    Raises:
        ValueError: The policy has no softmax attention with a query for each channel, or has a
            monitor.
    """
    sizes = policy.model.sizes
    if (
        not isinstance(sizes, AttentionSizes)
        or sizes.attention != "softmax"
        or sizes.queries != len(channels) + 1  # the last stands for none of them
    ):
        raise ValueError(
            "identification: needs softmax attention, with one query per nominal channel"
        )
    if policy.monitor_report is not None:
        raise ValueError(
            "identification: not with a monitor, which orders the channels before the neurons"
        )
    counter = _IdentificationCounter(channels, shuffle_interval)
    for start in make_evaluation_seeds(seed, episodes):
        counter.start_episode()
        disturber = Disturber(
            channels, DisturbanceSettings(Shuffle(True, shuffle_interval)), start.run
        )
        play_episode(policy, env, channels, disturber, start, watch=counter)
    share = np.where(counter.seen, counter.right / np.maximum(counter.seen, 1), np.nan)
    return IdentifiedShares(share[0], share[1], counter.confusion)


class FrozenChannel(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """Environment in which one channel always returns its first reading of the episode.

    Args:
        env: The environment.
        channel_index: Index of the channel in the observation.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], channel_index: int) -> None:
        super().__init__(env)
        self._index, self._reading = channel_index, np.nan

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset the environment; the channel then keeps its first reading for the whole episode."""
        self._reading = np.nan
        return super().reset(**arguments)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the observation (N,) with the channel's first reading in place of the newest."""
        if np.isnan(self._reading):
            self._reading = observation[self._index]
        held = observation.copy()
        held[self._index] = self._reading
        return held


def play_with_each_channel_frozen(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    episodes: int,
    seed: int,
) -> dict[str, list[PlayedEpisode]]:
    """Play the same episodes once for each channel, with that channel frozen.

    A frozen channel repeats its first reading. The channels are shuffled at the reset.

    Args:
        policy: The policy.
        env: The environment.
        channels: Ids of the observation's entries, in their order.
        episodes: Number of episodes for each channel.
        seed: Seed of starts and permutations.

    Returns:
        A mapping from the id of the frozen channel to the results of its episodes.
    """
    shuffled = DisturbanceSettings(Shuffle(True))
    return {
        name: [
            play_episode(
                policy,
                FrozenChannel(env, place),
                channels,
                Disturber(channels, shuffled, start.run),
                start,
            )
            for start in make_evaluation_seeds(seed, episodes)
        ]
        for place, name in enumerate(channels)
    }


def format_frozen_channel_table(frozen: dict[str, list[PlayedEpisode]]) -> str:
    """Return a Markdown table of returns and distances with one row for each frozen channel.

    The rows are sorted by rising mean return. The distance is empty for tasks that measure none.

    Args:
        frozen: A mapping from the id of the frozen channel to the results of its episodes.
    """
    rows = ["| frozen | return | min | walked, m |", "|---|---|---|---|"]
    means = {name: np.mean([r.total for r in results]) for name, results in frozen.items()}
    for name in sorted(frozen, key=lambda name: means[name]):
        totals = np.array([result.total for result in frozen[name]])
        ways = [one.distance_m for one in frozen[name] if one.distance_m is not None]
        walked = f"{np.mean(ways):.1f}" if ways else ""
        mean = f"{totals.mean():.0f} {format_standard_error(totals.std(), len(totals))}"
        rows.append(f"| `{name}` | {mean} | {totals.min():.0f} | {walked} |")
    return "\n".join(rows)


def format_identification_table(shares_by_step: IdentifiedShares) -> str:
    """Return a Markdown table of the share of identified channels, by steps since a shuffle.

    Args:
        shares_by_step: Shares that `measure_identified_channel_shares` returned.
    """
    steps = [k for k in (0, 2, 5, 10, 15, 20, 30, 50, 100, 150) if k < len(shares_by_step.first)]
    rows = [
        "| steps since | " + " | ".join(map(str, steps)) + " |",
        "|---" * (len(steps) + 1) + "|",
    ]
    for title, found in (
        ("the reset", shares_by_step.first),
        ("a reshuffle on the way", shares_by_step.later),
    ):
        shares = [found[k].mean() for k in steps]
        cells = ["-" if np.isnan(share) else f"{share:.0%}" for share in shares]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def plot_channel_identification(shares: IdentifiedShares, channels: Sequence[str]) -> Figure:
    """Plot how soon each channel is identified, and which channels are confused with each other.

    Args:
        shares: Shares and confusions that `measure_identified_channel_shares` returned.
        channels: Ids of the channels, in the environment's order.
    """
    figure = Figure(figsize=(17, 6.5), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, share, title in (
        (axes[0], shares.first, "identified, by steps since the reset"),
        (axes[1], shares.later, "by steps since a reshuffle on the way"),
    ):
        axis.imshow(share.T, aspect="auto", vmin=0.0, vmax=1.0, interpolation="nearest")
        axis.set_title(title)
        axis.set_xlabel("steps")
    times = shares.confusion.sum(1, keepdims=True)
    share = np.where(times, shares.confusion / np.maximum(times, 1), np.nan)
    axes[2].imshow(share, aspect="auto", vmin=0.0, vmax=1.0, interpolation="nearest")
    axes[2].set_title("taken for, in the later half of the steps")
    names = [*channels, "none"]
    axes[2].set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    for axis in axes:
        axis.set_yticks(range(len(channels)), channels, fontsize=7)
    return figure


@dataclass(frozen=True)
class IdentificationResult:
    """Result of `measure_channel_identification`: how soon a policy identifies its channels.

    Attributes:
        figures: The measured numbers by name, for a JSON file.
        tables: Markdown tables by title.
        pictures: Paths of the pictures that were written.
    """

    figures: dict[str, Any]
    tables: dict[str, str]
    pictures: list[Path]


def measure_channel_identification(
    model_path: Path,
    task: str | None,
    episodes: int,
    seed: int,
    shuffle_interval: int,
    plot_folder: Path | None,
) -> IdentificationResult:
    """Measure how soon a policy identifies its channels, and its returns with a frozen channel.

    A frozen channel repeats its first reading. The policy plays without its monitor, which would
    sort the channels for it.

    Args:
        model_path: The model file.
        task: A task known by name, or a gymnasium id; by default the model's own.
        episodes: Number of episodes.
        seed: Seed of starts and permutations.
        shuffle_interval: Number of steps between two reshuffles.
        plot_folder: Folder for the picture; None for no picture.

    Raises:
        ValueError: The policy has no softmax attention, or does not fit the task.
        OSError: The picture cannot be written.
    """
    policy = load_policy(model_path, monitor="off")
    name = task or policy.model.task.name or "ant"
    with closing(make_environment_for_model(model_path, policy.model, name)) as env:
        channels = policy.nominal_ids or describe_task(env, "", "").channels
        found = measure_identified_channel_shares(
            policy, env, channels, episodes, seed, shuffle_interval
        )
        frozen = play_with_each_channel_frozen(policy, env, channels, episodes, seed)
    tables = format_identification_table(found), format_frozen_channel_table(frozen)
    pictures = []
    if plot_folder is not None:
        pictures = save_figures(
            {"identification": plot_channel_identification(found, channels)}, plot_folder
        )
    figures = {
        "model": str(model_path),
        "task": name,
        "seed": seed,
        "first": found.first.mean(1).tolist(),
        "later": found.later.mean(1).tolist(),
        "frozen": {
            channel: float(np.mean([result.total for result in results]))
            for channel, results in frozen.items()
        },
    }
    return IdentificationResult(figures, dict(zip(TABLES, tables, strict=True)), pictures)
