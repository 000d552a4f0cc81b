"""Episodes over ROS 2, one after the other, and what they gave."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.disturbance import DisturbanceSettings, Disturber, after_stops, episode_seed
from an_control.system.statistics import format_mean
from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.policy_link import BridgeError, Figures
from an_control_sim.bridge.run_control import Restarted, Stopped


@dataclass(frozen=True)
class EpisodeResult:
    """One finished episode. `return_` is the plain sum of rewards, in the order of the steps."""

    return_: float
    steps: int
    shuffles: int
    distance_m: float | None
    timeouts: int
    unmatched: int
    """Commands that no step had asked for, and those that never came, see `Exchange.unmatched`."""
    wall_s: float
    walked_m: float | None
    """How far it came in the seconds after a stop, see `Stop`; None without one."""
    latency_s: NDArray[np.float64] = field(repr=False, compare=False)
    """From the readings' publishing to the command's arrival; empty in real time."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands: of `episodes` (0 = endless) the one with index `episode` is running."""

    episode: int
    episodes: int
    steps: int
    return_: float
    finished: EpisodeResult | None = None
    """Set in the one call that ends an episode."""


ProgressCallback = Callable[[Progress], None]
PROGRESS_EVERY = 50
"""Steps between two calls of the progress callback."""
NOTHING = DisturbanceSettings()
KEPT = 1000
"""Results that an endless run keeps, the newest ones, so that its memory stays flat."""


def run_episodes(
    bridge: Bridge,
    *,
    episodes: int,
    seed: int,
    progress: ProgressCallback | None = None,
    disturbance: DisturbanceSettings = NOTHING,
) -> list[EpisodeResult]:
    """Run `episodes` (0 = until stopped); return those that ended, also after `bridge.run.stop()`.

    An endless run returns the last KEPT of them. Episode e starts from `episode_seed(seed, e)`.
    The reset service starts the running episode again. Of `disturbance` the robot's settings count
    here, and the stop, for which the policy's e-stop is latched. Raises BridgeError, with what has
    finished, where the policy cannot be reached, ValueError where the environment does not offer
    such a robot.
    """
    results: deque[EpisodeResult] = deque(maxlen=None if episodes else KEPT)
    drawn, episode = Disturber((), disturbance, seed), 0
    try:
        bridge.start()
        if disturbance.stop:
            bridge.prepare_stops()
        while not episodes or episode < episodes:
            try:
                results.append(_run(bridge, episode, episodes, seed, progress, drawn))
                episode += 1
            except Restarted:
                continue
    except Stopped:
        pass
    except BridgeError as error:
        error.finished = list(results)
        raise
    return list(results)


def _run(
    bridge: Bridge,
    episode: int,
    episodes: int,
    seed: int,
    progress: ProgressCallback | None,
    drawn: Disturber,
) -> EpisodeResult:
    drawn.reset(episode)
    stop = drawn.stop(bridge.robot.simulation.step_s)
    bridge.robot.vary(drawn.settings)
    timeouts, unmatched = bridge.timeouts, bridge.exchange.unmatched
    bridge.reset(episode_seed(seed, episode), episode)
    robot, tell = bridge.robot, progress or (lambda progress: None)
    bridge.latency_s.clear()
    begin_s, return_, steps = time.monotonic(), 0.0, 0
    while not robot.over:
        if steps % PROGRESS_EVERY == 0:
            tell(Progress(episode, episodes, steps, return_))
        if stop is not None and steps in (stop.begin, stop.end):
            bridge.estop(steps == stop.begin)
        bridge.step()
        return_ += robot.reward
        steps += 1
        if stop is not None:
            stop.follow(steps, robot.distance_m)
    if stop is not None and stop.begin <= steps <= stop.end:  # the robot fell while stopped
        bridge.estop(False)
    wall_s = time.monotonic() - begin_s
    bridge.finish()
    result = EpisodeResult(
        return_=return_,
        steps=steps,
        shuffles=bridge.tap.shuffles if bridge.tap is not None else 0,
        distance_m=robot.distance_m,
        timeouts=bridge.timeouts - timeouts,
        unmatched=bridge.exchange.unmatched - unmatched,
        wall_s=wall_s,
        walked_m=None if stop is None else stop.walked_m,
        latency_s=np.array(bridge.latency_s),
    )
    tell(Progress(episode, episodes, steps, return_, result))
    return result


@dataclass(frozen=True)
class Summary:
    """What a run gave; sd is the population's (ddof 0), figures are NaN without an episode."""

    episodes: tuple[EpisodeResult, ...]
    policy: Figures | None = None
    """What the policy node said of itself at the end, of a run in real time."""
    walk_m: float | None = None
    """How far a robot must come after a stop for it to count as walking again."""
    failure: str = ""
    """Why the run ended before its time; empty where nothing failed."""

    @property
    def returns(self) -> NDArray[np.float64]:
        return np.array([one.return_ for one in self.episodes])

    @property
    def mean(self) -> float:
        return float(self.returns.mean()) if self.episodes else float("nan")

    @property
    def sd(self) -> float:
        return float(self.returns.std()) if self.episodes else float("nan")

    @property
    def steps_per_s(self) -> float:
        wall_s = sum(one.wall_s for one in self.episodes)
        return sum(one.steps for one in self.episodes) / wall_s if wall_s else float("nan")

    @property
    def timeouts(self) -> int:
        return sum(one.timeouts for one in self.episodes)

    @property
    def unmatched(self) -> int:
        return sum(one.unmatched for one in self.episodes)

    @property
    def walked_m(self) -> list[float]:
        """How far it came after each stop that did not leave it fallen."""
        return [one.walked_m for one in self.episodes if one.walked_m is not None]

    def latency_s(self, share: float) -> float:
        """The quantile of all steps' time from readings to command; NaN in real time."""
        parts = [one.latency_s for one in self.episodes]
        latencies = np.concatenate(parts) if parts else np.empty(0)
        return float(np.quantile(latencies, share)) if len(latencies) else float("nan")

    def lines(self) -> list[str]:
        """The summary as people read it."""
        if not self.episodes:
            return ["no episode finished"]
        count = len(self.episodes)
        episodes = f"{count} episode{'s' * (count > 1)}"
        lines = [f"return    {format_mean(self.mean, self.sd, count)} over {episodes}"]
        distances = [one.distance_m for one in self.episodes if one.distance_m is not None]
        if distances:
            lines.append(f"distance  {np.mean(distances):.1f} m")
        if np.isfinite(self.latency_s(0.5)):
            p50, p99 = 1e3 * self.latency_s(0.5), 1e3 * self.latency_s(0.99)
            lines.append(f"latency   p50 {p50:.2f} ms, p99 {p99:.2f} ms from readings to command")
        lines.append(f"speed     {self.steps_per_s:.0f} steps/s")
        if self.policy is not None:
            lines += self.policy.lines()
        if walked := self.walked_m:
            lines.append(f"stops     {after_stops(walked, self.walk_m)}")
        if self.timeouts:
            lines.append(f"timeouts  {self.timeouts} steps under the safe command")
        if self.unmatched:
            lines.append(
                f"unmatched {self.unmatched} commands without a step or steps without a command:"
                " steps may have got the command of another one"
            )
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The `--json` form without task, model and seed, which the caller knows."""
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
            "mean": self.mean,
            "sd": self.sd,
            "steps_per_s": self.steps_per_s,
            "policy": None if self.policy is None else self.policy.as_dict(),
            "latency_p50_s": self.latency_s(0.5),
            "latency_p99_s": self.latency_s(0.99),
        }
