"""Runs episodes over ROS 2 one after the other and summarises them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.disturbance import (
    DisturbanceSettings,
    Disturber,
    derive_episode_seed,
    describe_distances_walked_after_stop,
)
from an_control.system.statistics import format_mean_with_standard_error
from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.policy_link import BridgeError, PolicyDiagnostics
from an_control_sim.bridge.run_control import RestartRequestedError, StopRequestedError
from an_control_sim.gym.failure import BrokenEnvironmentError


@dataclass(frozen=True)
class EpisodeResult:
    """The result of one finished episode.

    Attributes:
        return_: The sum of the rewards, added in the order of the steps.
        steps: The number of steps.
        shuffles: How often a disturbance permuted the sensor signals among the channels.
        distance_m: The distance that the robot covered in metres; None if the environment reports
            none.
        timeouts: The number of steps in which the safe command was applied, because no command
            arrived in time.
        unmatched: In lockstep, the number of commands without a step and of steps without a
            command, if commands have no time stamp. If it is not 0, steps may have used the
            commands of other steps.
        wall_s: The duration of the episode in seconds of wall-clock time.
        walked_m: The distance in metres that the robot covered in the first seconds after an
            e-stop; None if there was no e-stop, or the robot had fallen before the e-stop ended.
        latency_s: For each step the seconds from publishing the readings to receiving the command;
            empty in real time.
    """

    return_: float
    steps: int
    shuffles: int
    distance_m: float | None
    timeouts: int
    unmatched: int
    wall_s: float
    walked_m: float | None
    latency_s: NDArray[np.float64] = field(repr=False, compare=False)


@dataclass(frozen=True)
class EpisodeProgress:
    """A report of how far a run of episodes has come.

    Attributes:
        episode: The index of the current episode.
        episodes: The number of episodes of the run; 0 if it has no end.
        steps: The number of steps so far in this episode.
        return_: The sum of the rewards so far in this episode.
        finished: The result of the episode if it has just ended, else None.
    """

    episode: int
    episodes: int
    steps: int
    return_: float
    finished: EpisodeResult | None = None


ProgressCallback = Callable[[EpisodeProgress], None]
STEPS_PER_REPORT = 50
"""Number of steps between two progress reports."""
NO_DISTURBANCE = DisturbanceSettings()
MAX_KEPT_RESULTS = 1000
"""Number of results that a run without end keeps, so that its memory does not grow."""


def run_episodes(
    bridge: Bridge,
    *,
    episodes: int,
    seed: int,
    progress: ProgressCallback | None = None,
    disturbance: DisturbanceSettings = NO_DISTURBANCE,
) -> list[EpisodeResult]:
    """Run episodes of a simulated robot and return their results.

    The seed of episode e is `derive_episode_seed(seed, e)`. A client that calls the reset service
    restarts the current episode. `bridge.run.stop()` ends the run, and the episodes that had ended
    before are returned. A run without end returns only its newest `MAX_KEPT_RESULTS` results.

    Args:
        bridge: The server of the robot; it is not closed.
        episodes: The number of episodes; 0 runs until stopped.
        seed: The number from which the seeds of the episodes are derived.
        progress: Called during and after each episode.
        disturbance: What is done to the robot on purpose: changes of motors, mass and friction, and
            stops by the policy's e-stop. Its other settings have no effect here.

    Raises:
        BridgeError: The policy cannot be reached, or the environment fails. The error's attribute
            `finished` has the results so far.
        ValueError: The environment does not support a setting of the robot in `disturbance`.
    """
    results: deque[EpisodeResult] = deque(maxlen=None if episodes else MAX_KEPT_RESULTS)
    drawn, episode = Disturber((), disturbance, seed), 0
    try:
        bridge.wait_for_policy()
        if disturbance.stop:
            bridge.wait_for_estop()
        while not episodes or episode < episodes:
            try:
                results.append(_run_episode(bridge, episode, episodes, seed, progress, drawn))
                episode += 1
            except RestartRequestedError:
                continue
    except StopRequestedError:
        pass
    except (BridgeError, BrokenEnvironmentError) as error:
        failure = BridgeError(str(error))
        failure.finished = list(results)
        raise failure from error
    return list(results)


def _run_episode(
    bridge: Bridge,
    episode: int,
    episodes: int,
    seed: int,
    progress: ProgressCallback | None,
    disturber: Disturber,
) -> EpisodeResult:
    """Run one episode and return its result."""
    disturber.start_episode(episode)
    stop = disturber.draw_robot_stop(bridge.robot.simulation.step_s)
    bridge.robot.vary_robot(disturber.settings)
    timeouts, unmatched = bridge.timeouts, bridge.exchange.unmatched
    bridge.start_episode(derive_episode_seed(seed, episode), episode)
    robot, report = bridge.robot, progress or (lambda progress: None)
    bridge.latency_s.clear()
    begin_s, return_, steps = time.monotonic(), 0.0, 0
    while not robot.over:
        if steps % STEPS_PER_REPORT == 0:
            report(EpisodeProgress(episode, episodes, steps, return_))
        if stop is not None and steps in (stop.begin, stop.end):
            bridge.set_estop(steps < stop.end)  # False if the stop is shorter than a step
        bridge.step()
        return_ += robot.reward
        steps += 1
        if stop is not None:
            stop.update_walked_distance(steps, robot.distance_m)
    if stop is not None and stop.begin <= steps <= stop.end:  # the robot fell during the stop
        bridge.set_estop(False)
    wall_s = time.monotonic() - begin_s
    bridge.end_episode()
    result = EpisodeResult(
        return_=return_,
        steps=steps,
        shuffles=bridge.tap.shuffle_count if bridge.tap is not None else 0,
        distance_m=robot.distance_m,
        timeouts=bridge.timeouts - timeouts,
        unmatched=bridge.exchange.unmatched - unmatched,
        wall_s=wall_s,
        walked_m=None if stop is None else stop.walked_m,
        latency_s=np.array(bridge.latency_s),
    )
    report(EpisodeProgress(episode, episodes, steps, return_, result))
    return result


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run of episodes; means are NaN if no episode has ended.

    Attributes:
        episodes: The results of the episodes.
        policy: The policy node's diagnostics at the end of a run in real time; None in lockstep, or
            if the node published none.
        walk_m: A robot that covers at least this distance in metres after an e-stop counts as
            walking again; None if the task defines no such distance.
        failure: Why the run ended early; "" if it did not.
    """

    episodes: tuple[EpisodeResult, ...]
    policy: PolicyDiagnostics | None = None
    walk_m: float | None = None
    failure: str = ""

    @property
    def returns(self) -> NDArray[np.float64]:
        """The return (sum of rewards) of each of the E episodes, (E,)."""
        return np.array([one.return_ for one in self.episodes])

    @property
    def mean_return(self) -> float:
        """The mean over the episodes of their returns (sums of rewards)."""
        return float(self.returns.mean()) if self.episodes else float("nan")

    @property
    def return_sd(self) -> float:
        """The standard deviation of the episodes' returns (of the population, ddof 0)."""
        return float(self.returns.std()) if self.episodes else float("nan")

    @property
    def steps_per_s(self) -> float:
        """The number of simulation steps per second of wall-clock time, over all episodes."""
        wall_s = sum(one.wall_s for one in self.episodes)
        return sum(one.steps for one in self.episodes) / wall_s if wall_s else float("nan")

    @property
    def timeout_count(self) -> int:
        """The number of steps in which no command arrived in time, so the safe one was applied."""
        return sum(one.timeouts for one in self.episodes)

    def compute_latency_quantile_s(self, quantile_level: float) -> float:
        """Return a quantile of the seconds from publishing readings to receiving the command.

        It is taken over all steps of all episodes, and is NaN in real time.

        Args:
            quantile_level: Which quantile, from 0 to 1; 0.5 for the median.
        """
        parts = [one.latency_s for one in self.episodes]
        latencies = np.concatenate(parts) if parts else np.empty(0)
        return float(np.quantile(latencies, quantile_level)) if len(latencies) else float("nan")

    def format_lines(self) -> list[str]:
        """Format the summary as lines for a terminal."""
        if not self.episodes:
            return ["no episode finished"]
        count = len(self.episodes)
        episodes = f"{count} episode{'s' * (count > 1)}"
        lines = [
            f"return    {format_mean_with_standard_error(self.mean_return, self.return_sd, count)}"
            f" over {episodes}"
        ]
        distances = [one.distance_m for one in self.episodes if one.distance_m is not None]
        if distances:
            lines.append(f"distance  {np.mean(distances):.1f} m")
        if np.isfinite(self.compute_latency_quantile_s(0.5)):
            p50, p99 = (
                1e3 * self.compute_latency_quantile_s(0.5),
                1e3 * self.compute_latency_quantile_s(0.99),
            )
            lines.append(f"latency   p50 {p50:.2f} ms, p99 {p99:.2f} ms from readings to command")
        lines.append(f"speed     {self.steps_per_s:.0f} steps/s")
        if self.policy is not None:
            lines += self.policy.format_lines()
        walked = [one.walked_m for one in self.episodes if one.walked_m is not None]
        if walked:
            lines.append(f"stops     {describe_distances_walked_after_stop(walked, self.walk_m)}")
        if self.timeout_count:
            lines.append(
                f"timeouts  {self.timeout_count} steps without a command: the simulator took the"
                " safe one"
            )
        if unmatched := sum(one.unmatched for one in self.episodes):
            lines.append(
                f"unmatched {unmatched} commands without a step or steps without"
                " a command: steps may have used the command of another step"
            )
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as a dict that JSON can represent.

        The task, the model and the seed of the run are not known here, so the caller adds them.
        """
        return {
            "episodes": [
                {
                    "return": one.return_,
                    "steps": one.steps,
                    "shuffles": one.shuffles,
                    "distance_m": one.distance_m,
                    "timeouts": one.timeouts,
                    "unmatched": one.unmatched,
                    "walked_m": one.walked_m,
                }
                for one in self.episodes
            ],
            "mean": self.mean_return,
            "sd": self.return_sd,
            "steps_per_s": self.steps_per_s,
            "policy": None if self.policy is None else asdict(self.policy),
            "latency_p50_s": self.compute_latency_quantile_s(0.5),
            "latency_p99_s": self.compute_latency_quantile_s(0.99),
        }
