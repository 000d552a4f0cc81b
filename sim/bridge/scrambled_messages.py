"""What the scrambler publishes: readings under the channels' names, or a camera's patches moved."""

from __future__ import annotations

import array
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
from sensor_msgs.msg import Image, JointState

from an_control.disturbance import Change, DisturbanceSettings, Disturber
from an_control.ros.outputs import doubles, set_stamp
from an_control.wiring import Readings, Wiring, WiringError
from an_control.wiring.errors import Shown
from an_control.wiring.image import put_together

FOR_IMAGES = ("shuffle", "drop")
"""The settings that can be done to an image."""
CHANNELS_OF_PIXELS = 4


class ScrambledMessage(Protocol):
    """The one message of the scrambler, filled anew at every tick."""

    message: Any

    def check(self, settings: DisturbanceSettings, schedule: Sequence[Change] = ()) -> None: ...
    def fill(self, readings: Readings, scramble: Disturber, stamp_ns: int) -> None: ...


def scrambled_message(wiring: Wiring) -> ScrambledMessage:
    """The message for a wiring's readings; WiringError where there are several cameras."""
    return ScrambledImage(wiring) if wiring.images else ScrambledReadings()


class ScrambledReadings:
    """Ids as names, readings as positions."""

    def __init__(self) -> None:
        self.message = JointState()

    def check(self, settings: DisturbanceSettings, schedule: Sequence[Change] = ()) -> None:
        """All settings can be done to readings."""

    def fill(self, readings: Readings, scramble: Disturber, stamp_ns: int) -> None:
        values, ids = scramble.apply(readings.values, readings.ids)
        self.message.name = list(ids)
        self.message.position = doubles(values)
        set_stamp(self.message.header.stamp, stamp_ns)


class ScrambledImage:
    """The camera's newest frame with its patches in other places; those that are lost are
    transparent, and so absent for whoever reads it."""

    def __init__(self, wiring: Wiring) -> None:
        if len(wiring.images) != 1:
            cameras = Shown(f"{len(wiring.images)} cameras")
            raise WiringError(
                wiring.file, "channels", cameras, "one camera, to scramble its images"
            )
        image, (channel,) = wiring.images[0], wiring.channels
        self._image = image
        labels = image.labels()
        self._place = {channel.id.replace("*", label): i for i, label in enumerate(labels)}
        self._names: tuple[str, ...] = ()
        self._places = np.zeros(0, np.intp)
        height, width = (count * image.patch for count in image.grid)
        step = CHANNELS_OF_PIXELS * width
        self.message = Image(height=height, width=width, encoding="rgba8", step=step)

    def check(self, settings: DisturbanceSettings, schedule: Sequence[Change] = ()) -> None:
        """ValueError naming a setting that cannot be done to an image."""
        plain = DisturbanceSettings()
        changed = {
            field.name: getattr(settings, field.name)
            for field in fields(settings)
            if getattr(settings, field.name) != getattr(plain, field.name)
        }
        for change in schedule:
            changed.update(change.values)
        for name, value in changed.items():
            if name not in FOR_IMAGES:
                allowed = f"for the images of a camera only {' and '.join(FOR_IMAGES)}"
                raise ValueError(f"{name}: {value} (allowed: {allowed})")

    def fill(self, readings: Readings, scramble: Disturber, stamp_ns: int) -> None:
        contents, names = scramble.apply(
            np.arange(len(readings.ids), dtype=np.float32), readings.ids
        )
        if names is not self._names:
            self._names = names
            self._places = np.array([self._place[name] for name in names], np.intp)
        image = self._image
        patches = np.zeros((len(self._place), image.patch, image.patch), np.uint8)
        alpha = np.zeros_like(patches)
        patches[self._places] = readings.values[contents.astype(np.intp), -1]
        alpha[self._places] = 255
        gray, there = put_together(patches, image.grid), put_together(alpha, image.grid)
        pixels = np.stack([gray, gray, gray, there], axis=-1)
        self.message.data = array.array("B", pixels.tobytes())
        set_stamp(self.message.header.stamp, stamp_ns)
