"""Keep the thresholds with which the doctor searches for mistakes in a wiring."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Number of ticks whose gains are averaged, because the gains of neighbours are correlated."""
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
FITTED = ("offset", "scale", "delay", "unusable")
"""Kinds of mistakes that always explain a little, because a number is fitted."""
