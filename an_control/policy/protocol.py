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
    """A policy with N channels, A actions and, if it has attention, M queries."""

    model: Model
    """The model that the policy was made from."""
    nominal_ids: tuple[str, ...]
    """The ids of the task's channels in the environment's order; empty if the model does not
    say."""
    engine: str
    """The engine that computes the policy: ``numpy`` or ``numba``."""
    previous_action: np.ndarray
    """The previous action (A,) in [-1, 1]; set it if another action was sent to the robot."""
    reading_shape: tuple[int, ...] = ()
    """The shape of one channel's reading: () for a number, (stack, patch, patch) for a uint8
    patch."""
    permutation_invariant: bool = True
    """Whether the channels may come in any order, and signals under any ids."""

    @abstractmethod
    def reset(self) -> None:
        """Start an episode: forget everything about the last one."""

    @abstractmethod
    def step(self, readings: Mapping[str, Any]) -> np.ndarray:
        """Compute one tick and return the action (A,) float32 in [-1, 1].

        Args:
            readings: The reading of each channel by id, a number or a patch of `reading_shape`.
        """

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

    def prepare(self) -> None:
        """Do work for the next tick that depends on no reading; call it after the command was sent.

        It changes no action.
        """
        return

    def ignore_next_tick(self) -> None:
        """Exclude the next tick from the monitor's evidence.

        Call it if no action in [-1, 1] stands for the command that was sent.
        """
        return

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The channel ids of the last step, in the order of the attention's columns."""
        return self.nominal_ids

    @property
    def attention(self) -> np.ndarray | None:
        """The attention (M, N) of the last step, columns in `channel_order`, or None."""
        return None

    @property
    def keys(self) -> np.ndarray | None:
        """The keys (N, k) of the channels after the last step, rows in `channel_order`, or None."""
        return None

    @property
    def messages(self) -> np.ndarray | None:
        """The contributions (N, m) of image patches to the last step's message, or None.

        Rows are in `channel_order`.
        """
        return None

    @property
    def channel_state(self) -> ChannelState | None:
        """The state that the policy keeps by channel id; None if it keeps none."""
        return None

    @property
    def recoveries(self) -> int:
        """The number of recoveries, pushes of a robot that stood still, since the last reset."""
        return 0

    @property
    def monitor_report(self) -> MonitorReport | None:
        """The present findings of the identity monitor; None without a monitor."""
        return None


class ChannelState(Protocol):
    """The state that a policy keeps by channel id, for code that moves signals between channels.

    All methods ignore ids that the policy does not know.
    """

    def reset_channels(self, ids: Sequence[str] | None = None) -> None:
        """Reset these channels to zero state, or drop all channels; nothing else is reset."""

    def rename_channels(self, names: Mapping[str, str]) -> None:
        """Move each state from an old id to a new one.

        The renamed ids must together be the same ids as before.
        """

    def save_state(self) -> dict[str, np.ndarray]:
        """Return a copy of each channel's state by id, for `restore_state`."""

    def restore_state(self, states: Mapping[str, np.ndarray]) -> None:
        """Set the state of these channels to saved states."""

    def identify_channels(self, ids: Sequence[str], channels: np.ndarray, least: float) -> None:
        """Tell the policy which nominal channels these ids carry.

        Does nothing if the policy keeps no evidence of that.

        Args:
            ids: Channel ids (N,).
            channels: Indices (N,) of the nominal channels.
            least: Nats that the evidence is raised to, at least.
        """

    def advance_channels(
        self, ids: Sequence[str], values: np.ndarray, previous: np.ndarray
    ) -> None:
        """Advance the state of these channels by one tick without computing an action.

        Args:
            ids: Channel ids (N,).
            values: Their readings (N,).
            previous: The action (A,) before these readings.
        """


class MonitorReport(NamedTuple):
    """The present findings of the identity monitor."""

    setting: Monitor
    lost: bool
    """Whether no assignment of input slots to channels is known to be right."""
    moved: dict[str, str]
    """By input slot the channel whose signal it is estimated to carry, if that is not its own."""
    rewires: int
    """The number of detected moves and corrections of the assignment since the last reset."""
    surprise: float
    """The excess negative log-likelihood of the readings in nats a tick, as a running mean."""
    late_ticks: int
    """The estimated delay of the readings in ticks; if it is over 0 the policy gets predicted
    readings."""
    misfit: str
    """How the robot differs from the model's, so that the monitor moves no signal; "" if it
    fits."""


def check_readings(values: np.ndarray, count: int) -> np.ndarray:
    """Return the readings as an array (count,), float32 or float64.

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


def check_unique(ids: Sequence[str]) -> tuple[str, ...]:
    """Return the ids as a tuple; raise ValueError if one occurs twice."""
    ids = tuple(ids)
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise ValueError(f"channel id {str(twice)!r} is given twice")
    return ids


class PreviousAction:
    """A mixin with the property `previous_action`, which is checked when it is set."""

    _previous: np.ndarray

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1], a copy.

        Set it if another action was sent to the robot.

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
    """A policy for scalar channels around another one, to which it passes on all calls by default.

    Args:
        policy: The inner policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.model, self.engine, self.nominal_ids = policy.model, policy.engine, policy.nominal_ids
        self.permutation_invariant = policy.permutation_invariant

    def reset(self) -> None:
        """Start an episode: forget everything about the last one."""
        self.policy.reset()

    def step(self, readings: Mapping[str, float]) -> np.ndarray:
        """Compute one tick from readings by channel id and return the action (A,) float32."""
        values = np.fromiter(readings.values(), np.float64, len(readings))
        return self.step_array(values, tuple(readings))

    @abstractmethod
    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick from `values` (N,) of the channels `ids` (N,).

        Raises what the inner policy raises.
        """

    def prepare(self) -> None:
        """Do work for the next tick that depends on no reading; see `Policy.prepare`."""
        self.policy.prepare()

    def ignore_next_tick(self) -> None:
        """Exclude the next tick as evidence of rewiring; see `Policy.ignore_next_tick`."""
        self.policy.ignore_next_tick()

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1]; set it if another action was sent to the robot."""
        return self.policy.previous_action

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        self.policy.previous_action = action

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The channel ids of the last step, in the order of the attention's columns.

        With a monitor set to "match" these are the ids of the signals.
        """
        return self.policy.channel_order

    @property
    def attention(self) -> np.ndarray | None:
        """The inner policy's attention (M, N), columns in `channel_order`; None if it has none."""
        return self.policy.attention

    @property
    def keys(self) -> np.ndarray | None:
        """The inner policy's keys (N, k), rows in `channel_order`; None if it has none."""
        return self.policy.keys

    @property
    def channel_state(self) -> ChannelState | None:
        """The inner policy's state by channel id; None if it keeps none."""
        return self.policy.channel_state

    @property
    def recoveries(self) -> int:
        """The number of recoveries, pushes of a robot that stood still, since the last reset."""
        return self.policy.recoveries
