"""Find the mistakes in a wiring that best explain a recording, by likelihood under a forward model.

The search is greedy: it compares every single mistake with the wiring as it is, corrects the most
likely one, and repeats. At the end it drops corrections that the others made unnecessary. Whatever
the recording cannot decide is listed as such and never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.hypotheses import (
    FACTORS,
    MAX_DELAY,
    MOTOR_FACTORS,
    ROUND,
    UNITS,
    CandidateWiring,
    Hypothesis,
    Recording,
    find_groups_of_similar_ids,
    iterate_swaps_of_robot_parts,
)
from an_control.commissioning.doctor.kinematics import estimate_scale_factor_from_rates
from an_control.commissioning.doctor.likelihood import Likelihood
from an_control.monitor.forward_model import ForwardModel


@dataclass(frozen=True)
class DoctorSettings:
    """Thresholds of the search for mistakes in a wiring, such as swapped sensors.

    They were tuned on recordings of four robots (`experiments/doctor`). The descriptions below use
    these terms:

    - Cost: the negative log-likelihood of the readings in nats, under a forward model.
    - Excess: the cost minus the cost in the model's validation.
    - Effect of a motor: the change of the readings that it causes, divided by the change that the
      forward model predicts (`Likelihood.estimate_motor_effects`).
    """

    min_ticks: int = 60
    """Minimum number of ticks for a diagnosis."""
    screened: int = 96
    """Number of ticks on which the lag of all readings is estimated."""
    screenings: tuple[tuple[int, int], ...] = ((32, 400), (96, 100))
    """Rounds in which hypotheses are discarded: the number of compared ticks, and of the hypotheses
    that stay. The first round compares all of them."""
    refined: int = 600
    """Number of ticks on which the best hypotheses are compared and their numbers are fitted."""
    finalists: int = 8
    """Number of hypotheses that are refined."""
    finalists_of_kind: int = 3
    """Number of hypotheses of one kind that are refined."""
    max_mistakes: int = 8
    """Maximum number of mistakes in one recording."""
    min_gain: float = 25.0
    """Nats in total that a mistake must explain beyond its penalty."""
    min_tick_gain: float = 0.25
    """Mean nats a tick that a mistake must explain."""
    min_share: float = 0.1
    """Share of the present excess that a mistake must explain. On a robot whose physics differ from
    the model's, many mistakes explain a little.
    """
    restored_ticks: int = 6
    """Number of neighbouring ticks that are judged together as restored."""
    restored_excess: float = 0.2
    """Excess in nats a tick and channel up to which ticks count as restored: the model explains
    them as in its validation."""
    min_restored: float = 40.0
    """Nats beyond the penalty that a mistake without a fitted number must gain in restored ticks,
    to be accepted however badly all other ticks are explained. A robot that has fallen leaves few
    ticks that the model can explain, but those decide."""
    min_restored_share: float = 0.05
    """Share of the present excess that a mistake must explain to be accepted by `min_restored`."""
    certain_restored: float = 100.0
    """Nats that replace `min_restored` for a mistake that explains a smaller share."""
    max_lost_share: float = 0.05
    """Share of its gain that a mistake may lose in other blocks of ticks, to be accepted because
    its gains do not contradict each other."""
    min_certain_share: float = 0.06
    """Share of the present excess, in place of `min_share`, that a channel's mistake without a
    fitted number must explain if its mean gain is `certain_sigma` standard errors above 0."""
    certain_sigma: float = 5.0
    """Standard errors above 0 from which on a mean gain is certain."""
    min_moving: float = 0.05
    """Share of the ticks in which a channel must change before a number of it is fitted."""
    min_fitted_gain: float = 0.75
    """Mean nats a tick that a mistake must explain if it has a fitted number, or if it concerns a
    sensor and is found after another mistake.
    """
    min_delay_gain: float = 0.3
    """Mean nats a tick that a delay must explain if the model explains the readings as well as in
    its validation.
    """
    min_fitted_share: float = 0.15
    """Minimum share of the excess for a mistake with a fitted number, which always explains a
    little.
    """
    white: float = 0.2
    """Correlation of successive readings below which a channel carries noise: a sensor of a robot
    that moves changes less from tick to tick than in all."""
    min_later_share: float = 0.25
    """Minimum share of the excess for a mistake of a channel that is found after another mistake.
    """
    min_motor_share: float = 0.03
    """Minimum share of the excess for a mistake of a motor, whose effect is measured as well."""
    min_later_gain_share: float = 0.2
    """Minimum share of the excess for a motor's wrong gain that is found after another mistake. If
    a robot does what the model never learned, a wrong gain always explains a little."""
    min_effect: float = 0.3
    """Minimum difference between a motor's relative effect and 1 for a mistake of this motor."""
    max_effect_change: float = 0.03
    """Maximum increase of the mean difference between the motors' relative effects and 1 by the
    correction of a channel."""
    dead_effect: float = 0.35
    """Maximum relative effect, in either direction, that a dead motor may seem to have."""
    idle_effect: float = 0.2
    """Relative effect below which a motor is taken for dead or reversed, whatever the likelihood.
    """
    reversed_effect: float = 0.3
    """Opposite effect, away from a joint's end stop, from which on a motor is reversed."""
    usual_effect: float = 0.5
    """Minimum effect of the other motors for a diagnosis by effects alone."""
    crossed_effect: float = 0.5
    """Minimum relative effect of both motors of an exchange, once it is corrected."""
    block: int = 20
    """Number of ticks whose gains are averaged, because those of neighbours are correlated."""
    min_sigma: float = 3.5
    """Standard errors by which the mean gain of the blocks must exceed 0."""
    fitted_sigma: float = 5.0
    """Standard errors in place of `min_sigma` for a mistake with a fitted number, because this
    number is the best of many."""
    near_gain: float = 0.92
    """Share of the best hypothesis's gain from which on another one counts as equally likely,
    unless their difference is significant over the blocks.
    """
    near_named_gain: float = 0.9
    """A wrong sign, or a scale that is wrong by a unit or a round factor, is preferred to an offset
    or an unusable channel if it gains at least this share of the nats."""
    near_offset_gain: float = 0.8
    """An offset is preferred to a scale that is wrong by any other factor if it gains at least this
    share of the nats."""
    near_reversed: float = 1.0
    """Maximum distance, as a logarithm, between a fitted motor gain and -1 that replaces it."""
    near_unit: float = 0.3
    """Maximum distance, as a logarithm, between a fitted scale and a unit or round number that
    replaces it. It is wide because a fallen robot moves as the model does not expect, which
    biases the fit.
    """
    unit_share: float = 0.88
    """Minimum share of the fitted scale's gain that the unit or round number must reach to replace
    it.
    """
    poor_unit_share: float = 0.75
    """Share in place of `unit_share` if the fitted scale leaves an excess above `poor_fit`, because
    the fit is then biased."""
    poor_fit: float = 1.0
    """Excess in nats a tick and channel above which the model explains the robot poorly."""
    dead_share: float = 0.93
    """Minimum share of a fitted motor gain's gain in nats that a gain of 0 must reach to replace
    it.
    """
    near_offset: float = 0.05
    """Maximum distance between a fitted offset and that of another channel which replaces it."""
    explained: float = 0.3
    """Excess of the worst channel, in nats a tick, up to which the search stops after a found
    mistake if all channels together cost no more than usual.
    """
    plain: float = 4.0
    """Mean nats a tick from which on a mistake that is made on purpose would surely be found. A
    sensor's mistake that is found after another one must explain as much, or pass further tests, if
    the robot does what the model has learned.
    """
    least_factor: float = 1.25
    """Factor from which on a scale counts as wrong."""
    least_offset: float = 0.3
    """Difference from which on an offset counts as wrong, in standard deviations of the channel."""
    least_gain: float = 1.5
    """Factor from which on a motor's gain counts as wrong. A robot that is heavier or lighter than
    in training seems to have weaker or stronger motors."""
    misfit: float = 0.35
    """Excess in nats a tick and channel from which on a difference of physics is noted."""


DOCTOR = DoctorSettings()
FACTORS_BOTH = (*FACTORS, *(1.0 / one for one in FACTORS))
MIN_BLOCK, FEWEST_BLOCKS = 4, 10
"""Minimum number of ticks in a block, and number of blocks in a short recording."""
FITTED = ("offset", "scale", "delay", "unusable")
"""Kinds of mistakes that always explain a little, because a number is fitted."""
NUMBERS = ("offset", "scale", "delay")
"""Kinds of mistakes of a channel that have a number."""
MAX_LOG_FACTOR = float(np.log(3e4))
OFFSET = 1.5
"""Offset that is made on purpose to see whether it would show, in standard deviations."""
OFFSETS = 24
"""Number of offsets that are tried before one is refined."""
ROUNDS = 3
"""Number of times that two offsets are fitted in turns."""
STILL_HINT = "it did not change: move the robot so that it does"


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


