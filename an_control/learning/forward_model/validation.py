"""Validation of an identity monitor on episodes that were not used in its training.

The policy plays on the robot of its training, with and without the disturbances of its training,
and on other robots: with other mass and friction, with a lag, with sensors at half the rate. The
first episodes define the limits within which the forward model (the monitor's prediction network)
counts as explaining the readings (`FitLimits`). With these limits the monitor is then tried: it
must report no change of assignment (which signal arrives in which input slot) on any robot whose
signals stay in place, and must find signals that are permuted. Episodes are recorded once; halved
rates and permuted signals are made from the recordings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings, Permutation
from an_control.learning.forward_model.episodes import (
    EpisodeTrace,
    PolicyDriver,
    play_and_record_episode,
)
from an_control.learning.training_disturbances import (
    NO_DISTURBANCE,
    Fault,
    drop_unsupported_disturbances,
    make_disturber,
)
from an_control.load import make_policy
from an_control.monitor.costs import CostCalculator
from an_control.monitor.forward_model import ChangePrediction, FitLimits, ForwardModel
from an_control.monitor.monitor import IdentityMonitor
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.robot_fit import RobotFitEstimator
from an_control.monitor.settings import MONITOR
from an_control.policy import Model
from an_control.policy.sizes import MonitorValidation
from an_control_sim.gym.failure import FailureCounter

OTHERS = ("mass=1.3", "friction=0.5", "lag=0.5", "mass=1.3,friction=0.5,lag=0.5")
"""Disturbances that make other robots, if the environment can simulate them."""
ROBOT_TICKS = 1000
"""Number of ticks that are played on each robot."""
MOVE_EVERY = 50
"""Number of ticks between two permutations of all signals; each must be found in half as many."""
RARE = 1e-6
"""Probability per tick with which the best other assignment may reach the limit by chance."""
TAIL = 0.01
"""Share of the ticks, those with the largest gains, to which the exponential tail is fitted."""
CONFUSED = 4.0
"""Minimum gain in nats of all slots together for which the best other assignment is computed."""


def validate_monitor_and_add_result_to_model(
    env: gymnasium.Env[Any, Any],
    model: Model,
    faults: Iterable[Fault],
    seed: int,
    ticks: int = ROBOT_TICKS,
) -> Model:
    """Test a model's identity monitor in new episodes, and return the model with the result.

    The identity monitor detects signals that swap their input slots; for this it uses the model's
    forward model, which predicts the readings. The result is stored in `model.forward.validation`
    of the returned copy.

    Args:
        env: The environment of the task, with readings in the units of the model.
        model: A policy with a forward model.
        faults: The disturbances with which the forward model was trained.
        seed: Seed of the episodes and the permutations.
        ticks: Number of ticks to play with each disturbance. Changes of the robot, such as another
            mass, are disturbances too.

    Raises:
        ValueError: The model has no forward model to validate.
    """
    if model.forward is None:
        raise ValueError("no forward model to validate (an-control train-monitor makes one)")
    rng = np.random.default_rng([seed, ticks])

    def record_disturbed_traces(settings: DisturbanceSettings) -> list[EpisodeTrace]:
        return record_episodes_without_monitor(env, model, settings, ticks, rng)

    trained = record_disturbed_traces(NO_DISTURBANCE) + record_disturbed_traces(NO_DISTURBANCE)
    for fault in drop_unsupported_disturbances(env, dict.fromkeys(faults, 0.0)):
        trained += record_disturbed_traces(fault.settings)
    robots = [
        record_disturbed_traces(one.settings)
        for one in drop_unsupported_disturbances(env, dict.fromkeys(map(Fault, OTHERS), 0.0))
    ]
    unmoved, count = record_disturbed_traces(NO_DISTURBANCE), trained[0].readings.shape[1]
    limits = measure_forward_model_fit_limits(
        model, trained, [trace for robot in robots for trace in robot]
    )
    unproven = MonitorValidation(*limits, 0, 0.0, 0.0)
    forward = replace(model.forward, validation=unproven)
    watched = make_policy(replace(model, forward=forward), "match")
    assert isinstance(watched, MonitoredPolicy)
    monitor, alike = watched.monitor, ForwardModel(model).alike
    for held in (slice(None), slice(count // 2), slice(count // 2, None)):
        robots.append([halve_sensor_rate(trace, held) for trace in unmoved])
    traces = unmoved + [trace for robot in robots for trace in robot]
    false = sum(count_false_reassignments(monitor, alike, trace) for trace in traces)
    played = sum(len(trace.actions) for trace in traces)
    hours = played * (model.task.step_s or 1.0) / 3600.0
    found = measure_share_of_identified_signals(
        monitor, alike, record_disturbed_traces(NO_DISTURBANCE), rng
    )
    validation = MonitorValidation(*limits, played, round(false / hours, 1), round(found, 3))
    return replace(model, forward=replace(forward, validation=validation))


def record_episodes_without_monitor(
    env: gymnasium.Env[Any, Any],
    model: Model,
    settings: DisturbanceSettings,
    ticks: int,
    rng: np.random.Generator,
) -> list[EpisodeTrace]:
    """Record episodes in which the policy acts without its monitor.

    Episodes that fail are left out.

    Args:
        env: The environment.
        model: The policy.
        settings: Disturbances of the episodes.
        ticks: Number of ticks of all episodes together.
        rng: Source of all random numbers.

    Raises:
        BrokenEnvironmentError: Too many episodes failed.
    """
    driver, left, failures = PolicyDriver(model), ticks, FailureCounter()
    traces: list[EpisodeTrace] = []
    while left:
        driver.start_episode()
        disturber = make_disturber(len(model.task.channels), settings, rng)
        seed = int(rng.integers(*TRAINING_SEEDS))
        trace = failures.try_episode(
            play_and_record_episode, env, seed, driver, disturber, undisturbed=True, max_steps=left
        )
        if trace is not None:
            traces.append(trace)
            left -= len(trace.actions)
    return traces


def halve_sensor_rate(trace: EpisodeTrace, channels: slice) -> EpisodeTrace:
    """Imitate slow sensors: return a copy of an episode with readings held for two ticks.

    Args:
        trace: The recorded episode.
        channels: Slice of the channels that get a new reading only every second tick.
    """
    readings = trace.readings.copy()
    readings[1::2, channels] = readings[: len(readings) - 1 : 2, channels][: len(readings[1::2])]
    return trace._replace(readings=readings)


def count_false_reassignments(
    monitor: IdentityMonitor, alike_channels: np.ndarray, trace: EpisodeTrace
) -> int:
    """Count how often the monitor reports a permutation of signals where there is none.

    Args:
        monitor: The monitor to try.
        alike_channels: Matrix (N, N), True for pairs of channels that cannot be distinguished;
            confusing these is no error.
        trace: The recorded episode, in which all signals stay in place.
    """
    moves, before = 0, None
    for slots in _run_monitor_and_yield_assignments(monitor, trace.readings, trace.actions):
        if slots is not before:
            moves += not alike_channels[np.arange(len(slots)), slots].all()
            before = slots
    return moves


def measure_share_of_identified_signals(
    monitor: IdentityMonitor,
    alike_channels: np.ndarray,
    traces: Sequence[EpisodeTrace],
    rng: np.random.Generator,
) -> float:
    """Permute signals of recorded episodes; return the share (0..1) that the monitor identifies.

    All signals are permuted every 50 ticks, or more often if all episodes are short. A signal is
    identified if the monitor assigns it to the right channel halfway to the next permutation.

    Args:
        monitor: The monitor to try.
        alike_channels: Matrix (N, N), True for pairs of channels that cannot be distinguished;
            confusing these is no error.
        traces: Recorded episodes in which all signals stay in place.
        rng: Draws the permutations.
    """
    longest = max(len(trace.actions) for trace in traces)
    every = max(1, min(MOVE_EVERY, 2 * (longest - 1) // 3))
    moved = found = 0
    for trace in traces:
        steps, count = trace.readings.shape
        places = Permutation(count, rng)
        orders = np.array([places.draw_permutation() for _ in range(steps // every + 1)])
        orders[0] = np.arange(count)
        carried = np.repeat(orders, every, 0)[:steps]
        """(T, N) the channel whose signal each slot carries."""
        readings = np.take_along_axis(trace.readings, carried, 1)
        for tick, slots in enumerate(
            _run_monitor_and_yield_assignments(monitor, readings, trace.actions)
        ):
            if tick > every and tick % every == every // 2:
                before, now = carried[tick - every], carried[tick]
                have_moved = ~alike_channels[before, now][np.argsort(now)]  # by channel
                moved += int(have_moved.sum())
                found += int((have_moved & alike_channels[np.arange(count), now[slots]]).sum())
    return found / moved if moved else 0.0


def _run_monitor_and_yield_assignments(
    monitor: IdentityMonitor, readings: np.ndarray, actions: np.ndarray
) -> Iterator[np.ndarray]:
    """Run the monitor over an episode; yield after each tick the slot (N,) of each channel."""
    monitor.reset()
    for tick in range(len(actions)):
        before = actions[tick - 1] if tick else np.zeros_like(actions[0])
        monitor.step(readings[tick].astype(np.float32), before.astype(np.float32))
        yield monitor.slot_by_channel


def measure_forward_model_fit_limits(
    model: Model, trained_traces: Sequence[EpisodeTrace], other_traces: Sequence[EpisodeTrace]
) -> FitLimits:
    """Measure the limits by which the monitor decides whether a forward model fits a robot.

    Args:
        model: A policy with a forward model.
        trained_traces: Episodes on the robot of the training, with the disturbances of the
            training.
        other_traces: Episodes on changed robots, for example with another mass. Those that the
            forward model still predicts well help to set `min_gain`, so that the monitor reports no
            swapped signals on such robots.

    Returns:
        Three limits. `max_excess`: by how many nats the mean negative log-likelihood of a tick may
        exceed its usual value. `min_gain`: by how many nats another assignment of signals to
        channels must raise the log-likelihood before the monitor accepts it. `slow`: how many
        sensors may seem slower than the control rate.
    """
    forward = ForwardModel(model)
    costs, count = CostCalculator(forward), len(forward.channels)
    means = np.concatenate(
        [
            _compute_running_means(_compute_excess_cost_of_each_tick(forward, costs, one))
            for one in trained_traces
        ]
    )
    usual = float(np.quantile(means, 0.999)) if len(means) else 0.0
    max_excess = 1.25 * max(usual, 0.0) + 0.25 * count
    fitting = [
        *trained_traces,
        *(
            one
            for one in other_traces
            if _does_model_explain_trace(forward, costs, one, max_excess)
        ),
    ]
    gains = np.concatenate(
        [_compute_gains_of_best_wrong_assignment(forward, costs, one) for one in fitting]
    )
    min_gain = max(MONITOR.fit.min_gain, estimate_chance_log_likelihood_gain(gains))
    slow = max(_find_largest_slow_sensor_count(forward, one) for one in trained_traces)
    return FitLimits(round(max_excess, 1), round(min_gain, 1), slow)


def _find_largest_slow_sensor_count(forward: ForwardModel, trace: EpisodeTrace) -> int:
    """Return the largest number of sensors that at one time seemed slower than the control rate."""
    limits, still = FitLimits(0.0, 0.0, 0), forward.still_values
    fit = RobotFitEstimator(limits, len(forward.channels), still)
    most, before = 0, np.full(len(forward.channels), np.nan)
    for readings in trace.readings:
        fit.update_slow_sensors(readings == before, readings, readings)
        most, before = max(most, len(fit.slow)), readings
    return most


def estimate_chance_log_likelihood_gain(gains: np.ndarray) -> float:
    """Estimate a gain that wrong assignments reach by chance at only one of a million ticks.

    An assignment says which input slot carries which channel. Its gain, in nats, is the
    log-likelihood of the readings minus that under the right assignment. An exponential tail,
    fitted to the largest of the given gains, extrapolates to the returned one.

    Args:
        gains: Gain of the best wrong assignment at each tick (T,) of episodes in which every signal
            stayed in its input slot.
    """
    threshold = float(np.quantile(gains, 1.0 - TAIL))
    above = gains[gains > threshold]
    mean = float(above.mean()) - threshold if len(above) else 0.0
    return threshold + mean * math.log(TAIL / RARE)


def _compute_excess_cost_of_each_tick(
    forward: ForwardModel, costs: CostCalculator, trace: EpisodeTrace
) -> np.ndarray:
    """Return by how many nats the cost of each tick exceeds its usual value, as an array (T,).

    The cost is the negative log-likelihood of the tick's readings, if each slot carries its own
    channel's signal.
    """
    readings, actions = trace.readings.astype(np.float32), trace.actions.astype(np.float32)
    prediction = forward.predict_changes(readings[:-1], actions)
    own = costs.compute_reading_costs(np.diff(readings, axis=0), readings[1:], prediction)
    found: np.ndarray = (own - forward.usual_costs).sum(1)
    return found


def _compute_running_means(excess_costs: np.ndarray) -> np.ndarray:
    """Return running means (T - W,) of the excess cost (T,), over the monitor's W ticks."""
    means, mean, ticks = [], 0.0, MONITOR.fit.ticks
    for tick, nats in enumerate(excess_costs.tolist(), start=1):
        mean += (nats - mean) / min(tick, ticks)
        means.append(mean)
    return np.array(means[ticks:])


