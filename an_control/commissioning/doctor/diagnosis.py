"""The wiring doctor: which lines of a wiring are wrong, by what a forward model explains.

Each fault of `wires` is compared with the wires as they are, by likelihood; the best one is taken
over, and the search goes on from there. At the end each fault must still be needed. What the
recording cannot tell apart is listed, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.likelihood import Likelihood
from an_control.commissioning.doctor.wires import (
    FACTORS,
    MAX_DELAY,
    MOTOR_FACTORS,
    ROUND,
    UNITS,
    Hypothesis,
    Recording,
    Wires,
    exchanges,
    groups_of,
)
from an_control.monitor.forward_model import ForwardModel


@dataclass(frozen=True)
class DoctorSettings:
    """Tuned numbers of the doctor.

    Chosen on the Ant, a mobile base, a cheetah and a hopper (`experiments/doctor`).
    """

    min_ticks: int = 60
    """Ticks below which nothing is concluded."""
    screened: int = 96
    """Ticks by which all faults are compared."""
    refined: int = 600
    """Ticks by which the likeliest are compared, and their numbers fitted."""
    finalists: int = 8
    """Faults that are refined."""
    max_faults: int = 8
    """Faults of one recording at most."""
    min_gain: float = 25.0
    """Nats that a fault must explain, beside its penalty."""
    min_tick_gain: float = 0.25
    """The same in each tick, in the mean."""
    min_share: float = 0.1
    """Share of the present excess that a fault must explain: on a robot whose physics differ, many
    faults explain a little."""
    min_moving: float = 0.3
    """Share of the ticks in which a channel must change for a number of it to be fitted."""
    min_fitted_gain: float = 0.75
    """Nats a tick that a fault with a number that is fitted must explain, and one of a sensor where
    another fault was found before."""
    min_fitted_share: float = 0.18
    """The same of a fault with a number that is fitted: one always fits a little."""
    min_later_share: float = 0.25
    """The same where another fault was found before."""
    min_motor_share: float = 0.03
    """The same of a motor, whose effect is measured beside that (`Likelihood.motor_effects`)."""
    min_effect: float = 0.3
    """By how much a motor's effect must differ from that of the others."""
    dead_effect: float = 0.35
    """Share of its usual effect that a dead motor may seem to have."""
    idle_effect: float = 0.2
    """Share of the usual effect below which a motor does nothing, whatever the likelihood."""
    sign_effect: float = 0.3
    """Share from which on the sign of an effect is sure."""
    usual_effect: float = 0.5
    """What the other motors must do at least for that."""
    crossed_effect: float = 0.5
    """Share of the usual effect that both motors of an exchange must have."""
    block: int = 20
    """Ticks whose gains count as one: those of neighbours are alike."""
    min_sigma: float = 3.5
    """Standard errors by which the mean gain of the blocks must be above zero."""
    fitted_sigma: float = 5.0
    """The same of a fault with a number that is fitted: the best of many is compared."""
    near_gain: float = 0.92
    """Share of the best fault's gain from which on another one is as likely, where their
    difference is not clear by the blocks either."""
    near_unit: float = 0.3
    """Logarithm of a scale's distance from a unit or a round number, up to which it may be that:
    a robot that has fallen moves as the model does not expect, which bends the fit."""
    unit_share: float = 0.88
    """Share of the fitted scale's gain that the unit must have."""
    dead_share: float = 0.85
    """The same of a motor that is dead."""
    near_offset: float = 0.05
    """Distance from an offset of another channel, up to which an offset is taken for that."""
    explained: float = 0.3
    """Excess nats of the worst channel up to which nothing more is sought, once a fault is found
    and all channels together cost what is usual."""
    visible: float = 12.0
    """Nats by which a reversed channel or motor must be worse, for it to count as seen."""
    least_factor: float = 1.25
    """Factor from which on a scale counts as wrong."""
    misfit: float = 0.35
    """Excess nats a tick and channel from which on physics differ, where no fault explains it."""


