"""Define what every policy is to those who run it: readings by channel id in, an action out.

The classes that implement `Policy` inherit from it, and with that the defaults for what only some
of them have. Ask the policy, never its type: ``policy.channel_state`` is None where it keeps
nothing by channel. What several policies share stands here as well: the checks of readings and
ids, the previous action, and the policy around another one, which passes on what it does not do.
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
    """A policy with N channels, A actions and, where it has attention, M queries."""

    model: Model
    nominal_ids: tuple[str, ...]
    """The task's channels in the environment's order; empty where the model does not say."""
    engine: str
    """What computes: ``numpy`` or ``numba``."""
    previous_action: np.ndarray
    """The previous action (A,) in [-1, 1]; set it where something else was sent."""
    reading_shape: tuple[int, ...] = ()
    """The shape of one channel's reading: () is a number, (stack, patch, patch) uint8 a patch."""
    permutation_invariant: bool = True
    """Whether it may get its channels in any order, and signals under any ids."""

    @abstractmethod
    def reset(self) -> None:
        """Start an episode: nothing is kept of the last one."""

    @abstractmethod
    def step(self, readings: Mapping[str, Any]) -> np.ndarray:
        """One tick on ``{channel id: reading}``; returns the action (A,) float32 in [-1, 1]."""

    @abstractmethod
    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """One tick on `values` (N, *reading_shape) of the channels `ids` (N,), in any order.

        ValueError where shapes differ or an id comes twice, TypeError for a wrong type of values.
        """

    def prepare(self) -> None:
        """Do what the next tick needs and no reading decides; for after the command.

        Changes no action.
        """
        return

    def ignore_next_tick(self) -> None:
        """No action in [-1, 1] stands for what was sent: the next tick is no evidence of moves."""
        return

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's channels, in the order of the attention's columns."""
        return self.nominal_ids

    @property
    def attention(self) -> np.ndarray | None:
        """The last step's attention (M, N), columns in `channel_order`."""
        return None

    @property
    def keys(self) -> np.ndarray | None:
        """Each channel's key (N, k) after the last step, rows in `channel_order`."""
        return None

    @property
    def messages(self) -> np.ndarray | None:
        """What each patch gives to the message (N, m) of the last step, rows in `channel_order`."""
        return None

    @property
    def channel_state(self) -> ChannelState | None:
        """What the policy keeps by channel id; None where it keeps nothing."""
        return None

    @property
    def recoveries(self) -> int:
        """How often the robot stood still and was pushed since the last reset."""
        return 0

    @property
    def monitor_report(self) -> MonitorReport | None:
        """What the identity monitor found by now; None where none watches."""
        return None


class ChannelState(Protocol):
    """The state that a policy keeps by channel id, for who moves signals between channels.

    Ids that the policy does not know are left out everywhere.
    """

    def reset_channels(self, ids: Sequence[str] | None = None) -> None:
        """Start these channels from zero state, or drop all; nothing else is reset."""

    def rename_channels(self, names: Mapping[str, str]) -> None:
        """Keep each state under another id, old to new; together these are the same ids."""

    def save_state(self) -> dict[str, np.ndarray]:
        """A copy of each channel's state, for `restore_state`."""

    def restore_state(self, states: Mapping[str, np.ndarray]) -> None:
        """Let these channels continue from saved states."""

    def identify_channels(self, ids: Sequence[str], channels: np.ndarray, least: float) -> None:
        """Let it be likely, by at least so many nats, that these ids carry the nominal `channels`
        (N,). Nothing where the neurons keep no such evidence."""

    def advance_channels(
        self, ids: Sequence[str], values: np.ndarray, previous: np.ndarray
    ) -> None:
        """A tick of these channels' state alone, on readings (N,) and the action (A,) before it."""


class MonitorReport(NamedTuple):
    """What the identity monitor found by now."""

    setting: Monitor
    lost: bool
    """Whether no assignment of slots to channels is known to be right."""
    moved: dict[str, str]
    """The channel whose signal each slot is believed to carry, where it is not its own."""
    rewires: int
    """How often signals were found to have moved, or to have been confused."""
    surprise: float
    """Nats a tick, lately, above what is usual."""
    late_ticks: int
    """By how many ticks the readings are late, as far as is known; the policy then gets what is
    predicted for now."""
    misfit: str
    """How the robot differs from the one that the model knows, so that no further signal is moved;
    empty while it seems to fit."""


def real_numbers(values: np.ndarray, count: int) -> np.ndarray:
    """The readings (count,) of so many ids, float32 or float64; ValueError for another shape,
    TypeError where they are no real numbers."""
    values = np.asarray(values)
    if values.dtype.char not in "fd":
        values = values.astype(np.float64, casting="same_kind")
    if values.ndim != 1 or len(values) != count:
        raise ValueError(f"values of shape {values.shape} for {count} ids")
    return values


def distinct(ids: Sequence[str]) -> tuple[str, ...]:
    """These ids; ValueError where one comes twice."""
    ids = tuple(ids)
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise ValueError(f"channel id {str(twice)!r} is given twice")
    return ids


class PreviousAction:
    """A policy's `previous_action`, checked when somebody sets it."""

    _previous: np.ndarray

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1], a copy; set it where something else was sent.

        ValueError for another shape or a value outside [-1, 1].
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
    """The same calls as `policy`, which acts on numbers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.model, self.engine, self.nominal_ids = policy.model, policy.engine, policy.nominal_ids
        self.permutation_invariant = policy.permutation_invariant

    def reset(self) -> None:
        """Start an episode: nothing is kept of the last one."""
        self.policy.reset()

    def step(self, readings: Mapping[str, float]) -> np.ndarray:
        """One tick on ``{channel id: value}``; returns the action (A,) float32 in [-1, 1]."""
        values = np.fromiter(readings.values(), np.float64, len(readings))
        return self.step_array(values, tuple(readings))

    @abstractmethod
    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """One tick on `values` (N,) of the channels `ids` (N,); errors as the policy's."""

    def prepare(self) -> None:
        """Work ahead for the next tick, see `Policy`."""
        self.policy.prepare()

    def ignore_next_tick(self) -> None:
        """See `Policy`."""
        self.policy.ignore_next_tick()

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1]; set it where something else was sent."""
        return self.policy.previous_action

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        self.policy.previous_action = action

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's channels; those of signals where a monitor matches them."""
        return self.policy.channel_order

    @property
    def attention(self) -> np.ndarray | None:
        """The policy's attention (M, N), columns in `channel_order`; None where it has none."""
        return self.policy.attention

    @property
    def keys(self) -> np.ndarray | None:
        """The policy's keys (N, k), rows in `channel_order`; None where it has none."""
        return self.policy.keys

    @property
    def channel_state(self) -> ChannelState | None:
        """The policy's own."""
        return self.policy.channel_state

    @property
    def recoveries(self) -> int:
        """How often the robot stood still and was pushed since the last reset."""
        return self.policy.recoveries
