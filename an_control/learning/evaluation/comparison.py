"""Compare a policy's returns under several protocols, which are kinds of disturbance.

The comparison is a table with one row for each protocol. Finished rows can be kept in a file, so
that an evaluation that was interrupted continues after them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from an_control.disturbance import describe_distances_walked_after_stop
from an_control.learning.evaluation.evaluate import summarise_episode_results
from an_control.learning.rollout.episode import PlayedEpisode
from an_control.system.files import read_regular_file, write_file
from an_control.system.statistics import format_mean_with_standard_error

TABLE_HEAD = (
    "| protocol | return | min | median | max | successes | difference | same to the last bit |"
)
"""Head of a table in Markdown. Returns and differences are means +- standard errors over episodes.
"""
RECOVERY_STEPS, RECOVERED_SHARE = (150, 350), 0.95
"""First and last step after the last permutation of the signals at which an episode must have
recovered, and a share. An episode has recovered if its mean reward over these steps is at least
this share of the mean reward over the same steps in the undisturbed episodes of the first protocol.
"""
BEGIN_MARK, END_MARK = "<!-- table {} -->", "<!-- end of table -->"
"""Comments in a Markdown file between which a table is written; {} stands for the table's title."""


def compare_protocols(
    runs: Mapping[str, Sequence[PlayedEpisode]],
    success_threshold: float | None = None,
    last_permutation_steps: Mapping[str, int | None] | None = None,
    min_walk_m: float | None = None,
) -> list[dict[str, Any]]:
    """Summarise the results of each protocol and compare its returns with the first protocol's.

    A protocol is a kind of disturbance, such as "reset,noise=5". The n-th episode starts in the
    same state under every protocol, so that its returns can be compared.

    Args:
        runs: A mapping from each protocol to the results of its episodes.
        success_threshold: An episode with a return above this is a success; None if there is no
            threshold.
        last_permutation_steps: A mapping from each protocol to the step after which signals are not
            permuted any more, or to None if there is no such step.
        min_walk_m: Distance in metres that a robot must cover after a stop to count as walking
            again; None for tasks without such a distance.

    Returns:
        A dict for each protocol, with statistics of its returns and:

        - "difference": mean and standard deviation of the difference to the first protocol's return
          in the same episode, and the number of episodes with equal returns ("same"),
        - "detected": how often the monitor detected a permutation,
        - "back": share of the episodes whose rewards recovered after the last permutation,
        - "walked_m": distances walked after a stop, and "walk_again": how many reach `min_walk_m`.
    """
    (first, *_) = runs.values()
    return [
        {
            "protocol": name,
            **summarise_episode_results(results, success_threshold),
            "difference": _compare_returns(results, first),
            "detected": sum(result.detected for result in results),
            "back": _compute_share_of_recovered_episodes(
                results, first, (last_permutation_steps or {}).get(name)
            ),
            **_summarise_walked_distances(results, min_walk_m),
            "episodes": [result.as_dict() for result in results],
        }
        for name, results in runs.items()
    ]


def _compare_returns(
    results: Sequence[PlayedEpisode], first_results: Sequence[PlayedEpisode]
) -> dict[str, Any]:
    """Return mean and standard deviation of the differences of returns, and how many are equal."""
    pairs = [(one.total, other.total) for one, other in zip(results, first_results, strict=True)]
    apart = np.array([one - other for one, other in pairs])
    return {
        "mean": float(apart.mean()),
        "sd": float(apart.std()),
        "same": sum(one == other for one, other in pairs),
    }


def _compute_share_of_recovered_episodes(
    results: Sequence[PlayedEpisode],
    first_results: Sequence[PlayedEpisode],
    last_permutation_step: int | None,
) -> float | None:
    """Return the share (0..1) of episodes whose rewards recovered after the last permutation.

    An episode has recovered if its mean reward over the steps `RECOVERY_STEPS` after that
    permutation is nearly as high as the first protocol's. The share is None without such a
    permutation, for the first protocol itself, or if the first protocol cannot be compared.
    """
    if (
        last_permutation_step is None
        or results is first_results
        or any(one.rewired for one in first_results)
    ):
        return None
    begin, end = (last_permutation_step + steps for steps in RECOVERY_STEPS)
    usual = [one.rewards[begin:end].mean() for one in first_results if len(one.rewards) > begin]
    if not usual:
        return None
    mean = float(np.mean(usual))
    least = mean - (1.0 - RECOVERED_SHARE) * abs(mean)
    reached = [len(r.rewards) > begin and r.rewards[begin:end].mean() >= least for r in results]
    return float(np.mean(reached))


