"""The interface of all policies: readings by channel id in, an action out.

Classes that implement `Policy` inherit from it, and get defaults for what only some policies have.
Callers ask the policy, never its type: ``policy.channel_state`` is None for a policy that keeps no
state by channel. Code that several policies share is here too: the checks of readings and ids, the
previous action, and the base class of a policy around another one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from an_control.policy.model_file import Model
    from an_control.policy.sizes import Monitor


class Policy(Protocol):
    """The interface of a policy, which turns the readings of N channels into A actions.

    If a policy has attention, it has M queries. A policy has a state of its own: several threads
    must not step the same one.
    """

    model: Model
    """The model that the policy was made from."""
    nominal_ids: tuple[str, ...]
    """The ids of the task's channels in the environment's order; empty if the model does not
    say."""
    engine: str
    """The name of the engine that computes the policy, such as ``numpy`` or ``numba``."""
    previous_action: np.ndarray
    """The previous action (A,) in [-1, 1]; set it if another action was sent to the robot."""
    reading_shape: tuple[int, ...] = ()
    """The shape of one channel's reading: () for a number, (stack, patch, patch) for a uint8
    patch."""
    permutation_invariant: bool = True
    """Whether the channels may come in any order, and each sensor's signal under any channel id."""

    @abstractmethod
    def reset(self) -> None:
        """Start an episode: reset all state from the last one."""

    def step(self, readings: Mapping[str, Any]) -> np.ndarray:
        """Compute one tick and return the action (A,) float32 in [-1, 1].

        Args:
            readings: The reading of each channel by id, a number or a patch of `reading_shape`; a
                number that is not finite counts as missing.

        Raises:
            TypeError: The readings are no mapping.
        """
        if not isinstance(readings, Mapping):
            kind = type(readings).__name__
            raise TypeError(
                f"readings of type {kind}; allowed is a mapping from channel id to number"
            )
        values = np.fromiter(readings.values(), np.float64, len(readings))
        return self.step_array(values, tuple(readings))

    @abstractmethod
    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick from arrays and return the action (A,) float32 in [-1, 1].

        Args:
            values: Readings (N, *reading_shape).
            ids: Their channel ids (N,), in any order.

        Raises:
            ValueError: The shapes differ, or an id occurs twice.
            TypeError: The values have a wrong type.
        """

    def predict(
        self,
        observation: np.ndarray,
        state: tuple[()] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, tuple[()]]:
        """Compute one tick from an observation, with the signature of stable-baselines3.

        So stable-baselines3's `evaluate_policy` can play the policy, in one environment made by
        `an_control_sim.make_environment`.

        Args:
            observation: Readings of the task's channels in the environment's order
                (N, *reading_shape), or a batch of one such observation.
            state: None at the start of an episode, then what the call before has returned. The
                policy keeps its state itself.
            episode_start: True, or an array of one True, at the start of an episode.
            deterministic: Not used: the action is always deterministic.

        Returns:
            The action (A,) in [-1, 1], or (1, A) for a batch; and the state for the next call.

        Raises:
            ValueError: The observation has another shape.
        """
        values = np.asarray(observation)
        one = (len(self.nominal_ids), *self.reading_shape)
        batched = values.shape == (1, *one)
        if not batched and values.shape != one:
            raise ValueError(
                f"observation of shape {values.shape}; allowed are {one} and {(1, *one)}"
            )
        if state is None or np.any(episode_start):
            self.reset()
        action = self.step_array(values[0] if batched else values, self.nominal_ids)
        return action[None] if batched else action, ()

    def prepare_next_tick(self) -> None:
        """Compute in advance what the next tick needs besides its readings.

        Call it after the command was sent, to save time when the readings arrive. It changes no
        action.
        """
        return

    def ignore_next_readings_for_wiring(self) -> None:
        """Do not draw conclusions about the sensors' wiring from the next tick's readings.

        Call it if the command that was sent corresponds to no action in [-1, 1], because a monitor
        of rewired sensors then cannot predict these readings.
        """
        return

    def restart_monitor(self) -> None:
        """Restart the monitor of rewired sensors, but keep its estimate of which sensor is which.

        Call it when the scaling of the readings changes. The policy keeps its state.
        """
        return

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The channel ids of the last step, in the order of the columns of `attention`."""
        return self.nominal_ids

    @property
    def attention(self) -> np.ndarray | None:
        """The attention weights (M, N) of the last step, or None without attention.

        The rows are queries; the columns are in `channel_order`.
        """
        return None

    @property
    def keys(self) -> np.ndarray | None:
        """The attention keys (N, k) of the channels after the last step; None without attention.

        The rows are in `channel_order`.
        """
        return None

    @property
    def patch_vectors(self) -> np.ndarray | None:
        """The value vectors (N, m) of the last step's image patches; None without image patches.

        Their weighted sums make up the attention message. The rows are in `channel_order`.
        """
        return None

    @property
    def channel_state(self) -> ChannelState | None:
        """The interface to read and change each channel's state; None if the policy keeps none."""
        return None

    @property
    def recovery_count(self) -> int:
        """The number of recoveries since the last reset; 0 if the policy has no recovery.

        A recovery is a short series of random actions, which frees a robot that stands still.
        """
        return 0

    @property
    def monitor_report(self) -> MonitorReport | None:
        """The present findings of the monitor of rewired sensors; None without a monitor."""
        return None