def diagnose(
    recording: Recording,
    forward: ForwardModel,
    *,
    list_undetectable: bool = True,
) -> Diagnosis:
    """Find mistakes in a robot's wiring, such as swapped or reversed sensors, by a recording.

    The forward model predicts each channel's next reading. A supposed mistake counts as found if
    its correction makes the recorded readings likelier by as many nats as `DOCTOR` demands.

    Args:
        recording: 5 to 20 s of the moving robot, with the channels of the model in its order.
        forward: Forward model of these channels and actuators.
        list_undetectable: Whether to find out which mistakes could not be found in this recording,
            which takes a fifth of the time.

    Returns:
        The diagnosis. It has no findings if nothing is wrong, or if the recording is too short; a
        note then says so.
    """
    search = _Search(recording, forward)
    return search.find_mistakes(list_undetectable=list_undetectable)


class _Search:
    """Search for the mistakes in the wiring with which one recording was made; see `diagnose`.

    In all methods `candidate` is the wiring as corrected so far, without the correction of the
    hypothesis in question; `ticks` (K,) are the indices of the ticks that are compared; `gains`
    (K,) are the nats by which each tick costs less with a hypothesis; `mean_excess` is the mean of
    the nats by which a tick costs more than in the model's validation; and `evidence` says how the
    costs change with the correction of a hypothesis.
    """

    def __init__(self, recording: Recording, forward: ForwardModel) -> None:
        self._recording, self._forward = recording, forward
        self._configured = CandidateWiring.from_recording(recording)
        self._groups = find_groups_of_similar_ids(recording.ids, recording.groups)
        motor_groups = find_groups_of_similar_ids(recording.actuators, None)
        everything = tuple(range(len(recording.actuators)))
        if len(everything) > 1 and everything not in motor_groups.values():
            motor_groups["all motors"] = everything
        self._motor_groups = motor_groups
        self._fixed = forward.constant
        raw = recording.raw
        self._heard = ~np.isnan(raw).all(0)
        self._span = np.zeros(raw.shape[1])
        self._span[self._heard] = np.ptp(np.nan_to_num(raw[:, self._heard]), 0)
        changes = np.diff(raw, axis=0)[~recording.starts[1:]]
        self._moving = (np.nan_to_num(changes) != 0.0).mean(0) if len(changes) else self._span
        """(N,) share of the ticks in which each recorded channel changes."""
        self._binary = forward.binary
        self._found = False
        self._judged: set[int] = set()
        """Motors that `_decide_whether_motor_is_dead_or_reversed` has judged; their effects say
        nothing more."""

    def find_mistakes(self, *, list_undetectable: bool) -> Diagnosis:
        """Find the mistakes that explain the recording, and those that it could not show."""
        candidate = self._configured
        still = (self._moving == 0.0) & ~self._binary & ~self._fixed
        if np.count_nonzero(still) > 0.5 * len(still):
            still = np.zeros_like(still)  # the robot stands
        stuck = replace(candidate, unusable=~self._heard | still)
        self._likelihood = self._make_likelihood_with_best_lag(stuck)
        ticks = self._likelihood.select_evenly_spread_ticks(DOCTOR.refined)
        if len(ticks) < DOCTOR.min_ticks:
            note = f"{len(ticks)} ticks are too few; record at least {DOCTOR.min_ticks}"
            return Diagnosis((), candidate, notes=(note,), ticks=len(ticks))
        self._likelihood.impute_channels(stuck)
        candidate = self._restore_seemingly_stuck_channels(stuck, ticks) if still.any() else stuck
        self._lost = candidate.unusable
        self._likelihood.impute_channels(candidate)
        before = float(self._likelihood.compute_excess_nll_per_channel(candidate, ticks).sum())
        taken: list[Hypothesis] = []
        alternatives: tuple[str, ...] = ()
        while len(taken) < DOCTOR.max_mistakes:
            found, rivals = self._find_best_hypothesis_and_rivals(candidate, ticks)
            if found is None:
                break
            if rivals:
                alternatives += tuple(self._describe_hypothesis(one) for one in rivals)
            taken.append(found)
            self._found = True
            candidate = found.candidate
            self._likelihood.impute_channels(candidate)
            excess = self._likelihood.compute_excess_nll_per_channel(candidate, ticks)
            if excess.sum() < 0.0 and excess.max() < DOCTOR.explained:
                break
        candidate = self._drop_unneeded_changes(
            self._list_changes_from_wiring_file(candidate, taken), candidate, ticks
        )
        candidate = self._drop_unlikely_motor_changes(candidate, taken, ticks)
        changes = self._list_changes_from_wiring_file(candidate, taken)
        reverted = [self._revert_change(candidate, one, one.members) for one in changes]
        costs = self._likelihood.compute_nll_per_candidate([candidate, *reverted], ticks)
        findings = [
            self._make_finding(one, candidate, float(cost - costs[0]))
            for one, cost in zip(changes, costs[1:], strict=True)
        ]
        findings.sort(key=lambda one: -one.log_odds)
        after = float(self._likelihood.compute_excess_nll_per_channel(candidate, ticks).sum())
        return Diagnosis(
            tuple(findings),
            candidate,
            self._find_undetectable_mistakes(candidate, ticks) if list_undetectable else (),
            tuple(self._make_notes_on_lag_and_excess(after, bool(findings))),
            self._likelihood.lag,
            before,
            after,
            len(ticks),
            alternatives,
        )

    def _make_likelihood_with_best_lag(self, candidate: CandidateWiring) -> Likelihood:
        """Return a `Likelihood` of the recording whose lag of all readings fits best.

        Lags from 0 to `MAX_DELAY` ticks are compared by the cost of the readings. A lag of 0 is
        preferred if the costs are nearly equal.
        """
        best, least, imputed = None, np.inf, None
        for lag in range(MAX_DELAY + 1):
            likelihood = Likelihood(self._forward, self._recording, lag)
            if not lag and (np.isnan(self._recording.raw).any() or candidate.unusable.any()):
                likelihood.impute_channels(candidate)
                imputed = likelihood.imputed
            likelihood.imputed = imputed
            ticks = likelihood.select_evenly_spread_ticks(DOCTOR.screened)
            if len(ticks) < DOCTOR.min_ticks:
                break
            cost = float(likelihood.compute_nll_per_candidate([candidate], ticks)[0]) / len(
                ticks
            ) + 2.0 * (lag > 0)
            if cost < least:
                best, least = likelihood, cost
        return best or Likelihood(self._forward, self._recording)

    def _restore_seemingly_stuck_channels(
        self, stuck: CandidateWiring, ticks: np.ndarray
    ) -> CandidateWiring:
        """Make channels usable again that never change although their sensors are not stuck.

        All of them become usable if a dead motor, or a group of dead motors, explains the recording
        better than stuck sensors, or if it explains several such channels well. Otherwise, single
        channels become usable that a wrong sign explains better. The dead motors and wrong signs
        themselves are not corrected here, because the search finds them later.
        """
        moving = replace(stuck, unusable=~self._heard)
        singles = [(m,) for m in range(len(stuck.motors))]
        dead = [
            moving.with_motor_gain(members, 0.0)
            for members in [*singles, *self._motor_groups.values()]
        ]
        as_stuck, *as_dead = self._likelihood.compute_nll_per_candidate([stuck, *dead], ticks)
        if min(as_dead, default=np.inf) < as_stuck:
            return moving
        if np.count_nonzero(stuck.unusable & self._heard) > 1:
            likeliest = dead[int(np.argmin(as_dead))]
            left = float(self._likelihood.compute_excess_nll_per_channel(likeliest, ticks).sum())
            if not self._is_behaviour_unexpected(left):
                return moving  # one dead motor is likelier than several stuck sensors
        for k in np.flatnonzero(stuck.unusable & self._heard).tolist():
            usable = stuck.unusable.copy()
            usable[k] = False
            turned = replace(stuck, unusable=usable).with_scale_factor([k], -1.0)
            as_stuck, as_turned = self._likelihood.compute_nll_per_candidate([stuck, turned], ticks)
            prior = (
                Hypothesis("unusable", (k,), stuck).penalty
                - Hypothesis("sign", (k,), turned).penalty
            )
            if as_turned < as_stuck + prior:
                stuck = replace(stuck, unusable=usable)  # its sign is found later
        return stuck

    # Hypotheses of a single mistake

    def _list_channel_hypotheses(self, candidate: CandidateWiring) -> list[Hypothesis]:
        """Return hypotheses of one mistake in a single channel, or of two exchanged channels."""
        found = []
        usable = [
            k for k in range(len(candidate.slots)) if not candidate.unusable[k] and self._heard[k]
        ]
        for k in usable:
            found.append(Hypothesis("sign", (k,), candidate.with_scale_factor([k], -1.0)))
            if self._binary[k]:
                turned = candidate.with_scale_factor([k], -1.0)
                found.append(
                    Hypothesis("inverted", (k,), turned.with_offset(k, 1.0 - candidate.offset[k]))
                )
            if self._moving[candidate.slots[k]] < DOCTOR.min_moving and not self._binary[k]:
                continue  # it changes too seldom for a number to be fitted
            for factor in FACTORS_BOTH if self._can_detect_wrong_scale(candidate, k) else ():
                found.append(Hypothesis("scale", (k,), candidate.with_scale_factor([k], factor)))
            for offset in self._list_offsets_to_try(candidate, k):
                found.append(Hypothesis("offset", (k,), candidate.with_offset(k, offset)))
            for ticks in range(1, MAX_DELAY + 1):
                found.append(Hypothesis("delay", (k,), candidate.with_delay(k, ticks)))
            found.append(Hypothesis("unusable", (k,), candidate.with_unusable_channel(k)))
        for a, b in combinations(usable, 2):
            found.append(
                Hypothesis("swapped", (a, b), candidate.with_permuted_channels([a, b], [b, a]))
            )
        return found

    def _can_detect_wrong_scale(self, candidate: CandidateWiring, channel: int) -> bool:
        """Return whether the recorded readings of a channel could show that its scale is wrong.

        They could not if the channel never changes, or if it is binary and reads only 0 and 1.
        """
        if not self._binary[channel]:
            return bool(self._span[candidate.slots[channel]])
        values = self._recording.raw[:, candidate.slots[channel]] * candidate.scale[channel]
        values = values[~np.isnan(values)] + candidate.offset[channel]
        return not np.isin(values.round(6), (0.0, 1.0)).all()

    def _list_offsets_to_try(self, candidate: CandidateWiring, channel: int) -> list[float]:
        """Return offsets to try for a channel, apart from that which it has in the candidate."""
        raw = self._recording.raw[:, candidate.slots[channel]]
        middle = float(np.nanmedian(raw)) * candidate.scale[channel]
        shifts = [0.1, 0.3, 0.7, 1.5, 3.0]
        spread = self._compute_standard_deviation(candidate, channel)
        offsets = [candidate.offset[channel] + sign * shift for shift in shifts for sign in (-1, 1)]
        offsets += [
            candidate.offset[channel] + sign * shift * spread
            for shift in (1, 3)
            for sign in (-1, 1)
        ]
        if self._forward.imputes:
            offsets.append(float(self._forward.typical[channel]) - middle)
            assert self._likelihood.imputed is not None
            expected = float(np.median(self._likelihood.imputed[:, channel]))
            offsets.append(expected - middle)
        return [one for one in offsets if one != candidate.offset[channel]]

    def _compute_standard_deviation(self, candidate: CandidateWiring, channel: int) -> float:
        """Return the standard deviation of a channel's readings, or 0.1 if they never change."""
        raw = self._recording.raw[:, candidate.slots[channel]]
        return float(np.nanstd(raw * candidate.scale[channel])) or 0.1

    def _list_group_hypotheses(self, candidate: CandidateWiring) -> list[Hypothesis]:
        """Return hypotheses of a wrong sign or scale of a group of channels, or of exchanged parts.

        The parts are numbered or named parts of the robot, such as legs.
        """
        found = []
        for name, members in self._groups.items():
            usable = [k for k in members if not candidate.unusable[k]]
            if len(usable) < 2:
                continue
            found.append(
                Hypothesis("sign", tuple(usable), candidate.with_scale_factor(usable, -1.0), name)
            )
            usable = [k for k in usable if self._can_detect_wrong_scale(candidate, k)]
            for factor in FACTORS_BOTH if len(usable) > 1 else ():
                scaled = candidate.with_scale_factor(usable, factor)
                found.append(Hypothesis("scale", tuple(usable), scaled, name))
            if len(usable) == 2 and members in (self._recording.groups or {}).values():
                found += self._list_hypotheses_of_two_offsets(candidate, usable, name)
        for name, channels, others in iterate_swaps_of_robot_parts(
            self._recording.ids, self._groups
        ):
            moved = candidate.with_permuted_channels(channels, others)
            found.append(Hypothesis("permuted", channels, moved, name))
        return found

    def _list_hypotheses_of_two_offsets(
        self, candidate: CandidateWiring, channels: Sequence[int], name: str
    ) -> list[Hypothesis]:
        """Return hypotheses of a wrong offset of both channels of a group, with various offsets.

        An Imu that is mounted at an angle has this mistake in roll and pitch. The correction of one
        alone may explain too little.
        """
        if (self._binary | (self._moving[candidate.slots] < DOCTOR.min_moving))[channels].any():
            return []
        first, second = channels
        return [
            Hypothesis(
                "offset",
                (first, second),
                candidate.with_offset(first, one).with_offset(second, other),
                name,
            )
            for one in self._list_offsets_to_try(candidate, first)
            for other in self._list_offsets_to_try(candidate, second)
        ]

    def _list_motor_hypotheses(self, candidate: CandidateWiring) -> list[Hypothesis]:
        """Return hypotheses of a wrong motor or group of motors, or of exchanged motors."""
        found, motors = [], range(len(candidate.motors))
        kinds = {-1.0: "motor reversed", 0.0: "motor dead"}
        for members, name in [
            *(((m,), "") for m in motors),
            *((members, name) for name, members in self._motor_groups.items()),
        ]:
            if any(candidate.gain[m] == 0.0 or m in self._judged for m in members):
                continue
            for factor in MOTOR_FACTORS:
                kind = kinds.get(factor, "motor gain")
                found.append(
                    Hypothesis(kind, members, candidate.with_motor_gain(members, factor), name)
                )
        effects = self._likelihood.estimate_motor_effects(
            candidate, self._likelihood.select_evenly_spread_ticks(400)
        )
        usual = _compute_median_effect(effects)
        for m in motors:
            factor = float(effects[m]) / usual
            if m in self._judged:
                continue
            if abs(factor - 1.0) > DOCTOR.min_effect and abs(factor) > 0.1:
                driven = candidate.with_motor_gain([m], factor)
                found.append(Hypothesis("motor gain", (m,), driven, "by its effect"))
        for a, b in combinations(motors, 2):
            crossed = candidate.with_permuted_motors([a, b], [b, a])
            found.append(Hypothesis("motors swapped", (a, b), crossed))
        for name, channels, others in iterate_swaps_of_robot_parts(
            self._recording.actuators, self._motor_groups
        ):
            crossed = candidate.with_permuted_motors(channels, others)
            found.append(Hypothesis("motors permuted", channels, crossed, name))
        return found

    # Comparison of the hypotheses

    def _find_best_hypothesis_and_rivals(
        self, candidate: CandidateWiring, ticks: np.ndarray
    ) -> tuple[Hypothesis | None, list[Hypothesis]]:
        """Find the most likely of all hypotheses that explain enough, and its rivals.

        The hypothesis is None if none explains enough; its rivals are about as likely.
        """
        likelihood = self._likelihood
        hypotheses = [
            *self._list_channel_hypotheses(candidate),
            *self._list_group_hypotheses(candidate),
            *self._list_motor_hypotheses(candidate),
        ]
        for screened, kept in DOCTOR.screenings:
            few = likelihood.select_evenly_spread_ticks(screened)
            costs = likelihood.compute_nll_per_candidate(
                [candidate, *(one.candidate for one in hypotheses)], few
            )
            gains = (costs[0] - costs[1:]) * (len(ticks) / len(few))
            gains -= [one.penalty for one in hypotheses]
            ahead = np.argsort(gains)[::-1][: max(kept, DOCTOR.finalists)]
            hypotheses, gains = [hypotheses[number] for number in ahead], gains[ahead]
        finalists = self._select_likeliest_hypotheses(hypotheses, gains)
        refined = [self._refine_hypothesis(one, candidate, ticks) for one in finalists]
        now = self._compute_tick_costs(candidate, ticks)
        refined_costs = [self._compute_tick_costs(one.candidate, ticks) for one in refined]
        evidence = [self._compare_costs(now, then) for then in refined_costs]
        scores = [
            float(found.gain.sum()) - one.penalty
            for one, found in zip(refined, evidence, strict=True)
        ]
        order = np.argsort(scores)[::-1]
        restored = [found.restored for found in evidence]
        accepted = [
            number
            for number in map(int, order)
            if self._is_acceptable(refined[number], evidence[number])
        ]
        unexpected = self._is_behaviour_unexpected(float(now.excess_nll.mean()))
        if unexpected:
            accepted = self._put_most_restoring_hypothesis_first(accepted, refined, restored)
        driven = [
            number
            for number in accepted
            if refined[number].concerns_motors
            and self._agrees_with_motor_effects(refined[number], candidate, ticks, evidence[number])
        ]
        rival = not np.allclose(candidate.gain, 1.0) or any(
            self._restores_usual_costs(refined[number], evidence[number]) for number in driven
        )
        agreeing: list[int] = []
        refused = set()
        for number in accepted:
            if agreeing and scores[number] <= DOCTOR.near_gain * scores[agreeing[0]]:
                break
            one = refined[number]
            if number in driven or (
                not one.concerns_motors
                and not (rival and self._spoils_motor_effects(one.candidate, candidate, ticks))
            ):
                agreeing.append(number)
            else:
                refused.add(number)
        if not agreeing:
            return self._find_idle_motor_and_rivals(candidate, ticks, float(now.excess_nll.mean()))
        consistent = [
            self._are_gains_consistent(found.gain, one.penalty)
            for one, found in zip(refined, evidence, strict=True)
        ]
        half = 0.5 * restored[agreeing[0]]
        sound = [n for n in agreeing if consistent[n] and restored[n] >= half]
        best = (sound or agreeing)[0]
        idle = None
        if unexpected:
            idle = self._find_preferred_motor_hypothesis(refined, driven, best, candidate, ticks)
        if idle is None:
            likelier = self._find_hypothesis_of_likelier_kind(
                refined, accepted, scores, best, candidate
            )
            if likelier is not None:
                by_sensor = refined[best].kind == "unusable"
                return refined[likelier], [] if by_sensor else [refined[best]]
        else:
            best = idle
        first = refined[best]
        if first.kind == "motor dead":
            for motor in first.members:
                if (crossed := self._find_motor_exchange(motor, candidate, ticks)) is not None:
                    return crossed, []
            if len(first.members) == 1:
                return self._decide_whether_motor_is_dead_or_reversed(first.members[0], candidate)
        if idle is not None:
            return first, []
        rivals = []
        for other in map(int, order):
            if other in refused or consistent[best] > consistent[other]:
                continue
            if refined[other].has_common_channel_or_motor(refined[best]):
                continue
            difference = refined_costs[other].cost - refined_costs[best].cost
            near = scores[other] > DOCTOR.near_gain * scores[best]
            if near and not self._is_mean_gain_significant(difference):
                rivals.append(refined[other])
        return refined[best], rivals

    def _select_likeliest_hypotheses(
        self, hypotheses: Sequence[Hypothesis], gains: np.ndarray
    ) -> list[Hypothesis]:
        """Return the likeliest hypotheses, the best first, without repetitions.

        Of several hypotheses with the same kind, members and group name, only the best is returned.
        Of each kind at most `DoctorSettings.finalists_of_kind` are returned, so that one kind does
        not crowd out another whose number, such as an offset, is not fitted yet: such hypotheses
        explain more after the fit. The `gains` are the nats that each explains, less its penalty.
        """
        chosen: dict[tuple[str, tuple[int, ...], str], Hypothesis] = {}
        kinds: Counter[str] = Counter()
        for number in np.argsort(gains)[::-1]:
            one = hypotheses[number]
            key = one.kind, one.members, one.name
            if key in chosen or kinds[one.kind] >= DOCTOR.finalists_of_kind:
                continue
            chosen[key] = one
            kinds[one.kind] += 1
            if len(chosen) == DOCTOR.finalists:
                break
        return list(chosen.values())

    def _find_hypothesis_of_likelier_kind(
        self,
        hypotheses: Sequence[Hypothesis],
        accepted: Sequence[int],
        scores: Sequence[float],
        best: int,
        candidate: CandidateWiring,
    ) -> int | None:
        """Find a hypothesis of a likelier kind that explains the best one's channel about as well.

        A wrong sign, a confused unit or a round factor is likelier than an offset or an unusable
        sensor, and an offset is likelier than any other factor. The readings may not tell these
        kinds apart if they hardly change, or if the robot does something that the model never
        learned. `accepted`, `best` and the result are indices in `hypotheses`; `scores` are the
        nats that each explains, less its penalty.
        """
        first = hypotheses[best]
        if first.kind not in ("scale", "offset", "unusable") or len(first.members) > 1:
            return None
        if first.kind == "scale" and self._is_unit_or_round_factor(first, candidate):
            return None
        for number in accepted:
            one = hypotheses[number]
            if one.members != first.members:
                continue
            if first.kind == "scale":
                likelier, share = one.kind == "offset", DOCTOR.near_offset_gain
            else:
                likelier = one.kind == "sign" or (
                    one.kind == "scale" and self._is_unit_or_round_factor(one, candidate)
                )
                share = DOCTOR.near_named_gain
            if likelier and scores[number] > share * scores[best]:
                return number
        return None

    def _find_preferred_motor_hypothesis(
        self,
        hypotheses: Sequence[Hypothesis],
        motor_hypotheses: Sequence[int],
        best: int,
        candidate: CandidateWiring,
        ticks: np.ndarray,
    ) -> int | None:
        """Find a motor hypothesis that is preferred to a channel hypothesis that explains more.

        A robot may have fallen because a motor is wrong. The model then explains all readings
        badly, and many wrong hypotheses about channels explain a little. So the hypothesis about a
        motor that has no effect, or the opposite effect, is preferred, unless the correction of the
        channel gives this motor its usual effect. `motor_hypotheses`, which agree with the motors'
        measured effects, `best` and the result are indices in `hypotheses`.
        """
        if not motor_hypotheses or hypotheses[best].concerns_motors:
            return None
        estimate = self._likelihood.estimate_motor_effects
        before, after = estimate(candidate, ticks), estimate(hypotheses[best].candidate, ticks)
        idle = DOCTOR.idle_effect * _compute_median_effect(before)
        usual = DOCTOR.crossed_effect * _compute_median_effect(after)
        for number in motor_hypotheses:
            motor = hypotheses[number].members[0]
            alone = len(hypotheses[number].members) == 1
            if alone and before[motor] < idle and not after[motor] >= usual:
                return number
        return None

    @staticmethod
    def _is_unit_or_round_factor(hypothesis: Hypothesis, candidate: CandidateWiring) -> bool:
        """Return whether a scale is wrong by the factor of a confused unit, or a round factor."""
        first = hypothesis.members[0]
        factor = candidate.scale[first] / hypothesis.candidate.scale[first]
        return bool(np.isclose(abs(factor), (*UNITS, *ROUND)).any())

    def _put_most_restoring_hypothesis_first(
        self, accepted: list[int], hypotheses: Sequence[Hypothesis], restored_nats: Sequence[float]
    ) -> list[int]:
        """Return the accepted hypotheses with the one that restores most ticks at the front.

        A hypothesis restores a tick if with it the model explains the tick as well as in its
        validation. The order changes only if this hypothesis gains clearly more in restored ticks
        than the most likely one, and if neither is about motors or has a fitted number. `accepted`
        and the result are indices in `hypotheses`, the most likely first.
        """
        known = [
            number
            for number in accepted
            if hypotheses[number].kind not in FITTED and not hypotheses[number].concerns_motors
        ]
        if not known or known[0] != accepted[0]:
            return accepted
        best = max(known, key=lambda number: restored_nats[number])
        if restored_nats[best] - restored_nats[accepted[0]] < DOCTOR.min_restored:
            return accepted
        return [best, *(number for number in accepted if number != best)]

    def _is_acceptable(self, hypothesis: Hypothesis, evidence: CostEvidence) -> bool:
        """Return whether a hypothesis is acceptable: it must explain enough and spoil no ticks."""
        least, restored = DOCTOR.min_restored, evidence.restored
        if self._is_too_close_to_wiring_file(hypothesis):
            return False
        if self._found and hypothesis.kind == "motor gain":
            share = DOCTOR.min_later_gain_share
            if evidence.gain.mean() < share * evidence.excess:
                return False
        if (
            self._found
            and not hypothesis.concerns_motors
            and not self._explains_enough_after_other_mistake(hypothesis, evidence)
        ):
            return False
        if hypothesis.kind != "unusable" and not hypothesis.concerns_motors and restored < -least:
            return False
        if self._is_significant(evidence.gain, hypothesis, max(0.0, evidence.excess)):
            return True
        if (
            self._is_behaviour_unexpected(evidence.excess)
            and hypothesis.kind not in FITTED
            and not hypothesis.concerns_motors
        ):
            if evidence.gain.mean() < DOCTOR.min_restored_share * evidence.excess:
                least = DOCTOR.certain_restored
            return restored >= least + hypothesis.penalty
        return self._restores_usual_costs(hypothesis, evidence)

    def _explains_enough_after_other_mistake(
        self, hypothesis: Hypothesis, evidence: CostEvidence
    ) -> bool:
        """Return whether a channel's mistake explains enough if another mistake was found before.

        It must explain more than the first mistake, because that mistake brings the robot into
        states that the model does not know. There even a wrong hypothesis explains a little, such
        as that of two exchanged ranges of a scanner. If the model explains the robot well, still
        more is required, above all if a motor is wrong.
        """
        explained = float(evidence.gain.mean())
        if explained < DOCTOR.min_later_share * evidence.excess:
            return False
        if self._is_behaviour_unexpected(evidence.excess) or explained >= DOCTOR.plain:
            return True
        corrected = hypothesis.candidate
        motors_are_right = np.allclose(corrected.gain, 1.0) and np.array_equal(
            corrected.motors, self._configured.motors
        )
        return (
            motors_are_right
            and explained >= DOCTOR.min_fitted_gain
            and self._are_gains_consistent(evidence.gain, hypothesis.penalty)
        )

    def _is_too_close_to_wiring_file(self, hypothesis: Hypothesis) -> bool:
        """Return whether the corrected number is so near the wiring file's that the file is right.

        The number is a scale, an offset or a motor's gain. The result is False for a hypothesis of
        another kind, which has no such number.
        """
        first, wrong = hypothesis.members[0], hypothesis.candidate
        if hypothesis.kind == "offset":
            return any(
                abs(wrong.offset[k] - self._configured.offset[k])
                < DOCTOR.least_offset * self._compute_standard_deviation(wrong, k)
                for k in hypothesis.members
            )
        if hypothesis.kind == "scale":
            factor = float(wrong.scale[first] / self._configured.scale[first])
            return bool(abs(np.log(abs(factor))) < np.log(DOCTOR.least_factor)) and factor > 0
        if hypothesis.kind == "motor gain":
            gain = float(wrong.gain[first])
            return gain > 0 and bool(abs(np.log(gain)) < np.log(DOCTOR.least_gain))
        return False

    def _restores_usual_costs(self, hypothesis: Hypothesis, evidence: CostEvidence) -> bool:
        """Return whether a hypothesis brings many ticks to their usual cost and spoils few others.

        The usual cost is that in the model's validation.
        """
        if evidence.restored < DOCTOR.min_restored + hypothesis.penalty:
            return False
        explained, fitted = evidence.excess - evidence.left, hypothesis.kind in FITTED
        if fitted and explained < DOCTOR.min_fitted_share * evidence.excess:
            return False
        if fitted and evidence.gain.mean() < DOCTOR.min_fitted_gain:
            return False
        return self._are_gains_consistent(evidence.gain, hypothesis.penalty)

    def _are_gains_consistent(self, gains: np.ndarray, penalty: float) -> bool:
        """Return whether several blocks of ticks speak for a hypothesis and hardly any against it.

        This also accepts uneven gains. If the robot seldom turns, for example, a mistake shows in
        few blocks of ticks, so that the standard error of the gains is large. But with a right
        hypothesis the remaining blocks lose nothing.
        """
        blocks = self._compute_block_means(gains)
        length = len(gains) // len(blocks)
        lost = -np.minimum(blocks, 0.0).sum()
        rest = float(blocks.sum() - blocks.max()) * length - penalty
        share = DOCTOR.max_lost_share
        return rest >= DOCTOR.min_gain and lost <= share * np.maximum(blocks, 0.0).sum()

    def _is_behaviour_unexpected(self, mean_excess: float) -> bool:
        """Return whether the robot does something that the model never learned.

        This is so for a robot that has fallen, for example.
        """
        return mean_excess > DOCTOR.misfit * len(self._recording.ids)

    def _is_significant(
        self, gains: np.ndarray, hypothesis: Hypothesis, mean_excess: float
    ) -> bool:
        """Return whether a hypothesis explains enough nats and a large enough share of the excess.

        Its gains must also be significantly above 0, or consistent over the blocks of ticks.
        """
        total, mean = float(gains.sum()), float(gains.mean())
        if total - hypothesis.penalty < DOCTOR.min_gain or mean < DOCTOR.min_tick_gain:
            return False
        share = DOCTOR.min_motor_share if hypothesis.concerns_motors else DOCTOR.min_share
        weak = hypothesis.kind in FITTED or (self._found and not hypothesis.concerns_motors)
        if hypothesis.kind == "delay" and mean_excess <= 0.0 and not self._found:
            return mean >= DOCTOR.min_delay_gain and self._are_gains_consistent(
                gains, hypothesis.penalty
            )
        if weak and mean < DOCTOR.min_fitted_gain:
            return False
        left = mean_excess - mean
        if hypothesis.kind in NUMBERS and self._found and left > DOCTOR.poor_fit * len(self._fixed):
            return False  # almost any number explains a little of what the model does not know
        if hypothesis.kind in FITTED:
            share = DOCTOR.min_later_share if self._found else DOCTOR.min_fitted_share
            if hypothesis.kind == "unusable" and self._looks_like_noise(
                hypothesis.candidate.slots[hypothesis.members[0]]
            ):
                share = DOCTOR.min_share
            whole = left <= 0.0 < mean_excess  # nothing is left to explain
            sigma = DOCTOR.min_sigma if whole else DOCTOR.fitted_sigma
            return mean >= share * mean_excess and self._is_mean_gain_significant(gains, sigma)
        if not hypothesis.concerns_motors and self._is_mean_gain_significant(
            gains, DOCTOR.certain_sigma
        ):
            share = DOCTOR.min_certain_share
        return mean >= share * mean_excess and self._is_mean_gain_significant(gains)

    def _looks_like_noise(self, slot: int) -> bool:
        """Return whether successive readings of a recorded channel are unrelated, as in noise."""
        raw, follows = self._recording.raw[:, slot], ~self._recording.starts[1:]
        before, after = raw[:-1][follows], raw[1:][follows]
        known = ~np.isnan(before) & ~np.isnan(after)
        if np.count_nonzero(known) < DOCTOR.min_ticks or not self._span[slot]:
            return False
        relation = np.corrcoef(before[known], after[known])[0, 1]
        return bool(abs(relation) < DOCTOR.white)

    def _compute_tick_costs(self, candidate: CandidateWiring, ticks: np.ndarray) -> _TickCosts:
        """Return the cost of each of K ticks under a candidate wiring, summed over its channels."""
        costs = self._likelihood.compute_nll_per_reading([candidate], ticks)[0]
        excess_nll = self._likelihood.subtract_validation_nll(costs, candidate)
        return _TickCosts(costs.sum(1), excess_nll.sum(1))

    def _compare_costs(self, before: _TickCosts, after: _TickCosts) -> CostEvidence:
        """Return how the costs of ticks change from one candidate wiring to another."""
        return CostEvidence(
            before.cost - after.cost,
            float(before.excess_nll.mean()),
            float(after.excess_nll.mean()),
            self._compute_gain_in_restored_ticks(before.excess_nll, after.excess_nll),
        )

    def _compute_gain_in_restored_ticks(
        self, excess_before: np.ndarray, excess_after: np.ndarray
    ) -> float:
        """Return the nats that a correction gains in the ticks that it restores.

        A tick is restored if with the correction the model explains it as well as in its
        validation. The result is negative if the correction spoils ticks that the model explained
        well without it.
        """
        length = DOCTOR.restored_ticks
        count = len(excess_before) // length
        level = DOCTOR.restored_excess * len(self._recording.ids)
        least_before, least_after = (
            np.minimum(values[: count * length].reshape(count, length).mean(1), level)
            for values in (excess_before, excess_after)
        )
        return float((least_before - least_after).sum()) * length

    def _agrees_with_motor_effects(
        self,
        hypothesis: Hypothesis,
        candidate: CandidateWiring,
        ticks: np.ndarray,
        evidence: CostEvidence,
    ) -> bool:
        """Return whether a hypothesis about motors agrees with their measured effects.

        Without the correction, the effects must differ from those that the model expects; with it,
        they must be much nearer to them. A dead motor must have hardly any effect. A wrong motor
        gain may agree although the effects are as expected, if it restores the usual costs: where
        commands are at their limit, a motor that is too strong has nearly the expected effect.
        """
        members = list(hypothesis.members)
        if evidence.left <= 0.0 and self._is_behaviour_unexpected(evidence.excess):
            return True  # nothing is left to explain
        before = self._likelihood.estimate_motor_effects(candidate, ticks)
        usual = _compute_median_effect(np.delete(before, members))
        members = [m for m in members if not np.isnan(before[m])]
        if not members:
            return True  # no sensor shows their effects
        before = before[members] / usual
        usual_before = np.abs(before - 1.0).max() < DOCTOR.min_effect
        if usual_before and not (
            hypothesis.kind == "motor gain" and self._restores_usual_costs(hypothesis, evidence)
        ):
            return False
        if hypothesis.kind == "motor dead":
            return bool(np.abs(before).max() < DOCTOR.dead_effect)
        after = (
            self._likelihood.estimate_motor_effects(hypothesis.candidate, ticks)[members] / usual
        )
        if usual_before:
            return bool(np.abs(after - 1.0).max() < DOCTOR.min_effect)
        return bool(np.abs(after - 1.0).sum() < 0.6 * np.abs(before - 1.0).sum())

    def _spoils_motor_effects(
        self, corrected: CandidateWiring, candidate: CandidateWiring, ticks: np.ndarray
    ) -> bool:
        """Return whether a channel's correction makes the motors' effects less like the expected.

        Such a correction is wrong: it only makes an unusual posture look like a known one. The
        search refuses it if a motor's mistake may explain the recording.
        """
        unexpected = []
        for one in (candidate, corrected):
            effects = self._likelihood.estimate_motor_effects(one, ticks)
            effects = effects[~np.isnan(effects)] / _compute_median_effect(effects)
            unexpected.append(float(np.abs(effects - 1.0).sum()) / max(len(effects), 1))
        return unexpected[1] > unexpected[0] + DOCTOR.max_effect_change

    def _find_idle_motor_and_rivals(
        self, candidate: CandidateWiring, ticks: np.ndarray, mean_excess: float
    ) -> tuple[Hypothesis | None, list[Hypothesis]]:
        """Find a dead, reversed or exchanged motor by the measured effects of all motors alone.

        This is only done for a robot that does something the model never learned, such as one that
        has fallen, because costs mean little there. Nothing is found if channels were corrected
        already, because their corrections may bias the effects. The hypothesis is None if no motor
        is found.
        """
        bent = (candidate.slots != self._configured.slots).any() or (
            candidate.unusable & ~self._lost
        ).any()
        bent |= not np.allclose(candidate.scale, self._configured.scale)
        bent |= not np.allclose(candidate.offset, self._configured.offset)
        if bent or not self._is_behaviour_unexpected(mean_excess):
            return None, []
        effects = self._likelihood.estimate_motor_effects(candidate, ticks)
        alive = (candidate.gain != 0.0) & ~np.isnan(effects)
        alive[list(self._judged)] = False
        if not alive.any():
            return None, []
        usual = float(np.median(effects[alive]))
        idle = np.flatnonzero(alive & (effects < DOCTOR.idle_effect * max(usual, 0.0)))
        for motor in map(int, idle):
            if (crossed := self._find_motor_exchange(motor, candidate, ticks)) is not None:
                return crossed, []
        motor = int(np.where(alive, effects, np.inf).argmin())
        others = np.delete(effects, motor)[np.delete(alive, motor)]
        if not len(others) or usual < DOCTOR.usual_effect:
            return None, []
        apart = np.abs(others / usual - 1.0)
        if effects[motor] > DOCTOR.idle_effect * usual or np.median(apart) > DOCTOR.min_effect:
            return None, []
        return self._decide_whether_motor_is_dead_or_reversed(motor, candidate)

    def _decide_whether_motor_is_dead_or_reversed(
        self, motor: int, candidate: CandidateWiring
    ) -> tuple[Hypothesis, list[Hypothesis]]:
        """Decide whether a motor without effect is dead or reversed.

        A reversed motor can hold its joint at an end stop, where it has no effect. So the motor's
        effect is measured only in ticks in which the joint is away from the position where it stays
        most of the time. If there are too few such ticks to decide, return the hypothesis of a dead
        motor, with that of a reversed one as its rival.
        """
        dead = Hypothesis("motor dead", (motor,), candidate.with_motor_gain([motor], 0.0))
        turned = Hypothesis("motor reversed", (motor,), candidate.with_motor_gain([motor], -1.0))
        self._judged.add(motor)
        effect = self._likelihood.estimate_motor_effect_away_from_stop(candidate, motor)
        if effect is None:
            return dead, [turned]
        return (turned if effect < -DOCTOR.reversed_effect else dead), []

    def _find_motor_exchange(
        self, motor: int, candidate: CandidateWiring, ticks: np.ndarray
    ) -> Hypothesis | None:
        """Find the exchange of a motor with another one that gives both the expected effect.

        Return None if no exchange helps.
        """
        cost = float(self._likelihood.compute_nll_per_candidate([candidate], ticks)[0])
        for other in range(len(candidate.motors)):
            if other == motor or other in self._judged or candidate.gain[other] == 0.0:
                continue
            crossed = candidate.with_permuted_motors([motor, other], [other, motor])
            effects = self._likelihood.estimate_motor_effects(crossed, ticks)
            least = DOCTOR.crossed_effect * _compute_median_effect(effects)
            if not effects[[motor, other]].min() >= least:
                continue
            if (
                self._likelihood.compute_nll_per_candidate([crossed], ticks)[0]
                < cost - DOCTOR.min_gain
            ):
                return Hypothesis("motors swapped", (motor, other), crossed)
        return None

    def _is_mean_gain_significant(self, gains: np.ndarray, sigma: float | None = None) -> bool:
        """Return whether the mean gain is significantly above 0, by its standard error.

        The error is estimated from the means of blocks of ticks. The fewer blocks there are, the
        more standard errors are required, because the estimate is then uncertain. By default
        `sigma`, the number for many blocks, is `DoctorSettings.min_sigma`.
        """
        blocks = self._compute_block_means(gains)
        count = len(blocks)
        error = float(blocks.std(ddof=1)) / np.sqrt(count)
        least = (sigma or DOCTOR.min_sigma) * (1.0 + 4.0 / count)
        return float(blocks.mean()) > least * error

    def _compute_block_means(self, gains: np.ndarray) -> np.ndarray:
        """Return the mean gain of each block of successive ticks.

        The means of different blocks are hardly correlated, unlike the gains of neighbouring ticks.
        """
        block = max(MIN_BLOCK, min(DOCTOR.block, len(gains) // FEWEST_BLOCKS))
        count = len(gains) // block
        means: np.ndarray = gains[: count * block].reshape(count, block).mean(1)
        return means

    def _refine_hypothesis(
        self, hypothesis: Hypothesis, candidate: CandidateWiring, ticks: np.ndarray
    ) -> Hypothesis:
        """Return the hypothesis with its scale, offset or motor gain fitted to the recording.

        A motor gain near -1 or 0 becomes the hypothesis of a reversed or dead motor. A hypothesis
        of a kind without such a number is returned unchanged.
        """
        if hypothesis.kind == "scale":
            return self._refine_scale(hypothesis, candidate, ticks)
        if hypothesis.kind == "offset":
            return self._refine_offsets(hypothesis, candidate)
        if hypothesis.kind == "motor gain":
            members = list(hypothesis.members)
            first = float(hypothesis.candidate.gain[members[0]] / candidate.gain[members[0]])
            sign = np.sign(first)
            log = self._find_cheapest_value(
                lambda value: candidate.with_motor_gain(members, float(sign * np.exp(value))),
                float(np.log(abs(first))),
                0.5,
                (-3.0, 3.0),
            )
            fitted = candidate.with_motor_gain(members, float(sign * np.exp(log)))
            if sign < 0 and abs(log) < DOCTOR.near_reversed:
                turned = candidate.with_motor_gain(members, -1.0)
                now, as_turned, as_fitted = self._likelihood.compute_nll_per_candidate(
                    [candidate, turned, fitted], ticks
                )
                left = float(self._likelihood.compute_excess_nll_per_channel(turned, ticks).sum())
                share = DOCTOR.unit_share
                if self._is_behaviour_unexpected(left):
                    share = DOCTOR.poor_unit_share
                if now - as_turned > share * (now - as_fitted):
                    return hypothesis._replace(kind="motor reversed", candidate=turned)
            if abs(np.exp(log)) < DOCTOR.idle_effect:
                still = candidate.with_motor_gain(members, 0.0)
                now, as_still, as_fitted = self._likelihood.compute_nll_per_candidate(
                    [candidate, still, fitted], ticks
                )
                if now - as_still > DOCTOR.dead_share * (now - as_fitted):
                    return hypothesis._replace(kind="motor dead", candidate=still)
            return hypothesis._replace(candidate=fitted)
        return hypothesis

    def _refine_offsets(self, hypothesis: Hypothesis, candidate: CandidateWiring) -> Hypothesis:
        """Return a hypothesis of wrong offsets with each of its offsets fitted to the recording.

        Two offsets are fitted in turns, because the best value of each depends on the other.
        """
        fitted = hypothesis.candidate
        for k in hypothesis.members * (ROUNDS if len(hypothesis.members) > 1 else 1):
            start, step = self._find_first_offset_and_step(fitted, k, candidate)
            offset = self._find_cheapest_value(partial(fitted.with_offset, k), start, step)
            for known in {*self._configured.offset, *-self._configured.offset}:
                if abs(offset - known) < DOCTOR.near_offset and known != candidate.offset[k]:
                    offset = float(known)
            fitted = fitted.with_offset(k, offset)
        return hypothesis._replace(candidate=fitted)

    def _find_first_offset_and_step(
        self, guessed: CandidateWiring, channel: int, candidate: CandidateWiring
    ) -> tuple[float, float]:
        """Find where to start a local search for the offset with the lowest cost, and its step.

        The cost may have several minima, so that a search from the first guess, the channel's
        offset in `guessed`, is not enough.
        """
        guess, now = float(guessed.offset[channel]), float(candidate.offset[channel])
        span = float(self._span[candidate.slots[channel]] * abs(candidate.scale[channel]))
        grid = now + span * np.linspace(-1.5, 1.5, OFFSETS)
        few = self._likelihood.select_evenly_spread_ticks(max(200, DOCTOR.screened))
        values = [guess, *grid.tolist()]
        costs = self._likelihood.compute_nll_per_candidate(
            [guessed.with_offset(channel, value) for value in values], few
        )
        best = int(costs.argmin())
        if best == 0:
            return guess, 0.5 * abs(guess - now) + 1e-3
        return values[best], span * 3.0 / (OFFSETS - 1)

    def _refine_scale(
        self, hypothesis: Hypothesis, candidate: CandidateWiring, ticks: np.ndarray
    ) -> Hypothesis:
        """Return a hypothesis of a wrong scale with its factor fitted to the recording.

        If the factor of a confused unit, or a round factor, fits nearly as well as the fitted
        factor, it replaces the fitted one.
        """
        members = list(hypothesis.members)
        first = hypothesis.candidate.scale[members[0]] / candidate.scale[members[0]]
        sign = np.sign(first)

        def make_scaled_candidate(log_factor: float) -> CandidateWiring:
            return candidate.with_scale_factor(members, float(sign * np.exp(log_factor)))

        bounds = -MAX_LOG_FACTOR, MAX_LOG_FACTOR
        log = self._find_cheapest_value(
            make_scaled_candidate, float(np.log(abs(first))), 0.5, bounds
        )
        fitted = make_scaled_candidate(log)
        share = DOCTOR.unit_share
        if self._likelihood.compute_excess_nll_per_channel(fitted, ticks).mean() > DOCTOR.poor_fit:
            share = DOCTOR.poor_unit_share
            factor = estimate_scale_factor_from_rates(
                self._forward, self._recording, candidate, members
            )
            if factor is not None:
                log, share = float(np.log(factor)), 0.0
                fitted = make_scaled_candidate(log)
        near = [
            make_scaled_candidate(-np.log(unit))
            for unit in (*UNITS, *ROUND)
            if abs(log + np.log(unit)) < DOCTOR.near_unit
        ]
        now, as_fitted, *as_named = self._likelihood.compute_nll_per_candidate(
            [candidate, fitted, *near], ticks
        )
        if near and now - min(as_named) > share * (now - as_fitted):
            fitted = near[int(np.argmin(as_named))]
        return hypothesis._replace(candidate=fitted)

    def _find_cheapest_value(
        self,
        make_candidate: Callable[[float], CandidateWiring],
        start: float,
        step: float,
        bounds: tuple[float, float] | None = None,
    ) -> float:
        """Find the number for which `make_candidate` returns the wiring with the lowest cost.

        The search is local: it tries numbers around the best one so far, in ever smaller steps.
        """
        few = self._likelihood.select_evenly_spread_ticks(max(200, DOCTOR.screened))
        for _ in range(5):
            values = start + step * np.array([-1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0])
            if bounds is not None:
                values = np.clip(values, *bounds)
            costs = self._likelihood.compute_nll_per_candidate(
                [make_candidate(value) for value in values], few
            )
            best = int(costs.argmin())
            start = float(values[best])
            step *= 1.0 if best in (0, len(values) - 1) else 0.35
        return start

    def _describe_hypothesis(self, hypothesis: Hypothesis) -> str:
        """Return the kind of a hypothesis, and its group or its members, as text for the user."""
        of = self._recording.actuators if hypothesis.concerns_motors else self._recording.ids
        return (
            f"{hypothesis.kind}: {hypothesis.name or ', '.join(of[m] for m in hypothesis.members)}"
        )

    # Report of the result

    def _drop_unneeded_changes(
        self, changes: list[_Change], candidate: CandidateWiring, ticks: np.ndarray
    ) -> CandidateWiring:
        """Return the candidate without changes of channels that the other changes make needless.

        Changes of motors are all kept.
        """
        costs = self._compute_tick_costs(candidate, ticks)
        for one in changes:
            if one.what in ("gain", "motors"):
                continue  # motors are judged by their effects
            members = [one.members, *([(m,) for m in one.members] if one.parts else ())]
            for some in members:
                without = self._revert_change(candidate, one, some)
                evidence = self._compare_costs(self._compute_tick_costs(without, ticks), costs)
                gain = evidence.gain
                if some == one.members:
                    needed = float(gain.sum()) >= DOCTOR.min_gain and (
                        self._is_mean_gain_significant(gain)
                        or self._are_gains_consistent(gain, 0.0)
                    )
                    needed |= evidence.restored >= DOCTOR.min_restored and one.what != "unusable"
                else:  # a part is wrong like the whole, unless the readings contradict that
                    needed = float(gain.sum()) >= 0.0
                if not needed:
                    candidate = without
                    costs = self._compute_tick_costs(candidate, ticks)
        return candidate

    def _drop_unlikely_motor_changes(
        self, candidate: CandidateWiring, accepted: Sequence[Hypothesis], ticks: np.ndarray
    ) -> CandidateWiring:
        """Return the candidate without motor changes that other changes have made unlikely.

        A motor's change was accepted because of the motor's measured effect. If it is not the only
        change, and the recording is likelier without it, another mistake caused that effect.
        """
        while True:
            changes = self._list_changes_from_wiring_file(candidate, accepted)
            motors = [one for one in changes if one.what in ("gain", "motors")]
            if len(changes) < 2 or not motors:
                return candidate
            without = [self._revert_change(candidate, one, one.members) for one in motors]
            cost, *costs = self._likelihood.compute_nll_per_candidate([candidate, *without], ticks)
            best = int(np.argmin(costs))
            if costs[best] > cost - DOCTOR.min_gain:
                return candidate
            candidate = without[best]

    def _list_changes_from_wiring_file(
        self, candidate: CandidateWiring, accepted: Sequence[Hypothesis]
    ) -> list[_Change]:
        """Return the differences between a candidate and the wiring file, grouped for the report.

        Channels or motors that an accepted hypothesis changed together are reported together.
        """
        nominal, found = self._configured, []
        groups = [
            one.members for one in accepted if one.is_group_mistake and not one.concerns_motors
        ]
        moved = np.flatnonzero(candidate.slots != nominal.slots)
        found += [
            _Change("slots", cycle)
            for cycle in _group_permuted_members(candidate.slots, moved, accepted)
        ]
        unusable = np.flatnonzero(candidate.unusable & self._heard)
        found += [_Change("unusable", (int(k),)) for k in unusable]
        found += [_Change("delay", (int(k),)) for k in np.flatnonzero(candidate.delay)]
        shifted = ~np.isclose(candidate.offset, nominal.offset)
        factors = candidate.scale / nominal.scale
        found += [_Change("line", (int(k),)) for k in np.flatnonzero(shifted)]
        scaled = [int(k) for k in np.flatnonzero(~np.isclose(factors, 1.0) & ~shifted)]
        found += [
            _Change("line", members, True) for members in _group_by_factor(scaled, factors, groups)
        ]
        groups = [one.members for one in accepted if one.is_group_mistake and one.concerns_motors]
        moved = np.flatnonzero(candidate.motors != nominal.motors)
        found += [
            _Change("motors", cycle)
            for cycle in _group_permuted_members(candidate.motors, moved, accepted, True)
        ]
        driven = [int(m) for m in np.flatnonzero(~np.isclose(candidate.gain, 1.0))]
        found += [
            _Change("gain", members, True)
            for members in _group_by_factor(driven, candidate.gain, groups)
        ]
        return found

    def _revert_change(
        self, candidate: CandidateWiring, change: _Change, members: Sequence[int]
    ) -> CandidateWiring:
        """Return the candidate with one change undone for some of its channels or actuators."""
        return candidate.with_values_from(self._configured, change.what, members)

    def _make_finding(
        self, change: _Change, candidate: CandidateWiring, log_odds: float
    ) -> Finding:
        """Return the finding that describes one change of the wiring file."""
        recording, what = self._recording, change.what
        of = recording.actuators if what in ("motors", "gain") else recording.ids
        names = tuple(of[m] for m in change.members)
        first = change.members[0]
        if what in ("slots", "motors"):
            slots = candidate.slots if what == "slots" else candidate.motors
            from_ = ", ".join(f"{of[m]} from {of[slots[m]]}" for m in change.members)
            pair = len(names) == 2
            word = "motors" if what == "motors" else "channels"
            kind = "swapped" if pair else "permuted"
            kind = f"motors {kind}" if what == "motors" else kind
            text = (
                f"{names[0]} and {names[1]} are swapped"
                if pair
                else f"{len(names)} {word} are permuted"
            )
            return Finding(kind, names, text, from_, log_odds)
        if what == "unusable":
            stuck = self._moving[candidate.slots[first]] == 0.0
            kind = "stuck" if stuck else "noise only"
            text = "always reads the same" if stuck else "is unrelated to the robot's movements"
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
            return self._make_motor_finding(names, float(candidate.gain[first]), log_odds)
        factor = float(candidate.scale[first] / self._configured.scale[first])
        shifted = not np.isclose(candidate.offset[first], self._configured.offset[first])
        offset = float(candidate.offset[first]) if shifted else None
        inverted = bool(self._binary[first]) and shifted and factor < 0
        kind, text = _classify_and_describe_scale_or_offset(
            factor, offset, self._configured, first, inverted
        )
        correction = f"scale: {_format_number(candidate.scale[first])}" if factor != 1.0 else ""
        if len(names) > 1:
            correction = f"scale times {_format_number(factor)}"
        if offset is not None:
            correction += f"{', ' if correction else ''}offset: {_format_number(offset)}"
        return Finding(kind, names, text, correction, log_odds, factor, offset)

    def _make_motor_finding(
        self, actuators: tuple[str, ...], gain: float, log_odds: float
    ) -> Finding:
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
        return Finding(
            kind, actuators, text, f"scale times {_format_number(factor)}", log_odds, factor
        )

    def _find_undetectable_mistakes(
        self, candidate: CandidateWiring, ticks: np.ndarray
    ) -> tuple[Unseen, ...]:
        """Find the mistakes that could not be found, because the robot moved too little.

        Each possible mistake is added to the corrected wiring on purpose. It is undetectable if the
        search would not accept its correction. Channels that were never read, or that never
        changed, are listed too.
        """
        never = tuple(id_ for k, id_ in enumerate(self._recording.ids) if not self._heard[k])
        found = [Unseen("sign", (id_,), "it was never read") for id_ in never]
        still = self._heard & (self._moving == 0.0) & ~candidate.unusable
        found += [
            Unseen("stuck", (id_,), STILL_HINT)
            for id_, is_still in zip(self._recording.ids, still, strict=True)
            if is_still
        ]
        tests = self._list_deliberate_mistakes_with_hints(candidate)
        few = self._likelihood.select_evenly_spread_ticks(DOCTOR.screened)
        costs = self._likelihood.compute_nll_per_candidate(
            [candidate, *(one[0].candidate for one in tests)], few
        )
        plain = (costs[1:] - costs[0]) / len(few) > DOCTOR.plain
        right = self._compute_tick_costs(candidate, ticks)
        for (one, hint), is_plain in zip(tests, plain, strict=True):
            if is_plain:
                continue
            wrong = self._compute_tick_costs(one.candidate, ticks)
            if not self._is_acceptable(one, self._compare_costs(wrong, right)):
                of = self._recording.actuators if one.concerns_motors else self._recording.ids
                found.append(Unseen(one.kind, tuple(of[m] for m in one.members), hint))
        return tuple(dict.fromkeys(found))

    def _list_deliberate_mistakes_with_hints(
        self, candidate: CandidateWiring
    ) -> list[tuple[Hypothesis, str]]:
        """Return mistakes to add to a wiring on purpose, to see whether they would be found.

        Each comes with a hint that tells the user how to move the robot so that it would be found.
        """
        tests = []
        usable = np.flatnonzero(self._heard & ~candidate.unusable).tolist()
        for k in usable:
            shift = OFFSET * self._compute_standard_deviation(candidate, k)
            hint = "move the robot further and faster in it"
            if self._moving[candidate.slots[k]] == 0.0:
                hint = STILL_HINT
            changed = [
                ("sign", candidate.with_scale_factor([k], -1.0)),
                ("scale", candidate.with_scale_factor([k], 0.5)),
                ("scale", candidate.with_scale_factor([k], 2.0)),
                ("offset", candidate.with_offset(k, float(candidate.offset[k]) + shift)),
                ("offset", candidate.with_offset(k, float(candidate.offset[k]) - shift)),
                ("delay", candidate.with_delay(k, 1)),
            ]
            tests += [(Hypothesis(kind, (k,), one), hint) for kind, one in changed]
        for a, b in combinations(usable, 2):
            crossed = candidate.with_permuted_channels([a, b], [b, a])
            tests.append((Hypothesis("swapped", (a, b), crossed), "move the robot further in both"))
        driven = [m for m in range(len(candidate.gain)) if candidate.gain[m]]
        hint = "drive the robot so that it is used more"
        for m in driven:
            for kind, gain in (("motor reversed", -1.0), ("motor dead", 0.0), ("motor gain", 0.4)):
                tests.append((Hypothesis(kind, (m,), candidate.with_motor_gain([m], gain)), hint))
        for a, b in combinations(driven, 2):
            crossed = candidate.with_permuted_motors([a, b], [b, a])
            tests.append((Hypothesis("motors swapped", (a, b), crossed), hint))
        return tests

    def _make_notes_on_lag_and_excess(self, excess: float, any_found: bool) -> list[str]:
        """Return remarks on a lag of all readings, and on an excess that no mistake explains."""
        notes = []
        if lag := self._likelihood.lag:
            notes.append(
                f"all readings are {lag} tick{'s' * (lag > 1)} late: no mistake of the wiring"
            )
        usual = DOCTOR.misfit * len(self._recording.ids)
        if excess > usual and any_found:
            notes.append(
                f"apart from these findings the excess NLL is {excess:.0f} nats a tick, as of a"
                " robot that has fallen: correct the wiring, then check again"
            )
        elif excess > usual:
            notes.append(
                f"the model explains the readings {excess:.0f} nats a tick worse than in its"
                " validation, and no line of the wiring explains that: the robot's mass or friction"
                " may differ from training, or the mistake is of a kind that the doctor does not"
                " test"
            )
        return notes


class _TickCosts(NamedTuple):
    """Costs of K ticks under one candidate wiring, in nats, as arrays (K,)."""

    cost: np.ndarray
    """(K,) cost of each tick, summed over all channels."""
    excess_nll: np.ndarray
    """(K,) excess of each tick: its cost minus that in the model's validation, summed over the
    usable channels."""


class CostEvidence(NamedTuple):
    """Numbers that say how much better a corrected mistake explains the recorded readings."""

    gain: np.ndarray
    """(K,) nats by which each tick costs less with the correction."""
    excess: float
    """Mean nats by which a tick costs more than in the model's validation, without the
    correction."""
    left: float
    """Mean nats by which a tick costs more than in the model's validation, with the correction."""
    restored: float
    """Nats that the correction gains in ticks that the model then explains as in its validation;
    negative if it spoils such ticks."""


class _Change(NamedTuple):
    """One difference between a candidate and the wiring file, shared by channels or actuators."""

    what: str
    """One of: slots, line (scale and offset), delay, unusable, motors, gain."""
    members: tuple[int, ...]
    """Indices of channels, or of actuators for motors and gain."""
    parts: bool = False
    """Whether each member may also be reverted alone."""


def _compute_median_effect(effects: np.ndarray) -> float:
    """Return the median of the motors' effects, limited to the range from 0.3 to 1.

    Effects that are NaN are left out; if all are NaN, the result is 1.
    """
    known = effects[~np.isnan(effects)]
    return float(np.clip(np.median(known), 0.3, 1.0)) if len(known) else 1.0


def _group_permuted_members(
    places: np.ndarray, moved: np.ndarray, accepted: Sequence[Hypothesis], are_motors: bool = False
) -> list[tuple[int, ...]]:
    """Group channels or motors that changed places, one group for each exchange.

    Those that an accepted hypothesis permuted together form one group. `places` has for each
    channel or motor the index of the one whose place it has now; `moved` has the indices of those
    that changed places.
    """
    left, found = set(moved.tolist()), []
    for one in accepted:
        if one.kind in ("permuted", "motors permuted") and one.concerns_motors is are_motors:
            members = tuple(m for m in one.members if m in left)
            if members and {int(places[m]) for m in members} == set(members):
                found.append(members)
                left -= set(members)
    while left:
        cycle = [left.pop()]
        while (next_ := int(places[cycle[-1]])) in left:
            left.remove(next_)
            cycle.append(next_)
        found.append(tuple(sorted(cycle)))
    return found


def _group_by_factor(
    members: Sequence[int], factors: np.ndarray, groups: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Group channels or motors whose scale or gain changed by the same factor.

    Changed members that are in none of the `groups`, or whose factors differ, form groups of one.
    """
    left, found = list(members), []
    for group in groups:
        inside = [m for m in group if m in left]
        if len(inside) > 1 and np.allclose(factors[inside], factors[inside[0]], rtol=0.02):
            found.append(tuple(inside))
            left = [m for m in left if m not in inside]
    return found + [(m,) for m in left]


def _classify_and_describe_scale_or_offset(
    factor: float, offset: float | None, nominal: CandidateWiring, channel: int, inverted: bool
) -> tuple[str, str]:
    """Return the kind of a mistake in a channel's scale or offset, and a text that describes it.

    The scale in the wiring file must be multiplied by `factor`; `offset` is the right offset, None
    if that in the file is right. A channel is inverted if it is binary and reads 1 for 0.
    """
    if inverted:
        return "inverted", "reads 1 where it should read 0, and 0 for 1"
    texts, kind = [], "offset"
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
    if offset is not None:
        difference = offset - nominal.offset[channel]
        texts.append(f"is off by {_format_number(-difference)}")
    return kind, ", ".join(texts)


def _format_number(value: float) -> str:
    """Return a number as text with seven significant digits, as for a wiring file."""
    return f"{float(f'{value:.7g}'):g}" if abs(value) < 1e-4 else f"{value:.7g}"