def _summarise_walked_distances(
    results: Sequence[PlayedEpisode], min_walk_m: float | None
) -> dict[str, Any]:
    """Return the distances after a stop, and how many reach `min_walk_m`; None without any."""
    found = [one.walked_m for one in results if one.walked_m is not None]
    again = None if min_walk_m is None or not found else sum(one >= min_walk_m for one in found)
    return {"walked_m": found or None, "walk_again": again}


def format_row_for_terminal(
    row: Mapping[str, Any], success_threshold: float | None, min_walk_m: float | None
) -> list[str]:
    """Return the lines of text that describe one protocol's results in a terminal.

    Args:
        row: The protocol's dict from `compare_protocols`.
        success_threshold: An episode with a return above this is a success; None to leave out the
            line of successes.
        min_walk_m: Distance in metres that a robot must cover after a stop to count as walking
            again; None for tasks without such a distance.
    """
    count = len(row["episodes"])
    text = {
        "return": f"{format_mean_with_standard_error(row['mean'], row['sd'], count)}"
        f" over {count} episodes,"
        f" {row['min']:.4g} to {row['max']:.4g}, median {row['median']:.4g}",
    }
    if success_threshold is not None:
        text["successes"] = f"{row['success_share']:.0%}, a return above {success_threshold:g}"
    text["ended"] = f"{row['falls']} of {count} episodes before their last step"
    if row["distance_m"] is not None:
        text["distance"] = f"{row['distance_m']:.1f} m"
    if row["detected"]:
        text["monitor"] = f"{row['detected']} moves of signals detected"
    if row["walked_m"]:
        text["stops"] = describe_distances_walked_after_stop(row["walked_m"], min_walk_m)
    text["speed"] = f"{row['steps_per_s']:.0f} steps/s"
    return [f"{name:<9} {words}" for name, words in text.items()]


