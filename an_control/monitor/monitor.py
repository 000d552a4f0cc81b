"""The identity monitor: finds out by itself which slot carries which channel's signal.

A slot is a nominal id as it is wired; a signal is what a nominal channel means. In every tick the
forward model says what each channel should read now. While another assignment of slots to channels
explains the readings clearly better than the present one, signals may have moved (`detector`): from
then on that is verified against "nothing moved" (`search`, by the `evidence`). What is missing is
imputed (`imputation`), and the noise that all sensors carry is filtered out (`sensor_noise`). What
is stuck counts as missing, and of a message that came twice what was expected (`stuck_sensors`). In
place of readings that are late the policy gets what is predicted for now (`lateness`).

At the start, and when nothing explains the readings any more, the monitor is lost: it seeks an
assignment by the identity classifier alone. While slots stay missing it does so too
(`partial_search`). How ids and outputs follow from the assignment is in `belief`.
"""

from __future__ import annotations

import numpy as np

from an_control.monitor.assignment import Belief
from an_control.monitor.budget import Budget
from an_control.monitor.evidence import Record
from an_control.monitor.fit import RobotFit
from an_control.monitor.forward_model import (
    Costs,
    Expectation,
    ForwardModel,
    Prediction,
    zeroed,
)
from an_control.monitor.imputation import Imputation
from an_control.monitor.lateness import Lateness
from an_control.monitor.partial_search import PartialSearch
from an_control.monitor.search import UNKNOWN, AssignmentSearch, ChangeDetector
from an_control.monitor.sensor_noise import SensorNoise
from an_control.monitor.stuck_sensors import StuckSensors

FOUND_TICKS = 5
"""Consistent ticks in a row after which the monitor is no longer lost, if it is sure."""
SURE = 12.0
"""Nats that a channel must be away from being confused with another."""
SHOWN = 4
"""Channels that a text names."""
SETTLED_TICKS = 12
"""Ticks without a correction after which the belief is taken to have been right."""
BETTER = 10.0
"""Nats in a tick by which the present belief must explain the slots that move better than that one,
to judge by it what is stuck."""