def _does_model_explain_trace(
    forward: ForwardModel, costs: CostCalculator, trace: EpisodeTrace, max_excess: float
) -> bool:
    """Return whether the forward model explains the readings of a recorded episode."""
    means = _compute_running_means(_compute_excess_cost_of_each_tick(forward, costs, trace))
    return len(means) > 0 and float(np.median(means)) <= max_excess


def _compute_gains_of_best_wrong_assignment(
    forward: ForwardModel, costs: CostCalculator, trace: EpisodeTrace
) -> np.ndarray:
    """Return the gains (T,) in nats of the best wrong assignment of slots over the right one.

    A gain is 0 where no other assignment is much better.
    """
    readings, actions = trace.readings.astype(np.float32), trace.actions.astype(np.float32)
    prediction = forward.predict_changes(readings[:-1], actions)
    expected, everyone = readings[:-1] + prediction.change, np.arange(readings.shape[1])
    gains = np.zeros(len(actions))
    for tick in range(len(actions)):
        found = np.zeros((len(everyone),) * 2)
        single = slice(tick, tick + 1)
        reads = readings[tick + 1 : tick + 2]
        now = ChangePrediction(*(part[single] for part in prediction))
        costs.add_tick_costs_to_matrix(found, reads, expected[single], reads, now)
        present = np.trace(found)
        if present - found.min(0).sum() > CONFUSED:
            moved = costs.compute_costs_with_move_penalty(found, everyone)
            gains[tick] = present - moved[costs.solve_assignment(moved), everyone].sum()
    return gains
