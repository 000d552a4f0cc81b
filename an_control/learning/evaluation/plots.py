"""Plot a policy's attention and keys around a permutation of the signals, and its recovery from it.

Columns and points stand for signals in the environment's order, whichever input slot they arrive
in. A policy that has identified its channels again thus shows the same picture as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from an_control.disturbance import Disturber, Shuffle
from an_control.learning.rollout.episode import PlayedEpisode
from an_control.policy import Policy
from an_control.system.files import replace_file_atomically

BEFORE, AFTER = 25, 150
"""Number of steps before and after a permutation that a recovery curve shows."""
MOMENTS = (-1, 0, 1, 5, 25, 99)
"""Steps at which attention and keys are plotted, counted from the permutation of the signals."""
TRAIL = 10
CLUSTER_STEPS, CLUSTER_POINTS, FEWEST_POINTS = 70, 2000, 4
NAMED_SIGNALS = 40
"""Maximum number of signals whose names are shown beside their colours."""
DPI = 110


class AttentionTrace:
    """Recorder of a policy's attention and keys at every step of one episode.

    Args:
        channels: Ids of the channels, in the environment's order.
    """

    def __init__(self, channels: Sequence[str]) -> None:
        self.channels = tuple(channels)
        self.attention: list[np.ndarray] = []
        self.keys: list[np.ndarray] = []

    def record_attention_and_keys(self, policy: Policy, disturber: Disturber) -> None:
        """Append the policy's attention and keys to the lists `attention` and `keys`.

        Pass this method as the argument `watch` of `play_episodes`, which calls it at each step.
        For M queries, N signals and keys of k numbers, the attention is an array (M, N) and the
        keys are an array (N, k). The signals are in the environment's order, with NaN for missing
        ones. A policy for image patches has no keys; instead, the m numbers that each patch adds to
        the attention message are appended to `keys`, as an array (N, m), and nothing is appended to
        `attention`. For a policy without attention nothing is appended at all.

        Args:
            policy: The policy, after its action of this step.
            disturber: Object that permuted the signals and knows their true order.
        """
        attention, report = policy.attention, policy.monitor_report
        keys = policy.patch_vectors if policy.keys is None else policy.keys
        if attention is None or keys is None:
            return
        matched = report is not None and report.setting == "match"
        nominal = self.channels
        signals = {name: place for place, name in enumerate(nominal)}
        shown = dict(zip(disturber.ids, disturber.signal_ids_by_slot, strict=True))
        announced = disturber.settings.announce or matched
        places, columns = [], []
        for column, name in enumerate(policy.channel_order):
            owner = name if announced else shown.get(name, name)
            if owner in signals:
                places.append(signals[owner])
                columns.append(column)
        kept = np.full((len(nominal), keys.shape[1]), np.nan, np.float32)
        kept[places] = keys[columns]
        self.keys.append(kept)
        if policy.keys is not None:
            by_signal = np.full((len(attention), len(nominal)), np.nan)
            by_signal[:, places] = attention[:, columns]
            self.attention.append(by_signal)


def choose_permutation_and_plotted_steps(
    steps: int, permutation_steps: Sequence[int]
) -> tuple[int, list[int]]:
    """Choose one permutation of the signals in an episode, and the steps around it to plot.

    It is the permutation in the middle of those that happened during the episode.

    Args:
        steps: Number of steps of the episode.
        permutation_steps: Steps at which signals were permuted.

    Returns:
        The step of the chosen permutation, or 0 if there is none, and a list of the steps to plot.
    """
    middle = [step for step in permutation_steps if 0 < step <= steps - 2]
    at = middle[len(middle) // 2] if middle else 0
    ends = [step for step in permutation_steps if step > at]
    last = min([steps, *ends]) - 1
    return at, [at + offset for offset in MOMENTS if 0 <= at + offset <= last]


def plot_attention(trace: AttentionTrace, permutation_steps: Sequence[int]) -> Figure:
    """Plot the attention of each query to each signal at several steps around a permutation.

    `choose_permutation_and_plotted_steps` chooses these steps.

    Args:
        trace: Recorded attention of one episode.
        permutation_steps: Steps of the episode at which signals were permuted.
    """
    at, steps = choose_permutation_and_plotted_steps(len(trace.attention), permutation_steps)
    reach = float(np.nanmax(np.abs(np.array([trace.attention[step] for step in steps]))))
    figure = Figure(figsize=(3.1 * len(steps), 4.4))
    axes = figure.subplots(1, len(steps), squeeze=False)
    for axis, step in zip(axes[0], steps, strict=True):
        image = axis.imshow(
            trace.attention[step], vmin=-reach, vmax=reach, cmap="RdBu_r", aspect="auto"
        )
        axis.set_title(_format_plot_title(step, at), fontsize=10)
        axis.set_xticks(range(len(trace.channels)), trace.channels, rotation=90, fontsize=5)
        axis.tick_params(axis="y", labelsize=6)
    axes[0][0].set_ylabel("query")
    figure.tight_layout(rect=(0, 0, 0.95, 0.94))
    bar = figure.add_axes((0.955, 0.25, 0.008, 0.6))
    figure.colorbar(image, cax=bar).ax.tick_params(labelsize=6)
    figure.suptitle("Attention on each signal, whichever channel carries it", fontsize=11)
    return figure


def plot_keys(trace: AttentionTrace, permutation_steps: Sequence[int]) -> Figure:
    """Plot each signal's key on the two principal axes of the episode's keys.

    A key is the vector by which the attention identifies a signal. A short line behind each point
    shows where the key was at the previous steps.

    Args:
        trace: Recorded keys of one episode.
        permutation_steps: Steps at which signals were permuted.
    """
    at, steps = choose_permutation_and_plotted_steps(len(trace.keys), permutation_steps)
    points = project_on_principal_axes(np.array(trace.keys))
    colours = matplotlib.colormaps["hsv"](np.linspace(0.0, 0.94, len(trace.channels)))
    figure = Figure(figsize=(2.9 * len(steps), 3.6))
    axes = figure.subplots(1, len(steps), squeeze=False, sharex=True, sharey=True)
    for axis, step in zip(axes[0], steps, strict=True):
        start = max(0, step - TRAIL, at if step >= at else 0)
        for number, colour in enumerate(colours):
            axis.plot(*points[start : step + 1, number].T, color=colour, linewidth=0.6)
            axis.plot(*points[step, number], "o", color=colour, markersize=4)
        axis.set_title(_format_plot_title(step, at), fontsize=10)
        axis.tick_params(labelsize=6)
    for number in range(len(trace.channels)):
        axes[0][0].annotate(str(number), points[steps[0], number], fontsize=5)
    figure.suptitle("Keys of the signals, two main axes; trail: the last 10 steps", fontsize=11)
    figure.tight_layout()
    return figure


def plot_key_clusters(trace: AttentionTrace) -> Figure | None:
    """Plot the signals' keys over a whole episode, in two dimensions by t-SNE.

    t-SNE (van der Maaten & Hinton 2008) places similar keys close together. A key is the vector by
    which the attention identifies a signal. If the attention succeeds, all keys of one signal lie
    close together, whichever input slot the signal arrives in.

    Args:
        trace: Recorded keys of one episode.

    Returns:
        The figure; None if there are fewer than four different keys, or if a key is a single
        number.
    """
    from sklearn.manifold import TSNE

    steps = np.unique(np.linspace(0, len(trace.keys) - 1, CLUSTER_STEPS).astype(int))
    keys = np.array([trace.keys[step] for step in steps])
    there = np.isfinite(keys).all(axis=2)
    _, different = np.unique(keys[there], axis=0, return_index=True)
    if len(different) > CLUSTER_POINTS:
        some = np.linspace(0, len(different) - 1, CLUSTER_POINTS).astype(int)
        different = np.sort(different)[some]
    signals = np.nonzero(there)[1][different]
    if len(signals) < FEWEST_POINTS or keys.shape[-1] < 2:
        return None
    perplexity = min(30.0, (len(signals) - 1) / 3.0)
    points = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(
        keys[there][different]
    )
    figure = Figure(figsize=(8, 6), layout="constrained")
    axis = figure.subplots()
    count = len(trace.channels)
    colours = matplotlib.colormaps["hsv"](np.linspace(0.0, 0.94, count))
    for number, name in enumerate(trace.channels):
        x, y = points[signals == number].T
        marker = "os^Dv"[number % 5]
        axis.scatter(x, y, s=12, color=colours[number], marker=marker, linewidths=0, label=name)
    axis.set(xticks=[], yticks=[], xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)")
    if count <= NAMED_SIGNALS:
        axis.set_title(f"Keys at {len(steps)} steps; a colour is a signal", fontsize=10)
        figure.legend(loc="outside right upper", fontsize=6)
    else:
        said = f"What {count} patches give to the message at {len(steps)} steps; colours from red"
        axis.set_title(f"{said} (top left) to pink (bottom right)", fontsize=10)
    return figure


def project_on_principal_axes(keys: np.ndarray) -> np.ndarray:
    """Project keys on the two principal axes of all keys.

    Args:
        keys: Keys (T, N, k) of N signals at T steps: the vectors by which the attention identifies
            signals.

    Returns:
        Coordinates (T, N, 2).
    """
    flat = keys.reshape(-1, keys.shape[-1])
    there = flat[np.isfinite(flat).all(axis=1)]
    centre = there.mean(axis=0)
    _, _, axes = np.linalg.svd(there - centre, full_matrices=False)
    planar = (flat - centre) @ axes[:2].T
    planar = np.pad(planar, ((0, 0), (0, 2 - planar.shape[1])))
    return planar.reshape(*keys.shape[:2], 2)


def average_rewards_around_permutations(
    results: Sequence[PlayedEpisode],
) -> tuple[np.ndarray, np.ndarray, int]:
    """Compute the mean reward at each number of steps before and after a permutation of signals.

    For each permutation, only the steps between the previous and the next permutation are used.

    Args:
        results: Results of episodes, with the reward of each step.

    Returns:
        The n distances from a permutation in steps (n,), negative before it; the mean reward at
        each distance (n,); and the number of permutations.
    """
    gathered: dict[int, list[float]] = {}
    count = 0
    for result in results:
        middle = [step for step in result.rewired if step > 0]
        bounds = [0, *middle, result.steps]
        for start, at, end in zip(bounds, middle, bounds[2:], strict=False):
            count += 1
            for step in range(max(start, at - BEFORE), min(end, at + AFTER)):
                gathered.setdefault(step - at, []).append(float(result.rewards[step]))
    offsets = sorted(gathered)
    return np.array(offsets), np.array([np.mean(gathered[one]) for one in offsets]), count


def plot_rewards_around_permutations(runs: Mapping[str, Sequence[PlayedEpisode]]) -> Figure | None:
    """Plot the reward per step around permutations of the signals, one curve for each protocol.

    If the first protocol has no permutations, its mean reward per step is a dotted line.

    Args:
        runs: A mapping from each protocol, a text that says how the episodes were disturbed, to the
            results of its episodes.

    Returns:
        The figure; None if no protocol has permutations.
    """
    curves = {name: average_rewards_around_permutations(results) for name, results in runs.items()}
    shown = {name: curve for name, curve in curves.items() if (curve[0] > 0).any()}
    if not shown:
        return None
    figure = Figure(figsize=(8, 4))
    axis = figure.subplots()
    first = next(iter(runs))
    if first not in shown:
        level = float(np.mean(np.concatenate([one.rewards for one in runs[first]])))
        axis.axhline(level, color="black", linestyle=":", label=f"{first}: mean")
    for name, (offsets, means, count) in shown.items():
        axis.plot(offsets, means, label=f"{name} ({count} permutations)", linewidth=1.2)
    axis.axvline(0, color="grey", linewidth=0.8)
    axis.set_xlabel("steps from the permutation")
    axis.set_ylabel("mean reward per step")
    axis.legend(loc="best", fontsize=8)
    figure.tight_layout()
    return figure


def plot_returns_by_missing_share(
    runs: Mapping[str, Sequence[PlayedEpisode]], missing_shares: Mapping[str, float]
) -> Figure | None:
    """Plot returns against the share of missing channels, a curve for each kind of disturbance.

    Protocols that differ only in this share, such as "reset,missing=0.1" and "reset,missing=0.2",
    make one curve. If none of them has the share 0, but the first protocol of `runs` has, the curve
    begins with the point of that first protocol.

    Args:
        runs: A mapping from each protocol, a text that says how the episodes were disturbed, to the
            results of its episodes.
        missing_shares: A mapping from each protocol to its share (0..1) of missing channels.

    Returns:
        The figure; None if all shares are equal.
    """
    first = next(iter(runs))
    curves: dict[str, list[str]] = {}
    for name in runs:
        label = ",".join(word for word in name.split(",") if not word.startswith("missing="))
        curves.setdefault(label, []).append(name)
    shown = {
        label: names
        for label, names in curves.items()
        if any(missing_shares[name] for name in names)
    }
    if len({missing_shares[name] for name in runs}) < 2:
        return None
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axis = figure.subplots()
    for label, names in shown.items():
        begins_late = all(missing_shares[name] for name in names)
        points = [first, *names] if begins_late and not missing_shares[first] else names
        ordered = sorted(points, key=lambda name: missing_shares[name])
        returns = [np.array([result.total for result in runs[name]]) for name in ordered]
        shares = [100.0 * missing_shares[name] for name in ordered]
        means = [one.mean() for one in returns]
        errors = [one.std() / np.sqrt(max(len(one) - 1, 1)) for one in returns]
        bars = axis.errorbar(shares, means, errors, label=make_protocol_plot_label(label))
        bars[0].set_marker("o")
    axis.set_xlabel("channels that are missing, %")
    axis.set_ylabel("return, mean and standard error")
    axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    figure.legend(loc="outside upper left", fontsize=8)
    return figure


def make_protocol_plot_label(protocol: str) -> str:
    """Convert a protocol, the text of an evaluation's disturbances, to a label in plain words.

    >>> make_protocol_plot_label("reset+100,delay=1")
    'order unknown from the start, channels moved every 100 steps, delay=1'
    """
    first, *others = protocol.split(",")
    shuffle = Shuffle.parse(first)
    start = "order unknown from the start" if shuffle.at_reset else ""
    moves = f"channels moved every {shuffle.every} steps" if shuffle.every else ""
    order = ", ".join(filter(None, (start, moves))) or "channels in their usual order"
    return ", ".join([order, *(one.replace("monitor=", "monitor ") for one in others)])


def save_figures(figures: Mapping[str, Figure | None], folder: Path) -> list[Path]:
    """Write each figure as a PNG file and return the paths.

    Args:
        figures: A mapping from a file name without ".png" to a figure; None as a figure is skipped.
        folder: Folder for the files, which is created if needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        if figure is not None:
            written.append(folder / f"{name}.png")
            with replace_file_atomically(written[-1]) as beside:
                figure.savefig(beside, dpi=DPI)
    return written


def make_protocol_file_name(protocol: str) -> str:
    """Return a protocol's text as a file name; "_" replaces all but letters, digits, "-", "."."""
    return "".join(one if one.isalnum() or one in "-." else "_" for one in protocol)


def _format_plot_title(step: int, permutation_step: int) -> str:
    """Return the title of a plot, such as "one step before"; without permutation, "step N"."""
    offset = step - permutation_step
    if not permutation_step:
        return f"step {step}"
    named = {-1: "one step before", 0: "at once", 1: "one step after"}
    return named.get(offset, f"{offset} steps after")