class IdentityMonitor:
    """In: a tick's readings by slot. Out: the signals by channel, and `belief`.

    Args:
        forward: what the N channels should read.
        compiled: take the compiled formulas, which need numba.
        ordered: the policy needs every signal under its own id, as soon as that is known.
    """

    def __init__(self, forward: ForwardModel, *, compiled: bool, ordered: bool = False) -> None:
        self.channels = forward.channels
        self._forward, self._ordered = forward, ordered
        self._costs = Costs(forward, compiled=compiled)
        self._detector = ChangeDetector(self._costs, len(self.channels))
        self._budget = Budget(forward)
        self.fit = RobotFit(forward.limits, len(self.channels), forward.still_values)
        self._search = AssignmentSearch(forward, self._costs, self._budget, self.fit)
        self._imputation = Imputation(forward, self._costs)
        self._partial = PartialSearch(forward, self._costs.assign)
        self.lateness = Lateness(forward, self._costs)
        self.noise = SensorNoise(forward.max_roughness, forward.binary)
        self._may_stand_still = forward.binary | forward.constant
        self._should_move = np.flatnonzero(~self._may_stand_still)
        self._none, self._all = np.zeros((2, len(self.channels)), bool)
        self._all[:] = True
        self._sensors = StuckSensors(
            len(self.channels), forward.still_values, self._detector.max_surprise
        )
        self.reset()

    def reset(self) -> None:
        """Start an episode: the nominal wiring is believed."""
        self.belief = Belief.nominal(len(self.channels))
        self._settled = self.belief
        """The belief that was last taken to have been right."""
        self._judged = self.belief
        """The belief by which slots were last judged to be stuck or not."""
        self._known = self.belief.slots
        """(N,) the assignment that was known to be right last."""
        self._moved: tuple[np.ndarray, dict[str, str]] = self.belief.slots, {}
        """The assignment that `moved` was asked for last, and its answer."""
        self._passes = False
        """Whether the readings pass, as the model does not fit the robot."""
        self._stable_ticks = 0
        self._ahead: Expectation | None = None
        self.fit.reset()
        self._detector.set(0.0)
        self._budget.next_tick(fits=not self._passes)
        self._search.reset()
        self._imputation.reset()
        self._partial.reset()
        self.lateness.reset()
        self.noise.reset()
        self._sensors.reset()
        self._costs.noise_sd = 0.0

    @property
    def slots(self) -> np.ndarray:
        """(N,) the slot that is taken to carry each channel's signal; as it was known last while
        that is not known."""
        return self._known if self.lost else self.belief.slots

    @property
    def moved(self) -> dict[str, str]:
        """The channel whose signal each slot is taken to carry, where it is not its own."""
        slots = self.slots
        if slots is not self._moved[0]:
            names, pairs = self.channels, sorted(zip(slots.tolist(), self.channels, strict=True))
            self._moved = slots, {names[s]: name for s, name in pairs if names[s] != name}
        return self._moved[1]

    @property
    def misfit(self) -> str:
        """How the robot differs from the one that the model knows, or "" while it seems to fit."""
        fit = self.fit
        if fit.fits is not False:
            return ""
        if len(fit.slow):
            slow = [self.channels[slot] for slot in fit.slow]
            more = ", ..." if len(slow) > SHOWN else ""
            return f"the sensors of {', '.join(slow[:SHOWN])}{more} are slower than the policy"
        most = fit.limits.max_excess if fit.limits is not None else 0.0
        return (
            f"the readings differ from the expected ones by {fit.excess:.0f} nats a tick more than"
            f" where the model was trained (at most {most:.0f} fit)"
        )

    @property
    def lost(self) -> bool:
        """Whether it is not known which slot carries which signal, of those that are present."""
        known = self._imputation.missing_ticks > 0 and self._partial.knows
        return self.belief.lost and not (known and self.fit.fits is not False)

    @property
    def identified(self) -> np.ndarray:
        """(N,) of which channels it is known which slot carries their signal.

        None while slots are missing. All since the start, or once what was found has stood for
        `SETTLED_TICKS`; before that those that could hardly be confused with another.
        """
        belief, search = self.belief, self._search
        if belief.lost or self._imputation.missing_ticks:
            return self._none
        settled = belief.pinned or self._stable_ticks >= SETTLED_TICKS
        return self._all if settled and not search.following else search.sure(belief, SURE)

    @property
    def rewires(self) -> int:
        """How often signals were found to have moved, or to have been confused."""
        return self._search.rewires + self._partial.rewires

    @property
    def surprise(self) -> float:
        """Nats a tick, lately, above what is usual."""
        return self._detector.surprise

    def step(
        self, readings: np.ndarray, action: np.ndarray, *, evidence: bool = True
    ) -> np.ndarray:
        """One tick: readings (N,) float32 by slot, NaN where missing, and the action (A,) before.

        Without `evidence`, as after a command that no action stands for, the belief stays.
        Returns the signals (N,) under each channel's id, NaN where one is missing and not imputed;
        where they are late, what would be read now.
        """
        self.lateness.catch_up()
        given = self._step(readings, self.lateness.next_tick(action), evidence)
        self._budget.next_tick(fits=not self._passes)
        return self._ahead_of(given) if self.lateness.ticks and not self.belief.lost else given

    def _step(self, readings: np.ndarray, action: np.ndarray, evidence: bool) -> np.ndarray:
        """The same, as they are read; `action` (A,) is the one that they follow."""
        imputation, search, sensors = self._imputation, self._search, self._sensors
        as_read, readings = readings, sensors.step(readings)
        self.fit.watch(sensors.same, as_read)
        if (self.fit.fits is False) is not self._passes:
            self._change_over()
        if self._passes:
            return self._pass(as_read, action, evidence)
        search.catch_up(self.belief)
        belief = self.belief.next_tick()
        if imputation.next_tick(np.isnan(readings)):
            return self._hold(readings, action, belief, evidence)
        self._partial.stand_by()
        if not evidence and imputation.readings is not None:
            self.belief = belief
            return imputation.pass_by(readings, belief)
        if sensors.repeats and imputation.readings is not None and not belief.lost:
            assert imputation.signals is not None
            self.belief = belief
            return imputation.reckon(self._expect(imputation.signals, action).likeliest, belief)
        before = belief.slots
        if self._forward.imputes:
            belief = self._estimate_noise(belief, readings)
        expectation = None
        if imputation.signals is None or imputation.readings is None:
            belief = search.begin(belief)
            self._detector.set(UNKNOWN)
        else:
            expectation = self._expect(imputation.signals, action)
            prediction = expectation.prediction
            if self._finds_stuck(belief, readings, imputation.readings, prediction):
                return self._leave_out(belief, readings)
            belief = self._update(belief, readings, imputation.readings, expectation)
            if belief.slots is before:
                self.lateness.add(expectation, readings[before])
        if self._ordered and not belief.lost:
            belief = belief.unpinned()
        may_follow = not belief.lost or self.fit.limits is None
        self.belief = belief = belief.with_outputs(search.following and may_follow)
        self._stable_ticks = self._stable_ticks + 1 if belief.slots is before else 0
        signals = search.blend(belief, readings)
        if expectation is None:
            return imputation.step(readings, action, belief, signals, None)
        if not self.noise.sd or belief.lost:
            return imputation.step(readings, action, belief, signals, expectation.likeliest)
        signals = self._filtered(signals, expectation)
        filtered = belief.by_slot(signals)
        given = imputation.step(filtered, action, belief, signals, expectation.likeliest)
        imputation.keep(readings)
        return given

    def _change_over(self) -> None:
        """Let the readings pass from now on, as they were known to be wired last, or no more."""
        self._passes, belief = not self._passes, self.belief
        self._detector.set(self.fit.excess)
        if self._passes:
            belief = belief._replace(slots=self._known)
        self.belief = self._stand_by(belief)
        self._partial.stand_by()

    def _pass(self, readings: np.ndarray, action: np.ndarray, evidence: bool) -> np.ndarray:
        """A tick in which the model does not fit the robot: see if it does by now."""
        imputation, search, belief = self._imputation, self._search, self.belief.next_tick()
        slots, before, signals = belief.slots, imputation.readings, imputation.signals
        if self._forward.imputes:
            self.noise.estimate(readings)
            self._costs.noise_sd = self.noise.sd
        if evidence and before is not None and signals is not None and not np.isnan(readings).any():
            prediction = self._expect(signals, action).prediction
            reads = readings[slots]
            excess = self._costs.excess(reads - signals, reads, prediction)
            self.fit.add(float((excess - self._costs.of_noise(prediction)).sum()), known=False)
            search.add(Record(before, action, readings - before, readings))
            belief = search.reconsider(belief)
            if belief.slots is not slots:
                self.fit.restart()
        self.belief = belief
        imputation.follow(readings, belief)
        return readings[belief.outputs]

    def prepare(self, action: np.ndarray) -> None:
        """Do now, while there is time, what the next `step` would else do first.

        That is what the last tick's review has put off, and the prediction of what follows the last
        tick and this action (A,); `step` takes it where its action is this one.
        """
        self._search.catch_up(self.belief)
        self.lateness.catch_up()
        imputation = self._imputation
        if imputation.readings is not None and imputation.signals is not None:
            action = self.lateness.following(action)
            self._ahead = self._expect(imputation.signals, action)

    def _ahead_of(self, given: np.ndarray) -> np.ndarray:
        """What would be read now in place of what is `given` (N,) to the policy, which is late."""
        signals, belief = self._imputation.signals, self.belief
        if signals is None or np.isnan(signals).any():
            return given
        ahead = self.lateness.ahead(signals)[belief.channels[belief.outputs]]
        return np.where(np.isnan(given), given, ahead)

    def _expect(self, signals: np.ndarray, action: np.ndarray) -> Expectation:
        if self._ahead is not None and self._ahead.follows(signals, action):
            return self._ahead
        return self._forward.expect(signals, action)

    def _stand_by(self, belief: Belief) -> Belief:
        """Keep the assignment, until readings of all slots are there; a move that was still being
        verified is undone."""
        if self._search.following and self.fit.limits is not None:
            belief = belief._replace(outputs=belief.previous_outputs)
        self._search.stand_by()
        self._imputation.stand_by()
        return belief.unknown()

    def _hold(
        self, readings: np.ndarray, action: np.ndarray, belief: Belief, evidence: bool
    ) -> np.ndarray:
        """A tick in which slots stay missing."""
        imputation, partial, slots = self._imputation, self._partial, belief.slots
        link = None
        if self._forward.imputes:
            self.noise.estimate(readings)
            self._costs.noise_sd = self.noise.sd
        if evidence:
            link = imputation.link(readings, action, belief) if partial.explained else None
            belief = partial.step(readings, action, belief, link)
        else:
            partial.pause()
        belief = self._stand_by(belief)
        if belief.detected:
            imputation.moved()
            self.noise.signals_moved()
        if self._ordered and partial.explained:
            belief = belief._replace(outputs=belief.slots)
        if belief.slots is not slots:
            imputation.replay(belief)
        elif link is not None:
            self.lateness.add(link.expectation, readings[slots])
            if self.noise.sd:
                signals = self._filtered(readings[slots], link.expectation)
                readings = belief.by_slot(signals)
        self.belief = belief
        return imputation.hold(readings, action, belief, explained=partial.explained)

    def _filtered(self, signals: np.ndarray, expectation: Expectation) -> np.ndarray:
        """Signals (N,) by channel with less of the noise that all sensors have."""
        return self.noise.filter(expectation.likeliest, expectation.prediction.scale[0], signals)

    def _finds_stuck(
        self,
        belief: Belief,
        readings: np.ndarray,
        before: np.ndarray,
        prediction: Prediction,
    ) -> bool:
        """Whether a slot stands still that should move, by the belief that was right last, or by
        the present one where that explains much better what the other slots read."""
        judged = self._settled
        if not self._sensors.suspects(judged.slots[self._should_move]):
            return False
        excess = self._excess_of(judged.slots, readings, before, prediction)
        if belief.slots is not judged.slots and not belief.lost:
            present = self._excess_of(belief.slots, readings, before, prediction)
            moving = self._sensors.moving
            if float((excess - present)[moving].sum()) > BETTER:
                judged, excess = belief, present
        if judged.slots is not self._judged.slots:
            self._sensors.reassigned(self._judged.channels != judged.channels)
            self._judged = judged
        return self._sensors.judge(excess, judged.slots[self._may_stand_still])

    def _excess_of(
        self, slots: np.ndarray, readings: np.ndarray, before: np.ndarray, prediction: Prediction
    ) -> np.ndarray:
        """What each slot (N,) costs above what is usual, where these carry the channels."""
        excess = np.empty(len(slots))
        excess[slots] = self._costs.excess((readings - before)[slots], readings[slots], prediction)
        excess[slots[self._may_stand_still]] = 0.0  # two may have been confused
        return excess

    def _leave_out(self, belief: Belief, readings: np.ndarray) -> np.ndarray:
        """Without the stuck slots; what was detected meanwhile may have been nothing else."""
        self.belief = self._stand_by(belief.assigned(self._judged.slots))
        self._imputation.start_over()
        self._partial.trust()
        left = np.where(self._sensors.stuck, np.float32(np.nan), readings)
        return left[self.belief.outputs]

    def _estimate_noise(self, belief: Belief, readings: np.ndarray) -> Belief:
        """Where noise sets in, what was detected meanwhile may have been nothing else."""
        if self._stable_ticks >= SETTLED_TICKS and not belief.lost:
            self._settled = belief
        if not self._imputation.missing_ticks and self.noise.estimate(readings):
            belief = self._stand_by(belief.assigned(self._settled.slots))
        self._costs.noise_sd = self.noise.sd
        return belief

    def _update(
        self, belief: Belief, readings: np.ndarray, before: np.ndarray, expectation: Expectation
    ) -> Belief:
        """Compare assignments by this tick: readings (N,) by slot, now and before."""
        detector, search, prediction = self._detector, self._search, expectation.prediction
        new = search.next_tick()
        costs = np.zeros((len(readings), len(readings)))
        expected = expectation.expected[None]
        self._costs.add(costs, readings[None], expected, readings[None], prediction)
        move = detector.step(costs, prediction, belief, new=new)
        if move is not None:
            belief = belief if belief.lost else belief.unpinned()
            self.noise.signals_moved()
            belief = belief._replace(detected=True)
            found = search.start(belief, move, expectation)
            if found.slots is belief.slots:
                self.fit.add(detector.excess, known=not belief.lost)
            return found
        self.fit.add(detector.excess, known=not belief.lost)
        search.add(Record(zeroed(before), expectation.action, readings - before, readings))
        if search.to_verify:
            belief = search.verify(belief)
        elif detector.surprise > detector.max_surprise and (search.due or search.seeking):
            sought = search.seek(belief)
            if sought is not belief:
                detector.set(0.0)
            belief = sought
        else:
            belief = search.review(belief, prediction, surprising=detector.surprising)
        sure = belief.lost and detector.consistent >= FOUND_TICKS and search.margin(belief) > SURE
        if sure and search.confirms(belief, self._known):
            detector.surprise = 0.0
            search.found()
            self.fit.restart()
            belief = belief._replace(lost=False)
        if not belief.lost and not search.following:
            self._known = belief.slots
        return belief
