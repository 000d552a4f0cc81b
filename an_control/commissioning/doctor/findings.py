"""Describe the mistakes that were found in a wiring, with their corrections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.changes import Change, list_changes_from_wiring_file
from an_control.commissioning.doctor.hypotheses import UNITS, CandidateWiring, Hypothesis


@dataclass(frozen=True)
class Finding:
    """One mistake in the wiring that `diagnose` found, with its correction.

    Args:
        kind: Kind of mistake, such as "sign" or "swapped": one of `Hypothesis.kind`, but "stuck" or
            "noise only" in place of "unusable".
        members: Ids of the affected channels, or names of the affected actuators.
        text: What is wrong, such as "has the wrong sign".
        correction: The new value in the wiring file, such as "scale: -1", or advice if no change of
            the file can help.
        log_odds: Nats by which the recording is more likely with the correction than without it.
        factor: Factor by which the scale in the file changes, None if it does not.
        offset: New offset in the file, None if it does not change.
        delay: Ticks by which the channel is late, None if it is not.
        fixable: Whether a change in the wiring file corrects the mistake.
    """

    kind: str
    members: tuple[str, ...]
    text: str
    correction: str
    log_odds: float
    factor: float | None = None
    offset: float | None = None
    delay: int | None = None
    fixable: bool = True

    @property
    def certainty(self) -> str:
        """Return how certain the finding is: "certain", "very likely" or "likely"."""
        return (
            "certain" if self.log_odds > 100 else "very likely" if self.log_odds > 30 else "likely"
        )


class Unseen(NamedTuple):
    """A mistake that could not be found in a recording, because the robot moved too little."""

    kind: str
    """Kind of mistake; see `Hypothesis.kind`."""
    members: tuple[str, ...]
    """Ids of the channels, or names of the actuators if the kind begins with "motor"."""
    hint: str
    """The movement that would show it, for a sentence."""


@dataclass(frozen=True)
class Diagnosis:
    """Result of the search for mistakes in a wiring (`diagnose`) in one recording.

    Args:
        findings: The mistakes that were found, the most certain first.
        corrected: The wiring with all corrections, which explains the recording best.
        unseen: Mistakes that could not be found, because the robot moved too little.
        notes: Other remarks, one sentence each.
        lag: Ticks by which all readings are late.
        excess_before: How badly the wiring file explains the readings: the mean nats per tick by
            which they are less likely than the readings in the model's validation.
        excess_after: The same for the wiring `corrected`.
        ticks: Number of ticks that were compared.
        alternatives: Other mistakes that explain the recording as well as one of the findings, as
            texts.
    """

    findings: tuple[Finding, ...]
    corrected: CandidateWiring
    unseen: tuple[Unseen, ...] = ()
    notes: tuple[str, ...] = ()
    lag: int = 0
    excess_before: float = 0.0
    excess_after: float = 0.0
    ticks: int = 0
    alternatives: tuple[str, ...] = ()


def make_findings(
    case: Case, candidate: CandidateWiring, accepted: Sequence[Hypothesis]
) -> list[Finding]:
    """Return a finding for each difference from the wiring file, the most certain first.

    `accepted` are the hypotheses from which the corrected wiring `candidate` resulted.
    """
    changes = list_changes_from_wiring_file(case, candidate, accepted)
    without = [
        candidate.with_values_from(case.configured, one.what, one.members) for one in changes
    ]
    cost, *costs = case.likelihood.compute_nll_per_candidate([candidate, *without], case.ticks)
    found = [
        _make_finding(case, one, candidate, float(cost_without - cost))
        for one, cost_without in zip(changes, costs, strict=True)
    ]
    return sorted(found, key=lambda one: -one.log_odds)


def _make_finding(
    case: Case, change: Change, candidate: CandidateWiring, log_odds: float
) -> Finding:
    """Return the finding that describes one change of the wiring file."""
    recording, what, first = case.recording, change.what, change.members[0]
    of = recording.actuators if change.concerns_motors else recording.ids
    names = tuple(of[m] for m in change.members)
    if what in ("slots", "motors"):
        places = candidate.slots if what == "slots" else candidate.motors
        correction = ", ".join(f"{of[m]} from {of[places[m]]}" for m in change.members)
        word = "motors" if what == "motors" else "channels"
        kind, text = "permuted", f"{len(names)} {word} are permuted"
        if len(names) == 2:
            kind, text = "swapped", f"{names[0]} and {names[1]} are swapped"
        kind = f"motors {kind}" if what == "motors" else kind
        return Finding(kind, names, text, correction, log_odds)
    if what == "unusable":
        kind, text = "noise only", "is unrelated to the robot's movements"
        if case.moving[candidate.slots[first]] == 0.0:
            kind, text = "stuck", "always reads the same"
        return Finding(
            kind, names, text, "no line repairs this: look at the sensor, its cable and driver",
            log_odds, fixable=False,
        )  # fmt: skip
    if what == "delay":
        late = int(candidate.delay[first])
        return Finding(
            "delay", names, f"{late} tick{'s' * (late > 1)} later than the others",
            "no line repairs this: look at the driver's filter and rate",
            log_odds, delay=late, fixable=False,
        )  # fmt: skip
    if what == "gain":
        return _make_motor_finding(names, float(candidate.gain[first]), log_odds)
    return _make_scale_or_offset_finding(case, change, candidate, names, log_odds)


def _make_motor_finding(actuators: tuple[str, ...], gain: float, log_odds: float) -> Finding:
    """Return a finding for actuators that act too strongly, too weakly, reversed or not at all.

    The gain is relative to what the model expects.
    """
    if gain == 0.0:
        return Finding(
            "motor dead", actuators, "does nothing",
            "look at its power, its driver and the name of its command; one that is"
            " reversed and pushes against an end stop looks the same",
            log_odds, factor=0.0, fixable=False,
        )  # fmt: skip
    factor = 1.0 / gain
    kind = "motor reversed" if np.isclose(gain, -1.0) else "motor gain"
    text = "turns the wrong way"
    if kind == "motor gain":
        text = f"acts {abs(gain):.3g} times as strong as it should"
        text += ", and the wrong way" if gain < 0 else ""
    return Finding(kind, actuators, text, f"scale times {_format_number(factor)}", log_odds, factor)


def _make_scale_or_offset_finding(
    case: Case, change: Change, candidate: CandidateWiring, names: tuple[str, ...], log_odds: float
) -> Finding:
    """Return a finding for channels with a wrong scale, a wrong offset, or both.

    A channel is inverted if it is binary and reads 1 for 0.
    """
    first, nominal = change.members[0], case.configured
    factor = float(candidate.scale[first] / nominal.scale[first])
    correction = f"scale: {_format_number(candidate.scale[first])}" if factor != 1.0 else ""
    if len(names) > 1:
        correction = f"scale times {_format_number(factor)}"
    kind, texts, offset = "offset", [], None
    if np.isclose(factor, -1.0):
        kind = "sign"
        texts.append("has the wrong sign")
    elif not np.isclose(factor, 1.0):
        kind = "scale"
        times = 1.0 / abs(factor)
        shown = f"{times:.3g} times" if times > 1.0 else f"1/{1 / times:.3g} of"
        texts.append(f"reads {shown} the right value")
        units = [text for unit, text in UNITS.items() if abs(np.log(times / unit)) < 0.01]
        texts += units[:1]
        if factor < 0:
            texts.append("with the wrong sign")
    if not np.isclose(candidate.offset[first], nominal.offset[first]):
        offset = float(candidate.offset[first])
        correction += f"{', ' if correction else ''}offset: {_format_number(offset)}"
        texts.append(f"is off by {_format_number(nominal.offset[first] - offset)}")
        if case.forward.binary[first] and factor < 0:
            kind, texts = "inverted", ["reads 1 where it should read 0, and 0 for 1"]
    return Finding(kind, names, ", ".join(texts), correction, log_odds, factor, offset)


def _format_number(value: float) -> str:
    """Return a number as text with seven significant digits, as for a wiring file."""
    return f"{float(f'{value:.7g}'):g}" if abs(value) < 1e-4 else f"{value:.7g}"


def make_notes_on_lag_and_excess(case: Case, excess: float, any_found: bool) -> list[str]:
    """Return remarks for the report: on a lag of all readings, and on readings left unexplained.

    Args:
        case: The examined recording.
        excess: How far the readings' negative log-likelihood is above its usual value after the
            corrections of all findings, in nats a tick.
        any_found: Whether any mistake was found.
    """
    notes = []
    if lag := case.likelihood.lag:
        notes.append(f"all readings are {lag} tick{'s' * (lag > 1)} late: no mistake of the wiring")
    unexpected = case.is_behaviour_unexpected(excess)
    if unexpected and any_found:
        notes.append(
            f"apart from these findings the excess NLL is {excess:.0f} nats a tick, as of a"
            " robot that has fallen: correct the wiring, then check again"
        )
    elif unexpected:
        notes.append(
            f"the model explains the readings {excess:.0f} nats a tick worse than in its"
            " validation, and no line of the wiring explains that: the robot's mass or friction"
            " may differ from training, or the mistake is of a kind that the doctor does not"
            " test"
        )
    return notes
