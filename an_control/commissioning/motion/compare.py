"""Compare what each actuator moved with what the wiring says, and find the wrong lines.

The wiring says by names which sensor measures which actuator: the channel `hip_1.position` belongs
to the actuator `hip_1`. A line that contradicts itself, such as the channel `hip_1.position` that
reads `position[hip_2]`, shows where a mistake is. If no line does, and the same would be seen with
a mistake of the motor or with the same mistake of all its sensors, then both are said, and nothing
is corrected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from an_control.commissioning.doctor.data_checks import Series, describe_inconsistent_readings
from an_control.commissioning.doctor.hypotheses import UNITS, CandidateWiring, Recording
from an_control.commissioning.motion.response import (
    Pair,
    SensorGroup,
    find_pairs_and_shared_sensors,
)
from an_control.commissioning.motion.run import MotionRecording
from an_control.wiring import ChannelConfig, CommandConfig

MAX_ODD_SHARE = 1.0 / 3.0
"""Signs that differ from most others in their group count as wrong if they are at most this share
of the group."""
GAIN_FACTOR = 3.0
"""A gain is unusual if it is this many times as large or as small as the median gain of comparable
sensors."""
MAX_UNIT_ERROR = 0.3
"""Maximum difference between the logarithms of a measured factor and of a confused unit's factor
for the unit to explain it."""
MIN_LINEAR = 0.8
"""Gains are compared only between responses of which at least this share follows the command
linearly; end stops and dry friction make other responses."""
MIN_LIKE = 3
"""Minimum number of comparable actuators from which their median gain counts as usual."""
MAX_SILENT_SHARE = 1.0 / 3.0
"""Maximum share of actuators without a response up to which the other actuators are compared."""
KINDS = {
    "velocity": re.compile(r"velocit|speed|twist|rate|qvel|\bdq\b", re.IGNORECASE),
    "effort": re.compile(r"effort|torque|force|current", re.IGNORECASE),
    "position": re.compile(r"position|angle|pose|theta|qpos|\bq\b", re.IGNORECASE),
}
"""Pattern of each kind of sensor, sought in the field path and then in the id; the first match
counts."""
_ELEMENT = re.compile(r"\[([^\]]*)\]")
_SUFFIX = re.compile(r"[._/-](position|velocity|effort|torque|pos|vel|speed|angle)$")
_DIGITS_AND_SIDES = re.compile(
    r"\d+|(?<![a-z])(left|right|front|rear|back|hind|fl|fr|rl|rr|hl|hr|lf|rf|l|r)(?![a-z])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class MotionFinding:
    """A mistake in the wiring that showed when one actuator after another was moved.

    Attributes:
        what: Name of the channel or the actuator whose line in the wiring file is wrong.
        text: What is wrong with it, such as "has the wrong sign".
        certain: Whether no other line of the wiring file can be the cause.
        correction: The value to put in that line, such as "scale: -1"; or, if not certain, advice
            in words; "" for none.
    """

    what: str
    text: str
    certain: bool
    correction: str = ""


@dataclass
class MotionDiagnosis:
    """What the test motion of a robot, one actuator at a time, shows about its wiring.

    Attributes:
        pairs: Which sensor belongs to which actuator.
        silent: Names of the actuators that moved no sensor of their own.
        unmoved: Ids of channels that no actuator moved alone. Only channels are listed that are
            named after an actuator which moved other channels.
        findings: Mistakes in the wiring.
        notes: Remarks, one sentence each.
        corrected: The wiring with all certain corrections.
        recording: The recorded motion, converted to the type that `Repair` needs.
    """

    pairs: list[Pair]
    silent: list[str]
    unmoved: list[str]
    corrected: CandidateWiring
    recording: Recording
    findings: list[MotionFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def diagnose_wiring_by_motion(
    recording: MotionRecording, command: CommandConfig
) -> MotionDiagnosis:
    """Find which sensor belongs to which actuator, and where this contradicts the wiring.

    Args:
        recording: Readings and commands of a robot whose actuators were moved one at a time.
        command: The command section of the wiring.
    """
    return _Comparison(recording, command).make_diagnosis()


def group_comparable_channels(
    ids: Sequence[str], configs: Sequence[ChannelConfig], actuators: Sequence[str]
) -> list[SensorGroup]:
    """Group channels whose sensors can be compared, such as the velocities in one topic.

    A group has the channels of one topic, one message field and one kind (such as velocity).
    Channels that read the sine or cosine of an angle are left out. If any field has a
    channel that is named after an actuator, fields without such channels are left out.

    Args:
        ids: Ids of the channels.
        configs: The wiring's entry for each channel.
        actuators: Names of the actuators.
    """
    groups: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        if not config.sine_or_cosine:
            name = f"{config.source}: {_ELEMENT.sub('', config.field)}"
            groups.setdefault(name, []).append(place)
    named = {
        name: any(
            find_actuator_named_by_channel(ids[i], configs[i].field, actuators) is not None
            for i in members
        )
        for name, members in groups.items()
    }
    found = []
    for name, members in groups.items():
        if named[name] or not any(named.values()):
            kinds = [_find_sensor_kind(ids[i], configs[i].field) for i in members]
            by_kind = {kind: [i for i, k in zip(members, kinds, strict=True) if k == kind]
                       for kind in dict.fromkeys(kinds)}  # fmt: skip
            found += [SensorGroup(name, kind, tuple(own)) for kind, own in by_kind.items()]
    return found


def find_actuator_named_by_channel(id_: str, path: str, actuators: Sequence[str]) -> int | None:
    """Return the index of the actuator that a channel is named after, None if there is none.

    The name is sought in the channel's id, and then in the element that its field path names.

    Args:
        id_: Id of the channel, such as "hip_1.position".
        path: Field path of the channel, such as "position[hip_1]".
        actuators: Names of the actuators.
    """
    for text in (_SUFFIX.sub("", id_), id_, *_ELEMENT.findall(path)):
        matches = [
            name for name in actuators
            if re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text)
        ]  # fmt: skip
        if matches:
            return list(actuators).index(max(matches, key=len))
    return None


def _find_sensor_kind(id_: str, path: str) -> str:
    """Return the kind of a channel's sensor: "position", "velocity", "effort" or "other".

    The field path decides if it names a kind, else the id.
    """
    for text in (_ELEMENT.sub("", path), id_):
        for kind, pattern in KINDS.items():
            if pattern.search(text):
                return kind
    return "other"


def _find_element_name(path: str | None, names: Sequence[str]) -> str | None:
    """Return the element that the brackets of a field path name, None if it is not in `names`."""
    found = [one.strip("'\"") for one in _ELEMENT.findall(path or "")]
    return next((one for one in found if one in names), None)


def _find_usual_sign_and_exceptions(signs: dict[int, int]) -> tuple[int, list[int]] | None:
    """Find the sign (1 or -1) that most items have, and the items that have the other sign.

    Items with the sign 0 are left out. The result is None if more than a third of the items have
    the other sign.
    """
    known = {item: sign for item, sign in signs.items() if sign}
    usual = 1 if sum(known.values()) >= 0 else -1
    odd = [item for item, sign in known.items() if sign != usual]
    return (usual, odd) if len(odd) <= MAX_ODD_SHARE * len(known) else None


def _explain_odd_factor(factor: float) -> str:
    """Return advice for a channel that moves `factor` times as far as like channels.

    The advice names the confused units that would explain the factor.
    """
    units = [text for unit, text in UNITS.items() if abs(np.log(factor / unit)) < MAX_UNIT_ERROR]
    return f"look at its scale and unit{': ' if units else ''}{' or '.join(units)}"


def make_doctor_recording(recording: MotionRecording, command: CommandConfig) -> Recording:
    """Convert the recording of a test motion to the type that `Repair` needs.

    Args:
        recording: Readings and commands of a robot whose actuators were moved one at a time.
        command: The command section of the wiring, by which commands are converted to actions.
    """
    ticks = len(recording.commands)
    return Recording.from_readings(
        recording.readings, recording.ids, command.convert_to_action(recording.commands),
        actuators=recording.actuators,
        scale=np.array([one.scale for one in recording.configs]),
        offset=np.array([one.offset for one in recording.configs]),
        starts=np.arange(ticks) == 0,
    )  # fmt: skip


def _make_candidate_from_recording(recording: Recording) -> CandidateWiring:
    """Return the wiring file of a recording as a candidate whose arrays may be changed."""
    same = CandidateWiring.from_recording(recording)
    return replace(same, scale=same.scale.copy(), offset=same.offset.copy())


class _Comparison:
    """One comparison of a recording with its wiring; see `diagnose_wiring_by_motion`."""

    def __init__(self, recording: MotionRecording, command: CommandConfig) -> None:
        self._recording, self._command = recording, command
        self._names = names = recording.actuators
        self._groups = group_comparable_channels(recording.ids, recording.configs, names)
        self._pairs, self._shared = find_pairs_and_shared_sensors(recording, self._groups)
        action = np.sign([one.scale for one in command.actuators])
        self._signs = {one: int(one.sign * action[one.actuator]) for one in self._pairs}
        """Sign of each pair, from the action to the reading."""
        self._meant = {
            channel: find_actuator_named_by_channel(
                recording.ids[channel], recording.configs[channel].field, names
            )
            for group in self._groups
            for channel in group.channels
        }
        """For each channel the actuator that it is named after; None for none."""
        self._by_actuator = {
            place: [one for one in self._pairs if one.actuator == place]
            for place in range(len(names))
        }
        converted = make_doctor_recording(recording, command)
        self._found = MotionDiagnosis(
            self._pairs, [], [], _make_candidate_from_recording(converted), converted
        )

    def make_diagnosis(self) -> MotionDiagnosis:
        """Make all comparisons, and return the diagnosis with their findings."""
        if self._check_if_hardly_anything_moved():
            return self._found
        self._report_what_did_not_move()
        if any(one is not None for one in self._meant.values()):
            self._report_exchanged_motors_and_sensors()
        elif self._pairs:
            self._found.notes.append(
                "motion: the channels are not named after the actuators, so only the table says"
                " which belongs to which"
            )
        self._report_reversed_motors_and_sensors()
        self._report_unusual_gains()
        self._report_wrong_velocities()
        return self._found

    def _add_finding(self, what: str, text: str, *, certain: bool, correction: str = "") -> None:
        """Add a finding to the diagnosis; the arguments are the attributes of `MotionFinding`."""
        self._found.findings.append(MotionFinding(what, text, certain, correction))

    def _check_if_hardly_anything_moved(self) -> bool:
        """Return whether too few actuators move a sensor of their own, and report it if so.

        Then nothing else can be compared.
        """
        names = self._names
        self._found.silent = [name for k, name in enumerate(names) if not self._by_actuator[k]]
        silent = self._found.silent
        if not self._groups:
            self._add_finding(
                "no channel", "holds a number that could show a movement", certain=False
            )
            return True
        if len(names) < MIN_LIKE or len(silent) <= MAX_SILENT_SHARE * len(names):
            return False
        text = "move no sensor clearly, so nothing else is concluded"
        self._add_finding(
            ", ".join(silent), text, certain=False,
            correction="try a larger --amplitude, or hang the robot so that all can move freely",
        )  # fmt: skip
        return True

    def _report_what_did_not_move(self) -> None:
        """Add findings for actuators that moved no sensor, and for channels that nothing moved.

        Only channels that are named after an actuator that moved another sensor are reported.
        """
        ids, plan = self._recording.ids, self._recording.plan
        moved = {one.channel for one in self._pairs}
        for place, name in enumerate(self._names):
            if self._by_actuator[place]:
                continue
            also = [ids[c] for c, who in self._shared.items() if place in who]
            if plan.amplitudes[place] == 0.0:
                text, hint = "cannot move: its limits leave it no room around the safe command", ""
            elif also:
                text = f"moves no sensor alone (it shares {', '.join(also)} with others)"
                hint = "try a larger --amplitude"
            else:
                text = "moves no sensor"
                hint = "dead, not connected, or held: try a larger --amplitude"
            self._add_finding(name, text, certain=False, correction=hint)
        for channel, meant in self._meant.items():
            if channel in moved or meant is None or not self._by_actuator[meant]:
                continue
            self._found.unmoved.append(ids[channel])
            others = [self._names[k] for k in self._shared.get(channel, [])]
            text = (
                f"is moved by {' and '.join(others[:2])}, by none of them alone"
                if others
                else "is moved by no actuator"
            )
            self._add_finding(
                ids[channel], text, certain=False, correction="stuck, or not connected"
            )

    def _report_exchanged_motors_and_sensors(self) -> None:
        """Add findings for exchanged motors and exchanged sensors, by the names of channels."""
        moves: dict[int, int] = {}
        for place, pairs in self._by_actuator.items():
            named = [(one, self._meant[one.channel]) for one in pairs]
            wrong = {meant for _, meant in named if meant is not None and meant != place}
            right = any(meant == place for _, meant in named)
            if len(wrong) == 1 and not right and self._is_motor_to_blame(place, named):
                moves[place] = wrong.pop()
            else:
                for one, meant in named:
                    if meant is not None and meant != place:
                        self._report_sensor_of_other_joint(one, meant)
        complete = set(moves) == set(moves.values())
        for place, other in moves.items():
            self._report_motor_of_other_joint(place, other, is_pure_exchange=complete)

    def _is_motor_to_blame(self, actuator: int, sensors: Sequence[tuple[Pair, int | None]]) -> bool:
        """Return whether the wiring's line of an actuator is wrong, not the lines of its sensors.

        The actuator moves only sensors that are named after another actuator. The lines of the
        sensors are wrong if the actuator's commands go to the element with its own name, and all
        the sensors read the element with this name, in contradiction to their ids.
        """
        own = self._get_actuator_element_name(actuator)
        elements = [self._get_channel_element_name(one.channel) for one, _ in sensors]
        return not all(element is not None and element == own for element in elements) or (
            own != self._names[actuator]
        )

    def _get_channel_element_name(self, channel: int) -> str | None:
        """Return the actuator's name that a channel's field path contains; None for none."""
        return _find_element_name(self._recording.configs[channel].field, self._names)

    def _get_actuator_element_name(self, place: int) -> str:
        """Return the name of the message element in which an actuator's commands are sent."""
        actuator = self._command.actuators[place]
        return _find_element_name(actuator.field, self._names) or actuator.name

    def _report_sensor_of_other_joint(self, pair: Pair, named_actuator: int) -> None:
        """Add a finding for a channel that measures another joint than its name says."""
        id_, mover = self._recording.ids[pair.channel], self._names[pair.actuator]
        source = next(
            (one.channel for one in self._pairs
             if one.group == pair.group and one.actuator == named_actuator), None,
        )  # fmt: skip
        others = [one for one in self._by_actuator[pair.actuator] if one.channel != pair.channel]
        fits = any(self._meant[one.channel] == pair.actuator for one in others)
        element = self._get_channel_element_name(pair.channel)
        contradicts = element is not None and element != self._names[named_actuator]
        certain = source is not None and (fits or contradicts)
        correction = ""
        if source is not None:
            config = self._recording.configs[source]
            correction = f"{'' if certain else 'perhaps '}field: {config.field}"
            if certain:
                self._found.corrected.slots[pair.channel] = source
        self._add_finding(id_, f"measures the joint that actuator {mover} moves", certain=certain,
                  correction=correction)  # fmt: skip

    def _report_motor_of_other_joint(
        self, actuator: int, other_actuator: int, *, is_pure_exchange: bool
    ) -> None:
        """Add a finding for an actuator that moves another joint than its name says.

        The exchange is pure if the actuators that move wrong joints only exchange joints with each
        other, so that exchanging their fields corrects all of them.
        """
        name, joint = self._names[actuator], self._names[other_actuator]
        sensors = [self._recording.ids[one.channel] for one in self._by_actuator[actuator]]
        certain = is_pure_exchange and self._get_actuator_element_name(actuator) != name
        if certain:
            self._found.corrected.motors[actuator] = other_actuator
        correction = f"its field is that of {joint}" if certain else (
            f"exchange the commands of the two, or else the fields of {', '.join(sensors)}"
        )  # fmt: skip
        self._add_finding(name, f"moves the joint {joint}", certain=certain, correction=correction)

    def _report_reversed_motors_and_sensors(self) -> None:
        """Add findings for reversed motors and reversed sensors.

        In each group of like sensors, a response whose direction differs from that of most others
        is wrong. If all sensors of an actuator are wrong, the motor is reversed.
        """
        bad: dict[Pair, bool] = {}
        usual_signs = {}
        for group in self._groups:
            signs = {
                place: self._signs[one] for place, one in enumerate(self._pairs)
                if one.group == group
            }  # fmt: skip
            if not any(signs.values()):
                continue
            result = _find_usual_sign_and_exceptions(signs)
            if result is None:
                falls = [self._recording.ids[self._pairs[k].channel] for k in signs if signs[k] < 0]
                self._add_finding(
                    ", ".join(falls),
                    f"fall with a rising action, as many other elements of {group.name} rise",
                    certain=False,
                    correction="which are right cannot be told: see the table",
                )
                continue
            usual_signs[group] = result[0]
            bad |= {self._pairs[k]: k in result[1] for k, sign in signs.items() if sign}
        self._report_meaning_of_usual_signs(usual_signs)
        for place, pairs in self._by_actuator.items():
            wrong = [one for one in pairs if bad.get(one)]
            right = [one for one in pairs if bad.get(one) is False]
            if wrong and not right:
                self._report_reversed_motor(place, wrong)
            for one in wrong if right else []:
                self._report_reversed_sensor(one)

    def _report_meaning_of_usual_signs(self, usual: dict[SensorGroup, int]) -> None:
        """Report groups of sensors whose readings usually fall when the action rises.

        If all groups do so, this may be meant, and a note is added; if only some do, a finding.
        """
        falling = [group.name for group, sign in usual.items() if sign < 0]
        if not falling:
            return
        if len(falling) == len(usual):
            self._found.notes.append(
                f"motion: a rising action makes {', '.join(falling)} fall: either this is meant, or"
                " all motors are reversed, or all of these sensors; the motion cannot tell"
            )
        else:
            rising = [group.name for group, sign in usual.items() if sign > 0]
            self._add_finding(
                ", ".join(falling),
                f"falls with a rising action, while {', '.join(rising)} rises",
                certain=False,
                correction="reverse the scale of one of the two",
            )

    def _report_reversed_sensor(self, pair: Pair) -> None:
        """Add a certain finding for a channel whose scale has the wrong sign, and correct it."""
        scale = -self._recording.configs[pair.channel].scale
        self._found.corrected.scale[pair.channel] *= -1.0
        self._add_finding(
            self._recording.ids[pair.channel], "has the wrong sign", certain=True,
            correction=f"scale: {scale:.9g}",
        )  # fmt: skip

    def _report_reversed_motor(self, place: int, wrong: Sequence[Pair]) -> None:
        """Add findings for an actuator all of whose sensors respond in the wrong direction.

        The scale with a sign unlike the others in the wiring is taken to be wrong: the actuator's,
        or those of the sensors.
        """
        scales = {k: int(np.sign(one.scale)) for k, one in enumerate(self._command.actuators)}
        result = _find_usual_sign_and_exceptions(scales)
        motor_is_odd = result is not None and place in result[1]
        odd_sensors = [one for one in wrong if self._has_scale_of_unusual_sign(one)]
        ids = [self._recording.ids[one.channel] for one in wrong]
        if len(odd_sensors) == len(wrong) and not motor_is_odd:
            for one in wrong:
                self._report_reversed_sensor(one)
            return
        certain = motor_is_odd and not odd_sensors
        if certain:
            self._found.corrected.gain[place] = -1.0
        scale = -self._command.actuators[place].scale
        other = "" if certain else f", or else reverse {' and '.join(ids)}"
        self._add_finding(self._names[place], "is reversed", certain=certain,
                  correction=f"scale: {scale:.9g}{other}")  # fmt: skip

    def _has_scale_of_unusual_sign(self, pair: Pair) -> bool:
        """Return whether a channel's scale has another sign than those of most like channels."""
        scales = {
            channel: int(np.sign(self._recording.configs[channel].scale))
            for channel in pair.group.channels
        }
        result = _find_usual_sign_and_exceptions(scales)
        return result is not None and pair.channel in result[1]

    def _report_unusual_gains(self) -> None:
        """Add findings for actuators and sensors that move much more or less than like ones."""
        odd: dict[Pair, float] = {}
        for group in self._groups:
            like: dict[str, list[Pair]] = {}
            for one in self._pairs:
                if one.group == group and one.linear >= MIN_LINEAR:
                    stem = _DIGITS_AND_SIDES.sub("", self._names[one.actuator])
                    like.setdefault(stem, []).append(one)
            for members in like.values():
                usual = float(np.median([self._compute_gain_per_action(one) for one in members]))
                for one in members if len(members) >= MIN_LIKE else []:
                    factor = self._compute_gain_per_action(one) / usual
                    if not 1.0 / GAIN_FACTOR < factor < GAIN_FACTOR:
                        odd[one] = factor
        for place, pairs in self._by_actuator.items():
            strange = [one for one in pairs if one in odd]
            if strange and len(strange) == len(pairs):
                factor = float(np.exp(np.mean([np.log(odd[one]) for one in strange])))
                self._add_finding(
                    self._names[place],
                    f"moves its sensors {factor:.2g} times as far as like actuators", certain=False,
                    correction="look at its scale, and at those of its sensors",
                )  # fmt: skip
            else:
                for one in strange:
                    self._add_finding(self._recording.ids[one.channel],
                              f"moves {odd[one]:.2g} times as far as like channels", certain=False,
                              correction=_explain_odd_factor(odd[one]))  # fmt: skip

    def _compute_gain_per_action(self, pair: Pair) -> float:
        """Return how far a pair's reading moves for each unit of the action, not of the command."""
        return pair.gain * abs(self._command.actuators[pair.actuator].scale)

    def _report_wrong_velocities(self) -> None:
        """Add findings for velocities that are not the rate of change of their positions.

        Which position belongs to a velocity is known by the names of their fields.
        """
        recording = self._recording
        times_s = np.arange(len(recording.commands)) / recording.rate_hz
        series = Series(recording.ids, times_s, self._found.recording.raw)
        configs = dict(zip(recording.ids, recording.configs, strict=True))
        for text in describe_inconsistent_readings(series, configs):
            what, _, rest = text.removeprefix("channel ").partition(": ")
            if all(one.what != what for one in self._found.findings):
                self._add_finding(what, rest, certain=False)