DOCTOR = DoctorSettings()
FACTORS_BOTH = (*FACTORS, *(1.0 / one for one in FACTORS))
MIN_BLOCK, FEWEST_BLOCKS = 4, 10
"""Ticks of a block at least, and blocks of a short recording."""
FITTED = ("offset", "scale", "delay", "unusable")
"""Kinds of faults of which one always fits a little."""
MAX_LOG_FACTOR = float(np.log(3e4))


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: as of `Hypothesis`.
        members: names of the channels or motors.
        text: what is wrong, as text for a table.
        correction: what it would become, as text, or what to do where no line of YAML can.
        log_odds: nats by which it is likelier than that nothing of this is wrong.
        factor: of the scale, where it changes.
        offset: the new one, where it changes.
        delay: ticks.
        fixable: whether other numbers or fields in the wiring repair it.
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
        """Return how sure it is in words."""
        return (
            "certain" if self.log_odds > 100 else "very likely" if self.log_odds > 30 else "likely"
        )


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found in a recording.

    Args:
        findings: what is wrong, the surest first.
        wires: as they should be, with all that can be repaired in a wiring.
        unseen: channels and motors that this recording cannot tell of, with what would.
        notes: what else there is to say.
        lag: ticks by which all readings are late.
        excess_before, excess_after: nats a tick above the usual, as configured and as it should be.
        ticks: that were compared.
        alternatives: faults that explain the recording as well as one of the findings.
    """

    findings: tuple[Finding, ...]
    wires: Wires
    unseen: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    lag: int = 0
    excess_before: float = 0.0
    excess_after: float = 0.0
    ticks: int = 0
    alternatives: tuple[str, ...] = ()


def diagnose(
    recording: Recording, forward: ForwardModel, settings: DoctorSettings = DOCTOR
) -> Diagnosis:
    """Find what is wrong in the wiring by which this was recorded.

    Args:
        recording: of the model's channels, in its order; 5 to 20 s of a robot that moves.
        forward: predicts them.
        settings: of the search.
    """
    return _Search(recording, forward, settings).run()


class _Search:
    """The search in one recording."""

    def __init__(
        self, recording: Recording, forward: ForwardModel, settings: DoctorSettings
    ) -> None:
        self._recording, self._forward, self._settings = recording, forward, settings
        self._nominal = Wires.from_recording(recording)
        self._groups = groups_of(recording.ids, recording.groups)
        motor_groups = groups_of(recording.actuators, None)
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
        """(N,) share of the ticks in which a channel changes."""
        self._binary = forward.binary
        self._found = False

    def run(self) -> Diagnosis:
        """Return the diagnosis."""
        settings, wires = self._settings, self._nominal
        self._likelihood = self._with_lag(wires)
        ticks = self._likelihood.sample(settings.refined)
        if len(ticks) < settings.min_ticks:
            note = f"{len(ticks)} ticks are too few; record at least {settings.min_ticks}"
            return Diagnosis((), wires, notes=(note,), ticks=len(ticks))
        still = (self._span == 0.0) & ~self._binary & ~self._fixed
        if np.count_nonzero(still) > 0.5 * len(still):
            still = np.zeros_like(still)  # the robot stands
        wires = replace(wires, unusable=~self._heard | still)
        self._lost = wires.unusable
        self._likelihood.impute(wires)
        before = float(self._likelihood.excess(wires, ticks).sum())
        taken: list[Hypothesis] = []
        alternatives: tuple[str, ...] = ()
        while len(taken) < settings.max_faults:
            found, rivals = self._best(wires, ticks)
            if found is None:
                break
            if rivals:
                alternatives += tuple(self._text(one) for one in rivals)
            taken.append(found)
            self._found = True
            wires = found.wires
            self._likelihood.impute(wires)
            excess = self._likelihood.excess(wires, ticks)
            if excess.sum() < 0.0 and excess.max() < settings.explained:
                break
        wires = self._needed(self._changes(wires, taken), wires, ticks)
        changes = self._changes(wires, taken)
        reverted = [self._reverted(wires, one, one.members) for one in changes]
        costs = self._likelihood.totals([wires, *reverted], ticks)
        findings = [
            self._finding(one, wires, float(cost - costs[0]))
            for one, cost in zip(changes, costs[1:], strict=True)
        ]
        findings.sort(key=lambda one: -one.log_odds)
        after = float(self._likelihood.excess(wires, ticks).sum())
        return Diagnosis(
            tuple(findings),
            wires,
            self._unseen(wires, ticks),
            tuple(self._notes(after, bool(findings))),
            self._likelihood.lag,
            before,
            after,
            len(ticks),
            alternatives,
        )

    def _with_lag(self, wires: Wires) -> Likelihood:
        """Return the likelihood with the lag of all readings that explains them best."""
        best, least, imputed = None, np.inf, None
        for lag in range(MAX_DELAY + 1):
            likelihood = Likelihood(self._forward, self._recording, lag)
            if not lag and np.isnan(self._recording.raw).any():
                likelihood.impute(wires)
                imputed = likelihood.imputed
            likelihood.imputed = imputed
            ticks = likelihood.sample(self._settings.screened)
            if len(ticks) < self._settings.min_ticks:
                break
            cost = float(likelihood.totals([wires], ticks)[0]) / len(ticks) + 2.0 * (lag > 0)
            if cost < least:
                best, least = likelihood, cost
        return best or Likelihood(self._forward, self._recording)

    # Faults

    def _faults(self, wires: Wires) -> list[Hypothesis]:
        """Return all faults that are compared from these wires on."""
        return [*self._of_channels(wires), *self._of_groups(wires), *self._of_motors(wires)]

    def _of_channels(self, wires: Wires) -> list[Hypothesis]:
        found = []
        usable = [k for k in range(len(wires.slots)) if not wires.unusable[k] and self._heard[k]]
        for k in usable:
            found.append(Hypothesis("sign", (k,), wires.scaled([k], -1.0)))
            if self._binary[k]:
                turned = wires.scaled([k], -1.0)
                found.append(Hypothesis("inverted", (k,), turned.shifted(k, 1.0 - wires.offset[k])))
            if self._moving[wires.slots[k]] < self._settings.min_moving and not self._binary[k]:
                continue  # too little is known of it for a number
            for factor in FACTORS_BOTH if self._span[wires.slots[k]] else ():
                found.append(Hypothesis("scale", (k,), wires.scaled([k], factor)))
            for offset in self._offsets(wires, k):
                found.append(Hypothesis("offset", (k,), wires.shifted(k, offset)))
            for ticks in range(1, MAX_DELAY + 1):
                found.append(Hypothesis("delay", (k,), wires.delayed(k, ticks)))
            found.append(Hypothesis("unusable", (k,), wires.without(k)))
        for a, b in combinations(usable, 2):
            found.append(Hypothesis("swapped", (a, b), wires.permuted([a, b], [b, a])))
        return found

    def _offsets(self, wires: Wires, k: int) -> list[float]:
        """Return offsets that a channel may have."""
        raw = self._recording.raw[:, wires.slots[k]]
        middle = float(np.nanmedian(raw)) * wires.scale[k]
        shifts = [0.1, 0.3, 0.7, 1.5, 3.0]
        signals = raw * wires.scale[k]
        spread = float(np.nanstd(signals)) or 0.1
        offsets = [wires.offset[k] + sign * shift for shift in shifts for sign in (-1, 1)]
        offsets += [wires.offset[k] + sign * shift * spread for shift in (1, 3) for sign in (-1, 1)]
        if self._forward.imputes:
            offsets.append(float(self._forward.typical[k]) - middle)
            assert self._likelihood.imputed is not None
            expected = float(np.median(self._likelihood.imputed[:, k]))
            offsets.append(expected - middle)
        return [one for one in offsets if one != wires.offset[k]]

    def _of_groups(self, wires: Wires) -> list[Hypothesis]:
        found = []
        for name, members in self._groups.items():
            usable = [k for k in members if not wires.unusable[k]]
            if len(usable) < 2:
                continue
            found.append(Hypothesis("sign", tuple(usable), wires.scaled(usable, -1.0), name))
            for factor in FACTORS_BOTH:
                scaled = wires.scaled(usable, factor)
                found.append(Hypothesis("scale", tuple(usable), scaled, name))
        for name, channels, others in exchanges(self._recording.ids, self._groups):
            moved = wires.permuted(channels, others)
            found.append(Hypothesis("permuted", channels, moved, name))
        return found

    def _of_motors(self, wires: Wires) -> list[Hypothesis]:
        found, motors = [], range(len(wires.motors))
        kinds = {-1.0: "motor reversed", 0.0: "motor dead"}
        for members, name in [
            *(((m,), "") for m in motors),
            *((members, name) for name, members in self._motor_groups.items()),
        ]:
            if any(wires.gain[m] == 0.0 for m in members):
                continue
            for factor in MOTOR_FACTORS:
                kind = kinds.get(factor, "motor gain")
                found.append(Hypothesis(kind, members, wires.driven(members, factor), name))
        effects = self._likelihood.motor_effects(wires, self._likelihood.sample(400))
        usual = float(np.clip(np.median(effects), 0.3, 1.0))
        for m in motors:
            factor = float(effects[m]) / usual
            if abs(factor - 1.0) > self._settings.min_effect and abs(factor) > 0.1:
                driven = wires.driven([m], factor)
                found.append(Hypothesis("motor gain", (m,), driven, "by its effect"))
        for a, b in combinations(motors, 2):
            crossed = wires.crossed([a, b], [b, a])
            found.append(Hypothesis("motors swapped", (a, b), crossed))
        for name, channels, others in exchanges(self._recording.actuators, self._motor_groups):
            crossed = wires.crossed(channels, others)
            found.append(Hypothesis("motors permuted", channels, crossed, name))
        return found

    # Comparing

    def _best(self, wires: Wires, ticks: np.ndarray) -> tuple[Hypothesis | None, list[Hypothesis]]:
        """Return the fault that explains most, None where none explains enough, and its rivals."""
        settings, likelihood = self._settings, self._likelihood
        few = likelihood.sample(settings.screened)
        faults = self._faults(wires)
        gains = likelihood.totals([wires], few)[0] - likelihood.totals(
            [one.wires for one in faults], few
        )
        gains = gains * (len(ticks) / len(few)) - [one.penalty for one in faults]
        finalists = self._distinct(faults, gains)
        refined = [self._refined(one, wires, ticks) for one in finalists]
        now = likelihood.costs([wires], ticks)[0].sum(1)
        costs = [likelihood.costs([one.wires], ticks)[0].sum(1) for one in refined]
        scores = [
            float((now - cost).sum()) - one.penalty
            for one, cost in zip(refined, costs, strict=True)
        ]
        order = np.argsort(scores)[::-1]
        excess = max(0.0, float(likelihood.excess(wires, ticks).sum()))
        accepted = [
            number
            for number in map(int, order)
            if self._explains(now - costs[number], refined[number], excess)
        ]
        for number in list(accepted):
            if refined[number].of_motors and not self._moves(refined[number], wires, ticks):
                accepted.remove(number)
            elif number == accepted[0]:
                break
        if not accepted:
            return self._idle(wires, ticks, excess)
        best = accepted[0]
        first = refined[best]
        if first.kind == "motor dead" and len(first.members) == 1:
            crossed = self._crossed(first.members[0], wires, ticks)
            if crossed is not None:
                return crossed, []
        rivals = []
        for other in map(int, order[1:]):
            if self._overlap(refined[other], refined[best]):
                continue
            difference = costs[other] - costs[best]
            if scores[other] > settings.near_gain * scores[best] and not self._clear(difference):
                rivals.append(refined[other])
        return refined[best], rivals

    def _distinct(self, faults: Sequence[Hypothesis], gains: np.ndarray) -> list[Hypothesis]:
        """Return the finalists: the best of each kind and members, the best first."""
        chosen: dict[tuple[str, tuple[int, ...], str], Hypothesis] = {}
        for number in np.argsort(gains)[::-1]:
            one = faults[number]
            chosen.setdefault((one.kind, one.members, one.name), one)
            if len(chosen) == self._settings.finalists:
                break
        return list(chosen.values())

    def _overlap(self, one: Hypothesis, other: Hypothesis) -> bool:
        """Return whether two faults say the same of the same members."""
        same = one.of_motors is other.of_motors
        return same and bool(set(one.members) & set(other.members))

    def _explains(self, gain: np.ndarray, one: Hypothesis, excess: float) -> bool:
        """Return whether a fault that gains so many nats in each tick (K,) explains enough."""
        settings = self._settings
        total, mean = float(gain.sum()), float(gain.mean())
        if total - one.penalty < settings.min_gain or mean < settings.min_tick_gain:
            return False
        share = settings.min_motor_share if one.of_motors else settings.min_share
        weak = one.kind in FITTED or (self._found and not one.of_motors)
        if weak and mean < settings.min_fitted_gain:
            return False
        if one.kind in FITTED:
            share = settings.min_later_share if self._found else settings.min_fitted_share
            return mean >= share * excess and self._clear(gain, settings.fitted_sigma)
        return mean >= share * excess and self._clear(gain)

    def _moves(self, one: Hypothesis, wires: Wires, ticks: np.ndarray) -> bool:
        """Return whether a fault of motors agrees with what each motor does."""
        settings, members = self._settings, list(one.members)
        before = self._likelihood.motor_effects(wires, ticks)
        others = np.delete(before, members)
        usual = float(np.clip(np.median(others), 0.3, 1.0)) if len(others) else 1.0
        before = before[members] / usual
        if np.abs(before - 1.0).max() < settings.min_effect:
            return False
        if one.kind == "motor dead":
            return bool(np.abs(before).max() < settings.dead_effect)
        after = self._likelihood.motor_effects(one.wires, ticks)[members] / usual
        return bool(np.abs(after - 1.0).sum() < 0.6 * np.abs(before - 1.0).sum())

    def _idle(
        self, wires: Wires, ticks: np.ndarray, excess: float
    ) -> tuple[Hypothesis | None, list[Hypothesis]]:
        """Return a motor that does nothing of what it should, and what else that may be.

        By its effect alone: a robot that lies where the model has never been is explained badly
        with and without it. Only where no sensor was found to be wrong: it would bend the effects.
        """
        settings = self._settings
        bent = (wires.slots != self._nominal.slots).any() or (wires.unusable & ~self._lost).any()
        bent |= not np.allclose(wires.scale, self._nominal.scale)
        bent |= not np.allclose(wires.offset, self._nominal.offset)
        if bent or excess < settings.misfit * len(wires.slots):
            return None, []
        effects = self._likelihood.motor_effects(wires, ticks)
        alive = wires.gain != 0.0
        usual = float(np.median(effects[alive]))
        idle = np.flatnonzero(alive & (effects < settings.idle_effect * max(usual, 0.0)))
        for motor in map(int, idle[:-1]):
            if (crossed := self._crossed(motor, wires, ticks)) is not None:
                return crossed, []
        motor = int(np.where(alive, effects, np.inf).argmin())
        others = np.delete(effects, motor)[np.delete(alive, motor)]
        if not len(others) or usual < settings.usual_effect:
            return None, []
        apart = np.abs(others / usual - 1.0)
        if effects[motor] > settings.idle_effect * usual or np.median(apart) > settings.min_effect:
            return None, []
        found = Hypothesis("motor dead", (motor,), wires.driven([motor], 0.0))
        if effects[motor] > -settings.sign_effect * usual:
            turned = Hypothesis("motor reversed", (motor,), wires.driven([motor], -1.0))
            return found, [turned] if effects[motor] < settings.sign_effect * usual / 2 else []
        return Hypothesis("motor reversed", (motor,), wires.driven([motor], -1.0)), [found]

    def _crossed(self, motor: int, wires: Wires, ticks: np.ndarray) -> Hypothesis | None:
        """Return the exchange with a motor by which both of them do what is expected."""
        cost = float(self._likelihood.totals([wires], ticks)[0])
        for other in range(len(wires.motors)):
            if other == motor or wires.gain[other] == 0.0:
                continue
            crossed = wires.crossed([motor, other], [other, motor])
            effects = self._likelihood.motor_effects(crossed, ticks)
            usual = float(np.clip(np.median(effects), 0.3, 1.0))
            if effects[[motor, other]].min() < self._settings.crossed_effect * usual:
                continue
            if self._likelihood.totals([crossed], ticks)[0] < cost - self._settings.min_gain:
                return Hypothesis("motors swapped", (motor, other), crossed)
        return None

    def _clear(self, gain: np.ndarray, sigma: float | None = None) -> bool:
        """Return whether the mean of the gains (K,) is by so many errors above zero.

        More where there are few blocks: their error is an estimate.
        """
        block = max(MIN_BLOCK, min(self._settings.block, len(gain) // FEWEST_BLOCKS))
        count = len(gain) // block
        blocks = gain[: count * block].reshape(count, block).mean(1)
        error = float(blocks.std(ddof=1)) / np.sqrt(count)
        least = (sigma or self._settings.min_sigma) * (1.0 + 4.0 / count)
        return float(blocks.mean()) > least * error

    def _refined(self, one: Hypothesis, wires: Wires, ticks: np.ndarray) -> Hypothesis:
        """Return a fault with the numbers that explain most."""
        if one.kind == "scale":
            return self._refined_scale(one, wires, ticks)
        if one.kind == "offset":
            (k,) = one.members
            offset = self._search_line(
                lambda value: wires.shifted(k, value),
                float(one.wires.offset[k]),
                0.5 * abs(float(one.wires.offset[k] - wires.offset[k])) + 1e-3,
            )
            for known in {*self._nominal.offset, *-self._nominal.offset}:
                if abs(offset - known) < self._settings.near_offset and known != wires.offset[k]:
                    offset = float(known)
            return one._replace(wires=wires.shifted(k, offset))
        if one.kind == "motor gain":
            members = list(one.members)
            first = float(one.wires.gain[members[0]] / wires.gain[members[0]])
            sign = np.sign(first)
            log = self._search_line(
                lambda value: wires.driven(members, float(sign * np.exp(value))),
                float(np.log(abs(first))),
                0.5,
                (-3.0, 3.0),
            )
            fitted = wires.driven(members, float(sign * np.exp(log)))
            if sign < 0 and abs(log) < self._settings.near_unit:
                turned = wires.driven(members, -1.0)
                now, as_turned, as_fitted = self._likelihood.totals([wires, turned, fitted], ticks)
                if now - as_turned > self._settings.unit_share * (now - as_fitted):
                    return one._replace(kind="motor reversed", wires=turned)
            if abs(np.exp(log)) < self._settings.idle_effect:
                still = wires.driven(members, 0.0)
                now, as_still, as_fitted = self._likelihood.totals([wires, still, fitted], ticks)
                if now - as_still > self._settings.dead_share * (now - as_fitted):
                    return one._replace(kind="motor dead", wires=still)
            return one._replace(wires=fitted)
        return one

    def _refined_scale(self, one: Hypothesis, wires: Wires, ticks: np.ndarray) -> Hypothesis:
        members = list(one.members)
        first = one.wires.scale[members[0]] / wires.scale[members[0]]
        sign = np.sign(first)

        def scaled(value: float) -> Wires:
            return wires.scaled(members, float(sign * np.exp(value)))

        bounds = -MAX_LOG_FACTOR, MAX_LOG_FACTOR
        log = self._search_line(scaled, float(np.log(abs(first))), 0.5, bounds)
        fitted = scaled(log)
        near = min((*UNITS, *ROUND), key=lambda unit: abs(log + np.log(unit)))
        if abs(log + np.log(near)) < self._settings.near_unit:
            named = scaled(-np.log(near))
            now, as_named, as_fitted = self._likelihood.totals([wires, named, fitted], ticks)
            if now - as_named > self._settings.unit_share * (now - as_fitted):
                fitted = named
        return one._replace(wires=fitted)

    def _search_line(
        self,
        wires_at: Callable[[float], Wires],
        middle: float,
        step: float,
        bounds: tuple[float, float] | None = None,
    ) -> float:
        """Return the value of least cost near `middle`, within the bounds."""
        few = self._likelihood.sample(max(200, self._settings.screened))
        for _ in range(5):
            values = middle + step * np.array([-1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0])
            if bounds is not None:
                values = np.clip(values, *bounds)
            costs = self._likelihood.totals([wires_at(value) for value in values], few)
            best = int(costs.argmin())
            middle = float(values[best])
            step *= 1.0 if best in (0, len(values) - 1) else 0.35
        return middle

    def _text(self, one: Hypothesis) -> str:
        """Return a fault as text."""
        of = self._recording.actuators if one.of_motors else self._recording.ids
        return f"{one.kind}: {one.name or ', '.join(of[m] for m in one.members)}"

    # What is reported

    def _needed(self, found: list[_Change], wires: Wires, ticks: np.ndarray) -> Wires:
        """Return the wires without what turned out not to be needed beside the other changes."""
        cost = self._likelihood.costs([wires], ticks)[0].sum(1)
        for one in found:
            for members in (one.members, *([(m,) for m in one.members] if one.parts else ())):
                without = self._reverted(wires, one, members)
                if one.what == "gain":
                    continue  # judged by its effect
                gain = self._likelihood.costs([without], ticks)[0].sum(1) - cost
                if float(gain.sum()) < self._settings.min_gain or not self._clear(gain):
                    wires = without
                    cost = self._likelihood.costs([wires], ticks)[0].sum(1)
        return wires

    def _changes(self, wires: Wires, taken: Sequence[Hypothesis]) -> list[_Change]:
        """Return how wires differ from those that are configured, changes that belong together."""
        nominal, found = self._nominal, []
        groups = [one.members for one in taken if one.of_group and not one.of_motors]
        moved = np.flatnonzero(wires.slots != nominal.slots)
        found += [_Change("slots", cycle) for cycle in _cycles(wires.slots, moved, taken)]
        unusable = np.flatnonzero(wires.unusable & self._heard)
        found += [_Change("unusable", (int(k),)) for k in unusable]
        found += [_Change("delay", (int(k),)) for k in np.flatnonzero(wires.delay)]
        shifted = ~np.isclose(wires.offset, nominal.offset)
        factors = wires.scale / nominal.scale
        found += [_Change("line", (int(k),)) for k in np.flatnonzero(shifted)]
        scaled = [int(k) for k in np.flatnonzero(~np.isclose(factors, 1.0) & ~shifted)]
        found += [_Change("line", members, True) for members in _together(scaled, factors, groups)]
        groups = [one.members for one in taken if one.of_group and one.of_motors]
        moved = np.flatnonzero(wires.motors != nominal.motors)
        found += [_Change("motors", cycle) for cycle in _cycles(wires.motors, moved, taken, True)]
        driven = [int(m) for m in np.flatnonzero(~np.isclose(wires.gain, 1.0))]
        found += [
            _Change("gain", members, True) for members in _together(driven, wires.gain, groups)
        ]
        return found

    def _reverted(self, wires: Wires, change: _Change, members: Sequence[int]) -> Wires:
        """Return the wires with these members of a change as they are configured."""
        return _with(wires, self._nominal, change.what, members)

    def _finding(self, change: _Change, wires: Wires, log_odds: float) -> Finding:
        """Return a change in words."""
        recording, what = self._recording, change.what
        of = recording.actuators if what in ("motors", "gain") else recording.ids
        names = tuple(of[m] for m in change.members)
        first = change.members[0]
        if what in ("slots", "motors"):
            slots = wires.slots if what == "slots" else wires.motors
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
            stuck = self._span[wires.slots[first]] == 0.0
            kind = "stuck" if stuck else "noise only"
            text = "always reads the same" if stuck else "is unrelated to the robot's movements"
            return Finding(
                kind, names, text, "no line repairs this: look at the sensor, its cable and driver",
                log_odds, fixable=False,
            )  # fmt: skip
        if what == "delay":
            late = int(wires.delay[first])
            return Finding(
                "delay", names, f"{late} tick{'s' * (late > 1)} later than the others",
                "no line repairs this: look at the driver's filter and rate",
                log_odds, delay=late, fixable=False,
            )  # fmt: skip
        if what == "gain":
            return self._motor_finding(names, float(wires.gain[first]), log_odds)
        factor = float(wires.scale[first] / self._nominal.scale[first])
        shifted = not np.isclose(wires.offset[first], self._nominal.offset[first])
        offset = float(wires.offset[first]) if shifted else None
        inverted = bool(self._binary[first]) and shifted and factor < 0
        kind, text = _line_text(factor, offset, self._nominal, first, inverted)
        correction = f"scale: {_number(wires.scale[first])}" if factor != 1.0 else ""
        if len(names) > 1:
            correction = f"scale times {_number(factor)}"
        if offset is not None:
            correction += f"{', ' if correction else ''}offset: {_number(offset)}"
        return Finding(kind, names, text, correction, log_odds, factor, offset)

    def _motor_finding(self, names: tuple[str, ...], gain: float, log_odds: float) -> Finding:
        if gain == 0.0:
            return Finding(
                "motor dead", names, "does nothing",
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
        return Finding(kind, names, text, f"scale times {_number(factor)}", log_odds, factor)

    def _unseen(self, wires: Wires, ticks: np.ndarray) -> dict[str, str]:
        """Return what reversed would be as likely, by name, with what would show it."""
        recording, settings = self._recording, self._settings
        names, several, hints = [], [], []
        for k, id_ in enumerate(recording.ids):
            if not self._heard[k]:
                names.append(id_)
                several.append(wires)
                hints.append("it was never read")
            elif not wires.unusable[k]:
                names.append(id_)
                several.append(wires.scaled([k], -1.0))
                still = self._span[wires.slots[k]] * abs(wires.scale[k]) < 1e-6
                hints.append("it did not change: move the robot so that it does" if still else
                             "move the robot further in it")  # fmt: skip
        for m, name in enumerate(recording.actuators):
            if wires.gain[m]:
                names.append(f"motor {name}")
                several.append(wires.driven([m], -1.0))
                hints.append("let the policy use it, or try --move")
        costs = self._likelihood.totals([wires, *several], ticks)
        worse = costs[1:] - costs[0]
        return {
            name: "reversed it would be likelier, but not surely: record for longer"
            if nats < -settings.visible
            else hint
            for name, hint, nats in zip(names, hints, worse, strict=True)
            if nats < settings.visible
        }

    def _notes(self, excess: float, found: bool) -> list[str]:
        notes = []
        if lag := self._likelihood.lag:
            notes.append(
                f"all readings are {lag} tick{'s' * (lag > 1)} late: no mistake of the wiring"
            )
        usual = self._settings.misfit * len(self._recording.ids)
        if excess > usual and found:
            notes.append(
                f"beside that the readings cost {excess:.0f} nats a tick more than usual, as those"
                " of a robot that has fallen do: correct the wiring, then check again"
            )
        elif excess > usual:
            notes.append(
                f"the model explains the readings {excess:.0f} nats a tick worse than in its"
                " validation, and no line of the wiring explains that: physics differ, or"
                " something is wrong that is not tried here"
            )
        return notes


class _Change(NamedTuple):
    """Members whose wires differ from those that are configured, in one respect."""

    what: str
    """slots, line (scale and offset), delay, unusable, motors or gain."""
    members: tuple[int, ...]
    parts: bool = False
    """Whether each member may also be as configured alone."""


FIELDS = {
    "slots": ("slots",),
    "line": ("scale", "offset"),
    "delay": ("delay",),
    "unusable": ("unusable",),
    "motors": ("motors",),
    "gain": ("gain",),
}


def _with(wires: Wires, other: Wires, what: str, members: Sequence[int]) -> Wires:
    """Return wires that are as the other ones in one respect of these members."""
    changed = {}
    for name in FIELDS[what]:
        values = getattr(wires, name).copy()
        values[list(members)] = getattr(other, name)[list(members)]
        changed[name] = values
    return replace(wires, **changed)


def _cycles(
    slots: np.ndarray, moved: np.ndarray, taken: Sequence[Hypothesis], motors: bool = False
) -> list[tuple[int, ...]]:
    """Return the members that changed places, those of one exchange together."""
    left, found = set(moved.tolist()), []
    for one in taken:
        if one.kind in ("permuted", "motors permuted") and one.of_motors is motors:
            members = tuple(m for m in one.members if m in left)
            if members and {int(slots[m]) for m in members} == set(members):
                found.append(members)
                left -= set(members)
    while left:
        cycle = [left.pop()]
        while (next_ := int(slots[cycle[-1]])) in left:
            left.remove(next_)
            cycle.append(next_)
        found.append(tuple(sorted(cycle)))
    return found


def _together(
    members: Sequence[int], factors: np.ndarray, groups: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Return the members by group, those of one group with the same factor together."""
    left, found = list(members), []
    for group in groups:
        inside = [m for m in group if m in left]
        if len(inside) > 1 and np.allclose(factors[inside], factors[inside[0]], rtol=0.02):
            found.append(tuple(inside))
            left = [m for m in left if m not in inside]
    return found + [(m,) for m in left]


def _line_text(
    factor: float, offset: float | None, nominal: Wires, channel: int, inverted: bool
) -> tuple[str, str]:
    """Return the kind of a wrong scale or offset, and what is wrong, as text."""
    if inverted:
        return "inverted", "reads 1 where it should read 0, and 0 for 1"
    texts, kind = [], "offset"
    if np.isclose(factor, -1.0):
        kind = "sign"
        texts.append("has the wrong sign")
    elif not np.isclose(factor, 1.0):
        kind = "scale"
        times = 1.0 / abs(factor)
        texts.append(f"reads {times:.3g} times too much" if times > 1.0 else
                     f"reads {1 / times:.3g} times too little")  # fmt: skip
        units = [text for unit, text in UNITS.items() if abs(np.log(times / unit)) < 0.02]
        texts += units[:1]
        if factor < 0:
            texts.append("with the wrong sign")
    if offset is not None:
        difference = offset - nominal.offset[channel]
        texts.append(f"is off by {_number(-difference)}")
    return kind, ", ".join(texts)


def _number(value: float) -> str:
    """Return a number as it stands in a wiring."""
    return f"{float(f'{value:.7g}'):g}" if abs(value) < 1e-4 else f"{value:.7g}"