class ChannelState(Protocol):
    """The interface to the neuron states that a policy keeps by channel id.

    Code that moves a sensor signal to another channel uses this interface to move the channel's
    state too. All methods ignore ids that the policy does not know.
    """

    def reset_channels(self, ids: Sequence[str] | None = None) -> None:
        """Reset the states of some channels; nothing else is reset.

        Args:
            ids: The ids of the channels, whose states become zero; None removes the states of all
                channels.
        """

    def rename_channels(self, names: Mapping[str, str]) -> None:
        """Move each state from an old channel id to a new one.

        Args:
            names: A mapping from old id to new id. The old ids and the new ids must be the same
                set.
        """

    def save_state(self) -> dict[str, np.ndarray]:
        """Return a copy of each channel's state by id, for `restore_state`."""

    def restore_state(self, states: Mapping[str, np.ndarray]) -> None:
        """Set the states of some channels.

        Args:
            states: The state by channel id, as `save_state` returned it.
        """

    def increase_identity_evidence(
        self, ids: Sequence[str], channels: np.ndarray, min_nats: float
    ) -> None:
        """Raise the policy's evidence of which channel's signal arrives under each id to a minimum.

        The attention of some policies holds a number in nats for each id and channel: the evidence
        that the channel's signal arrives under the id. Other policies ignore the call.

        Args:
            ids: (N,) channel ids.
            channels: (N,) for each id the index, in the task's order, of the channel whose signal
                arrives under it. Only the evidence for this channel is changed.
            min_nats: The minimum, to which the evidence is set if it is lower.
        """

    def advance_channel_states(
        self, ids: Sequence[str], values: np.ndarray, previous_action: np.ndarray
    ) -> None:
        """Advance the states of some channels by one tick without computing an action.

        With it a channel's state can be recomputed from earlier readings, after `restore_state`.

        Args:
            ids: (N,) the ids of the channels.
            values: (N,) their readings.
            previous_action: (A,) the action before these readings.
        """


class MonitorReport(NamedTuple):
    """The present findings of the monitor that detects rewired sensors."""

    setting: Monitor
    """What happens if a signal moves: "off", "reset" or "match" (see `load_policy`)."""
    lost: bool
    """Whether it is unknown which input slot (position at which readings arrive) feeds which
    channel."""
    moved: dict[str, str]
    """For each input slot that feeds another channel than it is wired to: the id of the slot, and
    the id of that channel."""
    rewires: int
    """The number of times since the last reset that the monitor detected moved signals or corrected
    its findings."""
    excess_nll: float
    """How far the negative log-likelihood of the readings is above its usual value, in nats a tick,
    as a running mean."""
    late_ticks: int
    """The estimated delay of the readings in ticks; if the delay is over 0, the policy gets
    predicted readings."""
    misfit: str
    """Description of how the robot differs from the one that the model was trained on, which is why
    the monitor moves no signal; "" if the robot fits."""
    offsets: dict[str, float]
    """The constant offsets of sensors that the monitor subtracts from the readings, by channel."""
    waiting: str = ""
    """Why the policy does not act yet, although it computes the actions; "" if it acts."""


def check_and_convert_readings(values: np.ndarray, count: int) -> np.ndarray:
    """Check the readings of a tick, and return them as an array (count,) float32 or float64.

    Args:
        values: The readings.
        count: The number of channel ids, which the number of readings must equal.

    Raises:
        ValueError: The shape is not (count,).
        TypeError: The values are not real numbers.
    """
    values = np.asarray(values)
    if values.dtype.char not in "fd":
        values = values.astype(np.float64, casting="same_kind")
    if values.ndim != 1 or len(values) != count:
        raise ValueError(f"values of shape {values.shape} for {count} ids")
    return values


