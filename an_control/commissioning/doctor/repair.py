"""Write a diagnosis into the text of a wiring file.

Values are replaced in place, so that comments and layout stay. Mistakes that no line of a wiring
can correct, such as a dead motor, leave the text unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from an_control.commissioning.doctor.hypotheses import CandidateWiring, Recording
from an_control.wiring import Wiring
from an_control.wiring.draft import quote_scalar
from an_control.wiring.messages import format_element_path, parse_field_path


class Repair:
    """A copy of the text of a wiring file, into which corrections are written.

    Args:
        text: Text of the file.
        wiring: The wiring that was loaded from the file.
        recording: The recording in which the mistakes were found.
        places: (A,) for each actuator of the wiring, its index in the model's action; None if both
            have the same order.
    """

    def __init__(
        self, text: str, wiring: Wiring, recording: Recording, places: Sequence[int] | None
    ) -> None:
        self.before = self.text = text
        self._wiring, self._recording = wiring, recording
        self._places = list(range(len(wiring.command.names))) if places is None else list(places)
        self.left: list[str] = []
        """Corrections that the text cannot express, one sentence each."""

    def write_corrections(self, candidate: CandidateWiring) -> None:
        """Replace in `self.text`, a copy of the file's text, the values that must be corrected.

        Corrections that cannot be made in the text are appended to `self.left`.

        Args:
            candidate: The corrected wiring.
        """
        self._write_channel_corrections(candidate)
        self._write_actuator_corrections(candidate)

    @property
    def diff(self) -> str:
        """The changes as a unified diff, or "" if there are none."""
        name = self._wiring.file
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.text.splitlines(keepends=True),
            name, f"{name} (corrected)", n=1,
        )  # fmt: skip
        return "".join(lines)

    def _write_channel_corrections(self, candidate: CandidateWiring) -> None:
        """Write the source, field, scale and offset of each corrected channel into the text."""
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
            slots, own = candidate.slots[members], np.array(members)
            factor = candidate.scale[members] / recording.scale[members]
            shift = candidate.offset[members]
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
                    self._write_yaml_value(path, "source", other.source)
                self._write_yaml_value(path, "field", _quote_for_yaml(other.field))
            if changed:
                if not np.isclose(factor[0], 1.0):
                    self._write_yaml_value(
                        path, "scale", _format_number(float(candidate.scale[members[0]]))
                    )
                if not np.isclose(shift[0], config.offset):
                    self._write_yaml_value(path, "offset", _format_number(float(shift[0])))

    def _write_actuator_corrections(self, candidate: CandidateWiring) -> None:
        """Write the scale and field of each corrected actuator into the text."""
        command, number = self._wiring.command, 0
        for place, message in enumerate(command.messages):
            path = self._get_path_of_message(place)
            for actuator in message.actuators:
                mine = self._places[number]
                number += 1
                gain = float(candidate.gain[mine])
                here = (*path, "actuators", actuator.name)
                if gain not in (0.0, 1.0):
                    scale = actuator.scale / gain
                    self._write_yaml_value(here, "scale", _format_number(scale))
                    if abs(scale) > 1.05 * max(map(abs, actuator.limits)):
                        self.left.append(f"command: actuator {actuator.name}: its limits hold it at"
                                         f" {max(map(abs, actuator.limits)):g}")  # fmt: skip
        moved = np.flatnonzero(candidate.motors != np.arange(len(candidate.motors)))
        for mine in map(int, moved):
            self._connect_action_to_actuator(mine, int(np.flatnonzero(candidate.motors == mine)[0]))

    def _connect_action_to_actuator(self, action: int, motor: int) -> None:
        """Write into the text that an action element goes to the message field of another actuator.

        Action element and actuator are given by their index in the model's order.
        """
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
                field = _format_element_path(message.field or "", other, list(by_name).index(other))
            path = (*self._get_path_of_message(place), "actuators", own.name)
            self._write_yaml_value(path, "field", _quote_for_yaml(field))

    def _get_path_of_message(self, place: int) -> tuple[Any, ...]:
        """Return the path in the YAML text of a command message, given by its index."""
        return ("command", place) if len(self._wiring.command.messages) > 1 else ("command",)

    def _write_yaml_value(self, path: tuple[Any, ...], key: str, value: str) -> None:
        """Write `key: value` into the mapping of the YAML text at `path`, in place of an old value.

        The path consists of keys and list indices; the value is YAML text.
        """
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


def _format_element_path(field: str, name: str, index: int) -> str:
    """Return the path of one actuator's element in a message field that several actuators share.

    An example is "effort[hip_1]"; where elements have no names, the index is used.
    """
    if "*" in field:
        return field.replace("*", name)
    try:
        last = parse_field_path(field).steps[-1].name
    except (ValueError, IndexError):
        last = field
    named = last in ("position", "velocity", "effort")
    return format_element_path(field, name) if named else f"{field}[{index}]"


def _quote_for_yaml(text: str) -> str:
    """Return the text of a YAML value, in quotes if YAML needs them."""
    quoted = quote_scalar(text)
    if quoted == text or not text.isprintable():
        return quoted
    return "'" + text.replace("'", "''") + "'"  # as in the wiring files that ship


def _format_number(value: float) -> str:
    """Return a number with nine significant digits."""
    return f"{value:.9g}"
