"""Messages with disturbed readings: numbers by channel id, or an image with its patches moved."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import Image, JointState

from an_control.disturbance import (
    DelayLine,
    DisturbanceSettings,
    ScheduledChange,
    iterate_scheduled_settings,
)
from an_control.ros.outputs import set_stamp, to_float64_array
from an_control.wiring import Readings, Wiring, WiringError
from an_control.wiring.checked_yaml import Description
from an_control.wiring.image import join_patches

CHANNELS_OF_PIXELS = 4


class MessageDisturber(Protocol):
    """The interface of an object that disturbs readings before they are written into a message.

    The scrambler is such an object.
    """

    @property
    def settings(self) -> DisturbanceSettings:
        """The settings of the disturbance in the current tick (control step)."""

    @property
    def is_message_new(self) -> bool:
        """Whether this tick's readings are new; False if the disturbance repeats old ones."""

    def disturb(
        self, values: NDArray[np.float32], ids: Sequence[str]
    ) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """Disturb the readings of a tick.

        Args:
            values: The readings (n,).
            ids: The ids (n,) of their channels.

        Returns:
            The disturbed readings (m,) and the ids (m,) of their channels. Channels may be removed
            or added.
        """


class ScrambledReadings:
    """A JointState message with disturbed readings: channel ids as names, readings as positions.

    Args:
        wiring: The robot's wiring, which names the channels.
    """

    accepts_noise = True

    def __init__(self, wiring: Wiring) -> None:
        ids = [channel.id for channel in wiring.channels]
        self._count = None if any("*" in id_ for id_ in ids) else len(ids)
        self.message = JointState()

    def check_settings(
        self, settings: DisturbanceSettings, schedule: Sequence[ScheduledChange] = ()
    ) -> None:
        """Check that a disturbance can be applied to channels that are numbers, not image patches.

        Args:
            settings: The disturbance: what is done on purpose to readings and robot.
            schedule: Changes of the disturbance within an episode.

        Raises:
            ValueError: A setting cannot be applied.
        """
        for stage in iterate_scheduled_settings(settings, schedule):
            stage.check_settings_fit_observation("scalar channels")
            if self._count is not None:
                stage.check_swap_count(self._count)

    def start_episode(self) -> None:
        """Do nothing, because no data of the previous episode is stored here."""

    def fill_message(self, readings: Readings, disturber: MessageDisturber, stamp_ns: int) -> None:
        """Disturb the readings of a tick and write them into the message.

        Args:
            readings: The undisturbed readings.
            disturber: The object that permutes, delays or removes readings, as its settings say.
            stamp_ns: The stamp of the tick.
        """
        values, ids = disturber.disturb(readings.values, readings.ids)
        # Left out, a channel would keep its previous reading in the policy node until that is old.
        present = set(ids)
        missing = [id_ for id_ in readings.ids if id_ not in present]
        self.message.name = [*ids, *missing]
        self.message.position = to_float64_array(np.append(values, np.full(len(missing), np.nan)))
        set_stamp(self.message.header.stamp, stamp_ns)


class ScrambledImage:
    """An image message with the camera's newest frame, in which patches are moved or missing.

    Missing patches are transparent.

    Args:
        wiring: The robot's wiring, which says how the image is cut into patches.

    Raises:
        WiringError: The wiring has several cameras.
    """

    accepts_noise = False

    def __init__(self, wiring: Wiring) -> None:
        if len(wiring.images) != 1:
            cameras = Description(f"{len(wiring.images)} cameras")
            raise WiringError(
                wiring.file, "channels", cameras, "one camera, to scramble its images"
            )
        image, (channel,) = wiring.images[0], wiring.channels
        self._image = image
        labels = image.make_patch_labels()
        self._place = {channel.id.replace("*", label): i for i, label in enumerate(labels)}
        self._names: tuple[str, ...] = ()
        self.start_episode()
        self._places = np.zeros(0, np.intp)
        height, width = (count * image.patch for count in image.rows_and_columns)
        step = CHANNELS_OF_PIXELS * width
        self.message = Image(height=height, width=width, encoding="rgba8", step=step)

    def check_settings(
        self, settings: DisturbanceSettings, schedule: Sequence[ScheduledChange] = ()
    ) -> None:
        """Check that a disturbance can be applied to the patches of an image.

        Args:
            settings: The disturbance: what is done on purpose to readings and robot.
            schedule: Changes of the disturbance within an episode.

        Raises:
            ValueError: A setting cannot be applied.
        """
        for stage in iterate_scheduled_settings(settings, schedule):
            stage.check_settings_fit_observation("images")
            stage.check_swap_count(len(self._place))

    def start_episode(self) -> None:
        """Forget the frames of the previous episode, which were stored to delay them."""
        self._late: DelayLine[np.ndarray] = DelayLine()

    def fill_message(self, readings: Readings, disturber: MessageDisturber, stamp_ns: int) -> None:
        """Disturb the patches of a tick, join them to a frame, and write that into the message.

        Args:
            readings: The undisturbed patches.
            disturber: The object that permutes, delays or removes readings, as its settings say.
            stamp_ns: The stamp of the tick.
        """
        seen = [self._place[name] for name in readings.ids]
        signals, names = disturber.disturb(np.array(seen, np.float32), readings.ids)
        frame = np.zeros((len(self._place), self._image.patch, self._image.patch), np.uint8)
        frame[seen] = readings.values[:, -1]
        late = self._late(frame, disturber.settings.delay.whole_number)
        set_stamp(self.message.header.stamp, stamp_ns)
        if not disturber.is_message_new:
            return
        if names is not self._names:
            self._names = names
            self._places = np.array([self._place[name] for name in names], np.intp)
        patches, alpha = np.zeros_like(frame), np.zeros_like(frame)
        patches[self._places] = late[signals.astype(np.intp)]
        alpha[self._places] = 255
        grid = self._image.rows_and_columns
        gray, there = join_patches(patches, grid), join_patches(alpha, grid)
        pixels = np.stack([gray, gray, gray, there], axis=-1)
        self.message.data = array.array("B", pixels.tobytes())


ScrambledMessage = ScrambledReadings | ScrambledImage
"""A message with disturbed readings, which is filled again at every tick."""


def make_scrambled_message(wiring: Wiring) -> ScrambledMessage:
    """Create the message object that the scrambler fills with disturbed readings and publishes.

    It is an image if the wiring has a camera, else a JointState.

    Raises:
        WiringError: The wiring has several cameras.
    """
    return ScrambledImage(wiring) if wiring.images else ScrambledReadings(wiring)
