"""Disturbances of image patches, each of which is a channel whose reading is a stack of frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.disturbance.disturber import DelayLine, Disturber
from an_control.disturbance.settings import DisturbanceSettings, RobotStop


class PatchDisturber:
    """Object that disturbs N image patches (N, f, p, p): stacks of f frames of p x p pixels.

    Each input slot (the place at which a patch arrives) keeps a stack of its newest f frames. When
    patches move to other slots, their older frames stay behind. So for some ticks a stack mixes
    frames of two patches. When a missing slot comes back, copies of its newest frame fill its
    stack.

    Args:
        disturber: The disturber of the patches' channels, which decides the disturbances.

    Raises:
        ValueError: A setting cannot disturb image patches.
    """

    def __init__(self, disturber: Disturber) -> None:
        disturber.check_settings_fit_observation("image patches")
        self._disturber = disturber
        self._carried: list[dict[str, int]] = []
        self._late: DelayLine[np.ndarray] = DelayLine()
        self._stack: np.ndarray | None = None
        self._shown: tuple[np.ndarray, tuple[str, ...]] | None = None

    @property
    def settings(self) -> DisturbanceSettings:
        """The settings of the present step."""
        return self._disturber.settings

    @property
    def shuffle_count(self) -> int:
        """How many times the signals have been permuted among the input slots in this episode."""
        return self._disturber.shuffle_count

    @property
    def has_message_arrived(self) -> bool:
        """Whether a message arrived in the newest tick; if not, `disturb` repeated its result."""
        return self._disturber.has_message_arrived

    def draw_robot_stop(self, step_s: float) -> RobotStop | None:
        """Choose at random the period of this episode in which the robot is stopped; return it.

        Call it once after the disturber's `start_episode`. The result is None if the settings have
        no stop.

        Args:
            step_s: The duration of one step in seconds.
        """
        return self._disturber.draw_robot_stop(step_s)

    def disturb(
        self, patches: np.ndarray, channels: Sequence[str]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Disturb the patches of one tick, and return what arrives at the policy.

        Args:
            patches: The patches (N, f, p, p).
            channels: Their channel ids (N,).

        Returns:
            A pair: the disturbed patches (m, f, p, p) by input slot, and the slots' ids (m,).
        """
        numbers, ids = self._disturber.disturb(np.arange(len(channels), dtype=np.float32), channels)
        newest = self._late(patches, self.settings.delay.whole_number)
        if self._shown is not None and not self.has_message_arrived:
            return self._shown
        self._shown = self._select_slot_patches(
            self._update_and_get_received_stacks(newest), numbers, ids
        )
        return self._shown

    def _update_and_get_received_stacks(self, sent_stacks: np.ndarray) -> np.ndarray:
        """Return the stacks (N, f, p, p) of frames that the receiver has after this tick's message.

        If no message can be lost or repeated, they are the sent stacks. Otherwise the receiver adds
        the newest sent frame to its own stacks. If the message repeats an earlier one, it adds its
        newest frame once more.

        Args:
            sent_stacks: (N, f, p, p) the stacks that are sent in this tick.
        """
        if self._stack is None or not (self.settings.lose or self.settings.repeat):
            self._stack = sent_stacks
        else:
            frame = sent_stacks if self._disturber.is_message_new else self._stack
            self._stack = np.concatenate([self._stack[:, 1:], frame[:, -1:]], axis=1)
        return self._stack

    def _select_slot_patches(
        self, patches: np.ndarray, signal_indices: np.ndarray, ids: tuple[str, ...]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the patches (m, f, p, p) in the order of the input slots, and the slots' ids.

        When signals move to other slots, frames from before the move stay in the slots in which
        they arrived.

        Args:
            patches: (N, f, p, p) the patches by signal.
            signal_indices: (m,) for each slot, the index in `patches` of the signal that it carries
                now.
            ids: (m,) the ids of the slots.
        """
        places = signal_indices.astype(np.intp)
        now = dict(zip(ids, places.tolist(), strict=True))
        shown, frames = patches[places], patches.shape[1]
        history = [*self._carried[:1] * (frames - 1 - len(self._carried)), *self._carried]
        seen = np.ones(len(ids), bool)
        for age, before in enumerate(reversed(history), start=1):
            if before != now or not seen.all():
                seen &= [name in before for name in ids]
                older = patches[[before.get(name, 0) for name in ids], -1 - age]
                shown[:, -1 - age] = np.where(seen[:, None, None], older, shown[:, -age])
        self._carried = [*self._carried, now][-(frames - 1) :] if frames > 1 else []
        return shown, ids
