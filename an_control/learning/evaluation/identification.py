"""What a policy knows of its channels: identified how soon and how well, and how needed each is.

A channel counts as identified where its neuron's attention is largest at the query of that
channel. Only softmax attention, whose queries are the nominal channels in their order, can be
asked this.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from an_control.disturbance import DisturbanceSettings, Disturber, Shuffle
from an_control.learning.evaluation.comparison import error
from an_control.learning.evaluation.plots import save
from an_control.learning.rollout.engine import evaluation_starts
from an_control.learning.rollout.episode import Result, play_episode
from an_control.load import load_policy
from an_control.policy import AttentionSizes, Policy
from an_control_sim.gym.environments import environment_of, make_environment
from an_control_sim.gym.units import Units

TABLES = "identification", "frozen"
"""The titles of the tables of `measure_identification`."""
UNKNOWN = 0.5
"""A neuron whose attention sums to less takes its channel for none of the nominal ones."""


@dataclass(frozen=True)
class Identification:
    """Counts over episodes that are reshuffled at the reset and every K steps, N channels; shares
    are NaN where there was no such step."""

    first: np.ndarray  # (K, N) share identified, by steps since the reset
    later: np.ndarray  # (K, N) by steps since a reshuffle on the way
    confusion: np.ndarray  # (N, N + 1) how often a channel was taken for each, or for none

    def at(self, steps: int) -> tuple[float, float]:
        """The shares identified so many steps after the reset, and after a reshuffle."""
        return float(self.first[steps].mean()), float(self.later[steps].mean())


class _Counter:
    """Watches episodes and counts."""

    def __init__(self, channels: Sequence[str], every: int) -> None:
        self._index = {name: place for place, name in enumerate(channels)}
        self._every, self._step = every, 0
        self.right, self.seen = (np.zeros((2, every, len(channels))) for _ in range(2))
        self.confusion = np.zeros((len(channels), len(channels) + 1), np.int64)

    def begin(self) -> None:
        self._step = 0

    def __call__(self, policy: Policy, disturber: Disturber) -> None:
        shows = dict(zip(disturber.ids, disturber.order, strict=True))
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


def identify(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    episodes: int,
    seed: int,
    every: int,
) -> Identification:
    """Play these episodes and ask at every step; ValueError where the policy cannot be asked.

    Confusions are counted in the second half of the steps between two reshuffles.
    """
    sizes = policy.model.sizes
    if not isinstance(sizes, AttentionSizes) or sizes.attention != "softmax":
        raise ValueError("identification: needs softmax attention, one query a nominal channel")
    if policy.monitor_report is not None:
        raise ValueError("identification: a monitor puts channels in order before the neurons")
    counter = _Counter(channels, every)
    for start in evaluation_starts(seed, episodes):
        counter.begin()
        disturber = Disturber(channels, DisturbanceSettings(Shuffle(True, every)), start.run)
        play_episode(policy, env, channels, disturber, start, watch=counter)
    share = np.where(counter.seen, counter.right / np.maximum(counter.seen, 1), np.nan)
    return Identification(share[0], share[1], counter.confusion)


class Held(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """One channel keeps the reading that it begins with."""

    def __init__(self, env: gymnasium.Env[Any, Any], place: int) -> None:
        super().__init__(env)
        self._place, self._reading = place, np.nan

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self._reading = np.nan
        return super().reset(**arguments)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        if np.isnan(self._reading):
            self._reading = observation[self._place]
        held = observation.copy()
        held[self._place] = self._reading
        return held


def freeze_each(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    episodes: int,
    seed: int,
) -> dict[str, list[Result]]:
    """The same episodes, shuffled at the reset, with each channel frozen in turn."""
    shuffled = DisturbanceSettings(Shuffle(True))
    return {
        name: [
            play_episode(
                policy, Held(env, place), channels, Disturber(channels, shuffled, start.run), start
            )
            for start in evaluation_starts(seed, episodes)
        ]
        for place, name in enumerate(channels)
    }


def frozen_table(frozen: dict[str, list[Result]]) -> str:
    """One row a channel, worst first, in Markdown; no way walked where a task measures none."""
    rows = ["| frozen | return | min | walked, m |", "|---|---|---|---|"]
    means = {name: np.mean([r.total for r in results]) for name, results in frozen.items()}
    for name in sorted(frozen, key=lambda name: means[name]):
        totals = np.array([result.total for result in frozen[name]])
        ways = [one.distance_m for one in frozen[name] if one.distance_m is not None]
        walked = f"{np.mean(ways):.1f}" if ways else ""
        mean = f"{totals.mean():.0f} {error(totals.std(), len(totals))}"
        rows.append(f"| `{name}` | {mean} | {totals.min():.0f} | {walked} |")
    return "\n".join(rows)


def identification_table(found: Identification) -> str:
    """Shares identified by steps, over all channels, in Markdown; "-" where there was none."""
    steps = [k for k in (0, 2, 5, 10, 15, 20, 30, 50, 100, 150) if k < len(found.first)]
    rows = [
        "| steps since | " + " | ".join(map(str, steps)) + " |",
        "|---" * (len(steps) + 1) + "|",
    ]
    for place, title in enumerate(("the reset", "a reshuffle on the way")):
        shares = [found.at(k)[place] for k in steps]
        cells = ["-" if np.isnan(share) else f"{share:.0%}" for share in shares]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def identification_picture(found: Identification, channels: Sequence[str]) -> Figure:
    """Accuracy by steps and channel, and who is taken for whom."""
    figure, axes = plt.subplots(1, 3, figsize=(17, 6.5), layout="constrained")
    for axis, share, title in (
        (axes[0], found.first, "identified, by steps since the reset"),
        (axes[1], found.later, "by steps since a reshuffle on the way"),
    ):
        axis.imshow(share.T, aspect="auto", vmin=0.0, vmax=1.0, interpolation="nearest")
        axis.set_title(title)
        axis.set_xlabel("steps")
    times = found.confusion.sum(1, keepdims=True)
    share = np.where(times, found.confusion / np.maximum(times, 1), np.nan)
    axes[2].imshow(share, aspect="auto", vmin=0.0, vmax=1.0, interpolation="nearest")
    axes[2].set_title("taken for, in the later half of the steps")
    names = [*channels, "none"]
    axes[2].set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    for axis in axes:
        axis.set_yticks(range(len(channels)), channels, fontsize=7)
    return figure


@dataclass(frozen=True)
class Measured:
    """What `measure_identification` found: for JSON, in Markdown by title, and as files."""

    figures: dict[str, Any]
    tables: dict[str, str]
    pictures: list[Path]


def measure_identification(
    path: Path, task: str | None, episodes: int, seed: int, every: int, plots: Path | None
) -> Measured:
    """Measure how soon the neurons identify their channels, and the returns without each of these.

    The policy plays without its monitor.

    Args:
        path: a model file.
        task: by default the model's.
        episodes: number of episodes.
        seed: of their starts and disturbances.
        every: steps between two reshuffles.
        plots: a folder for the picture.

    Raises:
        ValueError: the policy has no softmax attention.
        OSError: the picture cannot be written.
    """
    policy = load_policy(path, monitor="off")
    channels = policy.nominal_ids
    name = task or policy.model.task.name
    units = Units.of_task(policy.model.task)
    with closing(make_environment(environment_of(name), units)) as env:
        found = identify(policy, env, channels, episodes, seed, every)
        frozen = freeze_each(policy, env, channels, episodes, seed)
    tables = identification_table(found), frozen_table(frozen)
    pictures = []
    if plots is not None:
        pictures = save({"identification": identification_picture(found, channels)}, plots)
    figures = {
        "model": str(path),
        "task": name,
        "seed": seed,
        "first": found.first.mean(1).tolist(),
        "later": found.later.mean(1).tolist(),
        "frozen": {
            channel: float(np.mean([result.total for result in results]))
            for channel, results in frozen.items()
        },
    }
    return Measured(figures, dict(zip(TABLES, tables, strict=True)), pictures)
