"""The wiring file as it should be: a diagnosis written into the YAML, all else left as it is.

Values are replaced where they stand, so comments and layout stay. What no line of a wiring can
repair, as a dead motor, stays as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from an_control.commissioning.doctor.wires import Recording, Wires
from an_control.wiring import Wiring
from an_control.wiring.messages import parse_field


class Repair:
    """A wiring's text, and what could not be written into it.

    Args:
        text: of the file.
        wiring: the same, read.
        recording: of the wiring's channels.
        places: (A,) of each actuator of the wiring its place in the model's action.
    """

    def __init__(
        self, text: str, wiring: Wiring, recording: Recording, places: Sequence[int] | None
    ) -> None:
        self.before = self.text = text
        self._wiring, self._recording = wiring, recording
        self._places = list(range(len(wiring.command.names))) if places is None else list(places)
        self.left: list[str] = []
        """What the text cannot say, one sentence each."""

    def write(self, wires: Wires) -> None:
        """Write these wires into the text."""
        self._write_channels(wires)
        self._write_actuators(wires)

    @property
    def diff(self) -> str:
        """The changes as a unified diff, "" where there are none."""
        name = self._wiring.file
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.text.splitlines(keepends=True),
            name, f"{name} (corrected)", n=1,
        )  # fmt: skip
        return "".join(lines)

    def _write_channels(self, wires: Wires) -> None:
        recording = self._recording
        ids = {id_: place for place, id_ in enumerate(recording.ids)}
        entries = {one.id: one for one in self._wiring.channels}
        for config in self._wiring.channels:
            before, star, after = config.id.partition("*")
            members = [
                place
                for id_, place in ids.items()
                if id_ == config.id
                or (star and id_.startswith(before) and id_.endswith(after) and id_ not in entries)
            ]
            if not members:
                continue
            slots, own = wires.slots[members], np.array(members)
            factor = wires.scale[members] / recording.scale[members]
            shift = wires.offset[members]
            same = np.allclose(factor, factor[0]) and np.allclose(shift, shift[0])
            changed = not (np.allclose(factor, 1.0) and np.allclose(shift, recording.offset[own]))
            if changed and not same:
                names = ", ".join(
                    recording.ids[k] for k in members if factor[members.index(k)] != 1
                )
                self.left.append(f"channels.{config.id}: {names or 'some elements'} need a line of"
                                 " their own")  # fmt: skip
                continue
            path = ("channels", config.id)
            if (slots != own).any():
                other = entries.get(recording.ids[slots[0]])
                if star or other is None:
                    self.left.append(f"channels.{config.id}: its elements are permuted")
                    continue
                if other.source != config.source:
                    self._set(path, "source", other.source)
                self._set(path, "field", _quoted(other.field))
            if changed:
                if not np.isclose(factor[0], 1.0):
                    self._set(path, "scale", _number(float(wires.scale[members[0]])))
                if not np.isclose(shift[0], config.offset):
                    self._set(path, "offset", _number(float(shift[0])))

    def _write_actuators(self, wires: Wires) -> None:
        command, number = self._wiring.command, 0
        for place, message in enumerate(command.messages):
            path: tuple[Any, ...] = ("command",)
            if len(command.messages) > 1:
                path = ("command", place)
            for actuator in message.actuators:
                mine = self._places[number]
                number += 1
                gain = float(wires.gain[mine])
                here = (*path, "actuators", actuator.name)
                if gain not in (0.0, 1.0):
                    scale = actuator.scale / gain
                    self._set(here, "scale", _number(scale))
                    if abs(scale) > 1.05 * max(map(abs, actuator.limits)):
                        self.left.append(f"command: actuator {actuator.name}: its limits hold it at"
                                         f" {max(map(abs, actuator.limits)):g}")  # fmt: skip
        moved = np.flatnonzero(wires.motors != np.arange(len(wires.motors)))
        for mine in map(int, moved):
            self._cross(mine, int(np.flatnonzero(wires.motors == mine)[0]))

    def _cross(self, action: int, motor: int) -> None:
        """Let this element of the action drive what another one drives."""
        command = self._wiring.command
        name = command.names[self._places.index(action)]
        other = command.names[self._places.index(motor)]
        for place, message in enumerate(command.messages):
            by_name = {one.name: one for one in message.actuators}
            if name not in by_name:
                continue
            if other not in by_name:
                self.left.append(f"command: {name} and {other} stand in two messages")
                return
            own, field = by_name[name], by_name[other].field
            if field is None:
                field = _element(message.field or "", other, list(by_name).index(other))
            path: tuple[Any, ...] = (
                ("command", place) if len(command.messages) > 1 else ("command",)
            )
            self._set((*path, "actuators", own.name), "field", _quoted(field))

    def _set(self, path: tuple[Any, ...], key: str, value: str) -> None:
        """Write a value of a mapping in the document."""
        node: Any = yaml.compose(self.text, Loader=yaml.SafeLoader)
        for step in path:
            if isinstance(step, int):
                node = node.value[step]
            else:
                node = next(v for k, v in node.value if k.value == step)
        pairs = {k.value: v for k, v in node.value}
        if key in pairs:
            begin, end = pairs[key].start_mark.index, pairs[key].end_mark.index
            self.text = self.text[:begin] + value + self.text[end:]
            return
        after = pairs.get("field") or pairs.get("scale") or node.value[-1][1]
        end = after.end_mark.index
        if node.flow_style:
            addition = f", {key}: {value}"
        else:
            column = node.value[0][0].start_mark.column
            line_end = self.text.find("\n", end)
            end = len(self.text) if line_end < 0 else line_end
            addition = f"\n{' ' * column}{key}: {value}"
        self.text = self.text[:end] + addition + self.text[end:]


def _element(field: str, name: str, place: int) -> str:
    """Return the path of an actuator's value in a field that several share."""
    if "*" in field:
        return field.replace("*", name)
    try:
        last = parse_field(field).steps[-1].name
    except (ValueError, IndexError):
        last = field
    named = last in ("position", "velocity", "effort")
    return f"{field}[{name}]" if named else f"{field}[{place}]"


def _quoted(text: str) -> str:
    return f"'{text}'" if any(one in text for one in "[]{}*,&") else text


def _number(value: float) -> str:
    """Return a number with as many digits as matter."""
    return f"{value:.9g}"