def check_unique_ids(ids: Sequence[str]) -> tuple[str, ...]:
    """Check that channel ids are different, and return them as a tuple.

    Raises:
        ValueError: An id occurs twice.
    """
    ids = tuple(ids)
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise ValueError(f"channel id {str(twice)!r} is given twice")
    return ids


def check_and_order_readings(
    values: np.ndarray, ids: Sequence[str], order: tuple[str, ...]
) -> np.ndarray:
    """Check the readings of a tick, and return them in a given order of the channels.

    The result is an array (N,) float64, with NaN where a reading is missing.

    Args:
        values: The readings.
        ids: The channel id of each reading.
        order: The channel ids (N,) in the wanted order.

    Raises:
        ValueError: The lengths differ, or an id occurs twice.
        TypeError: The values are not real numbers.
    """
    values = check_and_convert_readings(values, len(ids)).astype(np.float64)
    if ids is order or tuple(ids) == order:
        return values
    given = dict(zip(check_unique_ids(ids), values.tolist(), strict=True))
    return np.array([given.get(name, np.nan) for name in order])


class PreviousActionMixin:
    """A mixin with the property `previous_action`, which checks every action that is set."""

    _previous: np.ndarray

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1], a copy.

        Set it if the robot got another action than the policy has returned.

        Raises:
            ValueError: An action of another shape, or with a value outside [-1, 1], is set.
        """
        return self._previous.copy()

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        action = np.asarray(action, np.float32)
        if action.shape != self._previous.shape or not (np.abs(action) <= 1.0).all():
            raise ValueError(
                f"previous action {action!r} is not of shape {self._previous.shape} in [-1, 1]"
            )
        self._previous = action.copy()


class WrappingPolicy(Policy):
    """A base class for policies that wrap another policy, for example with a monitor.

    By default all calls are delegated to the inner policy. Both policies are for scalar channels.

    Args:
        policy: The inner policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.model, self.engine, self.nominal_ids = policy.model, policy.engine, policy.nominal_ids
        self.permutation_invariant = policy.permutation_invariant

    def reset(self) -> None:
        """Start an episode: reset all state from the last one."""
        self.policy.reset()

    @abstractmethod
    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick and return the action (A,).

        It raises the same errors as the inner policy.

        Args:
            values: (N,) the readings.
            ids: (N,) the channel id of each reading.
        """

    def prepare_next_tick(self) -> None:
        """Compute in advance what the next tick needs besides its readings.

        Call it after the command was sent, to save time when the readings arrive.
        """
        self.policy.prepare_next_tick()

    def ignore_next_readings_for_wiring(self) -> None:
        """Do not draw conclusions about the sensors' wiring from the next tick's readings.

        Call it if the command that was sent corresponds to no action in [-1, 1], because a monitor
        of rewired sensors then cannot predict these readings.
        """
        self.policy.ignore_next_readings_for_wiring()

    def restart_monitor(self) -> None:
        """Restart the monitor of rewired sensors, but keep its estimate of which sensor is which.

        Call it when the scaling of the readings changes. The policy keeps its state.
        """
        self.policy.restart_monitor()

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1].

        Set it if the robot got another action than the policy has returned.
        """
        return self._get_previous_action()

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        self._set_previous_action(action)

    def _get_previous_action(self) -> np.ndarray:
        """Return the previous action (A,)."""
        return self.policy.previous_action

    def _set_previous_action(self, action: np.ndarray) -> None:
        """Take another action (A,) as the previous one, because the robot got it."""
        self.policy.previous_action = action

    @property
    def _acting_policy(self) -> Policy:
        """The policy whose actions are sent to the robot: by default the inner policy."""
        return self.policy

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The channel ids of the last step, in the order of the columns of `attention`.

        If a monitor has assigned signals to other channels, these are the ids after that.
        """
        return self._acting_policy.channel_order

    @property
    def attention(self) -> np.ndarray | None:
        """The attention weights (M, N) of the policy that acts; None if it has no attention.

        The rows are queries; the columns are in `channel_order`.
        """
        return self._acting_policy.attention

    @property
    def keys(self) -> np.ndarray | None:
        """The attention keys (N, k) of the policy that acts; None if it has no attention.

        The rows are in `channel_order`.
        """
        return self._acting_policy.keys

    @property
    def channel_state(self) -> ChannelState | None:
        """The interface to the inner policy's state of each channel; None if it keeps none."""
        return self.policy.channel_state

    @property
    def recovery_count(self) -> int:
        """The number of recoveries since the last reset; 0 if the policy has no recovery.

        A recovery is a short series of random actions, which frees a robot that stands still.
        """
        return self.policy.recovery_count