def format_comparison_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of `compare_protocols` as a Markdown table.

    All numbers have the same number of decimals. It is chosen so that the largest return has at
    least three significant digits.
    """
    lines = [TABLE_HEAD, f"|{'---|' * TABLE_HEAD.count(' | ')}---|"]
    largest = max(max(abs(row["min"]), abs(row["max"])) for row in rows)
    digits = 0 if largest >= 100.0 else 1 if largest >= 10.0 else 2 if largest >= 1.0 else 3
    lines += [_format_comparison_table_row(row, digits, is_first=row is rows[0]) for row in rows]
    for head, cells in (
        ("back", ["" if row["back"] is None else f"{row['back']:.0%}" for row in rows]),
        ("walk again", [_format_walked_distances(row) for row in rows]),
    ):
        if any(cells):
            more = [f" {head} |", "---|", *(f" {cell} |" for cell in cells)]
            lines = [line + end for line, end in zip(lines, more, strict=True)]
    return "\n".join(lines)


def _format_walked_distances(row: Mapping[str, Any]) -> str:
    """Return the cell of how many robots walk again after a stop, and how far; "" without stops."""
    if not row["walked_m"]:
        return ""
    count = len(row["walked_m"])
    again = f"{count}" if row["walk_again"] is None else f"{row['walk_again']} of {count}"
    return f"{again}, {np.median(row['walked_m']):.1f} m"


def _format_comparison_table_row(row: Mapping[str, Any], digits: int, *, is_first: bool) -> str:
    """Return one row of the comparison as a line of the Markdown table."""
    share, apart = row["success_share"], row["difference"]
    episodes = len(row["episodes"])
    cells = [
        f"`{row['protocol']}`",
        f"{row['mean']:.{digits}f} {format_standard_error(row['sd'], episodes, digits)}",
        *(f"{row[name]:.{digits}f}" for name in ("min", "median", "max")),
        "" if share is None else f"{share:.0%}",
        ""
        if is_first
        else f"{apart['mean']:+.{digits}f} {format_standard_error(apart['sd'], episodes, digits)}",
        "" if is_first else f"{apart['same']} of {episodes}",
    ]
    return f"| {' | '.join(cells)} |"


def format_standard_error(sd: float, episodes: int, digits: int = 0) -> str:
    """Return the text "+- ERROR" for the standard error of a mean.

    Args:
        sd: Standard deviation of the episodes' returns.
        episodes: Number of episodes.
        digits: Digits after the decimal point.

    >>> format_standard_error(30.0, 101)
    '+- 3'
    """
    return f"+- {sd / np.sqrt(episodes - 1):.{digits}f}" if episodes > 1 else "+- ?"


def describe_missing_table_marks(path: Path, titles: Iterable[str]) -> str:
    """Return an error message if a Markdown file lacks the marks between which tables are written.

    The marks of a table are the comments `<!-- table TITLE -->` and `<!-- end of table -->`.

    Args:
        path: The file. If it does not exist, no mark is missing, because it can be created.
        titles: Titles of the tables.

    Returns:
        The message, which names the missing marks; "" if the file has the marks of all tables.
    """
    if not path.exists():
        return ""
    text = read_regular_file(path).decode()
    lacking = [
        BEGIN_MARK.format(title) for title in titles if not _split_text_around_table(text, title)
    ]
    return f"{path}: has no {' and no '.join(lacking)} ... {END_MARK}" if lacking else ""


def write_markdown_tables(path: Path, tables: Mapping[str, str]) -> None:
    """Write tables into a Markdown file, each between the marks of its title.

    The marks are `<!-- table TITLE -->` and `<!-- end of table -->`. A file that does not exist is
    created.

    Args:
        path: The file.
        tables: Tables in Markdown by title.

    Raises:
        ValueError: The file lacks the marks of a title.
    """
    if problem := describe_missing_table_marks(path, tables):
        raise ValueError(problem)
    if not path.exists():
        marked = [
            f"{BEGIN_MARK.format(title)}\n{text}\n{END_MARK}\n" for title, text in tables.items()
        ]
        write_file(path, "\n".join(marked))
        return
    content = read_regular_file(path).decode()
    for title, text in tables.items():
        before, after = _split_text_around_table(content, title)
        content = f"{before}{text}\n{after}"
    write_file(path, content)


def _split_text_around_table(text: str, title: str) -> tuple[str, ...]:
    """Return the text before and after a table, with its marks; () if a mark is missing."""
    before, begin, rest = text.partition(BEGIN_MARK.format(title) + "\n")
    table, end, after = rest.partition(END_MARK)
    is_marked = begin and end and BEGIN_MARK.partition("{")[0] not in table  # not another's end
    return (before + begin, end + after) if is_marked else ()


class KeptResults:
    """File that keeps the results of finished protocols while an evaluation runs.

    An evaluation that was interrupted continues from this file.

    Args:
        path: The file; it is created when the first results are added.
        options: All options on which the results depend, by name, except the protocols.

    Raises:
        ValueError: The file was made with other options, or is not a file of results.
    """

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self._rows: dict[str, list[PlayedEpisode]] = {}
        self._path, self._about = path, dict(options)
        if not path.exists():
            return
        try:
            kept = json.loads(read_regular_file(path))
            before = {name: kept["about"][name] for name in options}
            for protocol, episodes in kept["rows"].items():
                self._rows[protocol] = [_convert_json_to_result(one) for one in episodes]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{path}: is not a state file of a table; delete it or name another file"
            ) from error
        for name, value in options.items():
            if before[name] != value:
                raise ValueError(
                    f"{path}: was made with {name} {before[name]}, not {value};"
                    " delete it or name another file"
                )

    def find_results(self, protocol: str, *, with_step_rewards: bool) -> list[PlayedEpisode] | None:
        """Return the results of a protocol, or None if the file has none that can be used.

        Args:
            protocol: The protocol's text.
            with_step_rewards: Whether the reward of each step is needed. If so, results of episodes
                that compiled code played are not returned, because they lack these rewards.
        """
        row = self._rows.get(protocol)
        if row is None or (with_step_rewards and any(len(one.rewards) < one.steps for one in row)):
            return None
        return row

    def add_results(self, protocol: str, results: Sequence[PlayedEpisode]) -> None:
        """Add the results of a protocol to the file.

        Raises:
            WriteError: The file cannot be written; it is then unchanged.
        """
        self._rows[protocol] = list(results)
        rows = {
            name: [_convert_result_to_json(one) for one in row] for name, row in self._rows.items()
        }
        write_file(self._path, json.dumps({"about": self._about, "rows": rows}))

    def delete_file(self) -> None:
        """Delete the file, which is no longer needed once the table is written."""
        self._path.unlink(missing_ok=True)


def _convert_result_to_json(result: PlayedEpisode) -> dict[str, Any]:
    """Convert the result of an episode to values for JSON."""
    return {**asdict(result), "rewards": result.rewards.tolist()}


def _convert_json_to_result(episode: Mapping[str, Any]) -> PlayedEpisode:
    """Convert values of `_convert_result_to_json` back to the result of an episode."""
    values = {one.name: episode[one.name] for one in fields(PlayedEpisode)}
    values |= {"rewards": np.array(values["rewards"]), "rewired": tuple(values["rewired"])}
    return PlayedEpisode(**values)
