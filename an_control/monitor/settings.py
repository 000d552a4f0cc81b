"""All tuned numbers of the monitor and of the recovery, with unit, meaning and origin.

Unless its group says otherwise, a number was chosen on the shipped Ant (28 channels, 60 Hz) in
November 2026, and is used unchanged for the swing-up CartPole and the ten robots of
`experiments/ten_robots`. Pairs of returns (such as 1621 before, 2575 after) are mean returns of
episodes without and with the effect of the number. Protocols such as `25,swap=2` are described in
experiments/tables/report.md.

A nat is a unit of negative log-likelihood. Excess nats are the nats by which the cost of readings
is above their usual cost, which is the cost under the right assignment. A move is a change of the
slots at which sensor signals arrive. Numbers that were measured for one model (`FitLimits`) are in
its model file.
"""

from __future__ import annotations

from dataclasses import dataclass

FREEDOM = 3.0
"""Degrees of freedom of the prediction errors, which follow Student's t-distribution, because
contacts make heavy tails. This number and the next two are not settings, because the networks are
trained with them."""
MIN_LOG_SCALE, MAX_LOG_SCALE = -6.0, 3.0
"""Bounds of an error's log scale, in units of the channel's usual step."""


@dataclass(frozen=True)
class CostSettings:
    """Tuned numbers for the costs of assigning a reading to a channel.

    A cost is the negative log-likelihood, in nats, of the reading under the channel's prediction.
    The numbers were chosen on the Ant, which has contacts and constant channels.
    """

    move: float = 2.0
    """Penalty in nats for each moved channel, because a move of many channels must explain more."""
    min_probability: float = 0.02
    """Least probability that a binary channel reads otherwise than expected."""
    min_likelihood: float = 1e-5
    """Likelihood of a binary channel's reading that is neither 0 nor 1."""
    binary_scale: float = 0.003
    """Distance within which a reading counts as 0 or 1."""
    floor: float = 1e-6
    """Variance added to the variance of the errors."""
    constant_floor: float = 1e-12
    """Variance added for channels that never changed in training. It is far smaller than `floor`,
    because a joint at its limit hardly changes its reading, and a constant never does."""
    max_ratio: float = 1e6
    """Bound of the ratio of an error to its scale."""
    constant_max_ratio: float = 13.0
    """Bound of the ratio of an error to its scale for channels that never changed in training. With
    it a change costs at most 8 nats a tick, because such a channel may flicker on another robot."""
    noise_variances: float = 2.0
    """Factor on the noise's variance in a change; it is 2 because a change has the noise of two
    readings."""


@dataclass(frozen=True)
class StuckSettings:
    """Tuned numbers that decide when a sensor counts as stuck at one reading.

    They were chosen on the Ant with three of 28 sensors frozen, on HopperBullet and on
    BipedalWalker's lidar. On the Ant, a monitor without these rules lowered the mean return from
    2575 (without a monitor) to 1621.
    """

    ticks: int = 5
    """Consecutive ticks with the same reading after which a slot may be stuck; half as many once
    another slot is found to be stuck."""
    still_ticks: int = 40
    """Consecutive ticks with the same reading after which a slot may be stuck if a contact or a
    constant may have moved to it; the search finds such a move in half this time."""
    min_excess: float = 12.0
    """Excess nats that these ticks must cost in total, because the channel should have moved."""
    min_mean_excess: float = 2.0
    """Excess nats that each of these ticks must cost on average. A reading at the end of its range
    that could well move costs up to 1.7 (the beams of BipedalWalker's lidar), a frozen one mostly 3
    or more."""
    max_typical_excess: float = 3.0
    """Bound of the median of the moving slots' excess nats in a tick. Beyond this bound most
    signals have moved, and a slot that stands still may be a joint at its limit."""
    max_repeats: int = 3
    """Consecutive messages that may count as repeated ones. With a tenth of the messages repeated,
    the Ant's mean return was 2022 without this rule and 2570 with it."""
    moving_share: float = 0.5
    """Share of the slots that are neither contacts nor constants which must change for a tick to
    count; otherwise the robot stands still, or a message came twice."""
    better: float = 10.0
    """Nats in a tick by which the present assignment must explain the moving slots better than the
    last settled one, so that stuck slots are judged under it."""


@dataclass(frozen=True)
class NoiseSettings:
    """Tuned numbers for estimating and filtering the noise that all sensors have.

    They were chosen on the Ant with noise of 0.02 and 0.05, and on a hopper with noise of 0.02.
    """

    ticks: int = 25
    """Ticks from which the noise is estimated."""
    min_ticks: int = 12
    """Ticks before the first estimate."""
    every: int = 4
    """Ticks from one estimate to the next."""
    share: float = 0.1
    """Share of the channels that counts as the smoothest."""
    of_smoothest: float = 1.23
    """Factor from the apparent noise of the smoothest of 28 equally noisy channels to their real
    noise; computed."""
    of_second_difference: float = 0.6745 * 6.0**0.5
    """Median size of the second difference of normal noise with standard deviation 1; computed."""
    rate: float = 0.2
    """Weight of the newest value in the estimate, which is a running mean."""
    carried: float = 0.5
    """Share of a filtered reading's variance that enters the prediction of the next one."""
    outlier: float = 4.0
    """Standard deviations from the expected value, beyond which a reading is not filtered."""
    error_rate: float = 0.1
    """Weight of the newest squared error in its running mean."""
    first_error: float = 2.5
    """Initial mean squared error, in variances of the noise."""
    explained: float = 2.0
    """Mean squared error that the noise explains, in variances of the noise; over 1, because the
    noise is an estimate."""


@dataclass(frozen=True)
class SensorDelaySettings:
    """Tuned numbers for estimating the delay of the readings in ticks.

    They were chosen so that delays of one to three ticks are found on the Ant, but none if the Ant
    slips on ice, which has a similar effect on the readings.
    """

    max_ticks: int = 3
    """Longest delay that is considered, in ticks."""
    first_ticks: int = 100
    """Ticks at an episode's start in each of which another delay is compared."""
    every: int = 3
    """Ticks between two comparisons later, while nothing suggests another delay."""
    max_gain: float = 30.0
    """Most nats that a single tick may add in favour of another delay, because a foot that slips
    also looks like a delay."""
    slack: float = 2.0
    """Nats by which another delay must explain a tick better so that the tick counts for it,
    because a wrong model, as on ice, is wrong with every delay."""
    has_share: float = 60.0
    """Nats by which another delay must explain the readings better in total, since its total was
    last 0."""


@dataclass(frozen=True)
class SensorOffsetSettings:
    """Tuned numbers for estimating the constant offsets of sensors.

    They were chosen on the Ant, so that offsets of 0.05 of all joints' positions, or of roll and
    pitch, are found within four seconds, but none on an undisturbed robot.
    """

    first_ticks: int = 300
    """Ticks at an episode's start in which more ticks are used than later."""
    every: int = 3
    """Ticks from one tick from which the offsets are estimated to the next, in the first ticks, and
    as long as an offset is likely."""
    later_every: int = 9
    """The same number otherwise, to save time."""
    likely: float = 4.0
    """Standard deviations by which an offset must differ from 0 to be likely."""
    solve_every: int = 6
    """Used ticks from one solution of the least squares problem to the next."""
    products_per_tick: int = 400_000
    """Number of multiplications that the estimation may need in a tick on average. A model that
    needs more is used in fewer ticks."""
    max_channels: int = 120
    """Largest number of channels whose offsets are estimated. The time for a solution grows with
    its third power."""
    min_ticks: int = 100
    """Ticks before an offset is subtracted."""
    horizon_ticks: float = 250.0
    """Ticks after which a tick's weight has fallen to 1 / e, because a zero may change."""
    prior_sd: float = 0.1
    """Standard deviation of the offsets before any reading was seen."""
    min_certainty: float = 8.0
    """Standard deviations by which the first offset that is subtracted must differ from 0. They are
    too small by a factor of up to 4, because errors of successive ticks are alike."""
    min_size: float = 0.25
    """Size of the first offset that is subtracted, in usual changes of its channel in a tick."""
    further_certainty: float = 4.0
    """As `min_certainty`, for further offsets, because a robot with one offset often has more."""
    further_size: float = 0.1
    """As `min_size`, for further offsets."""
    noise_change: float = 1.5
    """Standard deviations of the noise that are subtracted from a change to tell whether the robot
    moves."""
    min_motion: float = 0.1
    """Least median change of the channels in a tick that is used, in usual changes. A robot that
    stands still repeats the same error in every tick, which would look like many offsets."""
    max_offset: float = 0.3
    """Largest offset that is subtracted. The wiring doctor reports larger ones."""
    step: float = 0.1
    """Usual changes of a channel by which the offset that is subtracted changes in a tick, so that
    the monitor does not take the change for a rewiring."""


@dataclass(frozen=True)
class DetectorSettings:
    """Tuned numbers that decide when a rewiring is suspected, or no assignment fits the readings.

    They were chosen on the Ant, with signals moved to other input slots every 25 and 100 steps.
    """

    tick_gain: float = 10.0
    """Nats by which another assignment must explain one tick better to be verified."""
    tick_gain_again: float = 60.0
    """Nats by which another assignment must explain one tick better in the `WINDOW` ticks after a
    move, when the present assignment may be wrong."""
    max_excess_nll: float = 15.0
    """Recent excess nats a tick beyond which the monitor is lost."""
    max_excess_nll_per_channel: float = 1.0
    """Nats added to `max_excess_nll` for each channel."""
    surprising_channel: float = 0.2
    """Recent excess nats a tick and channel from which on the readings are surprising, because two
    signals may have swapped without a jump (25,swap=2: 3012 before, 3254 after)."""
    consistent: float = 20.0
    """Excess nats in one tick below which an assignment may be right."""
    consistent_channel: float = 3.0
    """Nats added to `consistent` for each channel."""
    unknown: float = 60.0
    """Excess nats a tick that are assumed at the start."""
    rate: float = 0.1
    """Weight of the newest tick in the running mean of the excess."""


@dataclass(frozen=True)
class EvidenceSettings:
    """Tuned numbers for computing how well assignments of slots to channels fit the last ticks.

    They were chosen on the Ant, with signals moved every 25 steps.
    """

    max_identity_cost: float = 8.0
    """Most nats that the identity classifier may count against assigning a slot to a channel."""
    reckoning_growth: float = 1.2
    """Factor by which the errors of dead reckoning (predictions from predictions) grow in a
    tick."""
    classifier_rows: float = 7.0
    """Cost of one call of the classifier, in ticks under one assignment (`BudgetSettings`);
    measured."""
    swap_rows: float = 0.5
    """Cost of a tick under an assignment of which only the total is computed, in the unit of
    `classifier_rows`; measured."""


@dataclass(frozen=True)
class AssignmentSearchSettings:
    """Tuned numbers for finding and verifying an assignment of input slots to channels.

    They were chosen on the Ant with unknown wirings, and with two, four and all signals moved to
    other slots every 5 to 100 steps.
    """

    verify_ticks: int = 20
    """Ticks for which an assignment is verified."""
    reckoning_ticks: int = 6
    """Ticks of dead reckoning after a move."""
    turns: int = 3
    """Most rounds in one tick. A round predicts under an assignment, and then finds the best
    assignment by these predictions."""
    swaps: int = 8
    """Most swaps of two channels that are tried between two ticks."""
    max_swaps: int = 48
    """Swaps after which the likeliest ones are tried again."""
    newest_ticks: int = 8
    """Number of ticks by which swaps are compared if readings are surprising while nothing is
    verified."""
    min_identity_gain: float = 2.0
    """Nats for each moved channel by which the identity classifier must support a correction too;
    it supports right swaps of two channels by 5 to 16. If a robot lies on the ground, is worn or
    has noisy sensors, predictions may be wrong in such a way that moved signals seem to explain the
    readings. The classifier then contradicts (Ants on the ground: 3100 before, 3140 after)."""
    fade: float = 0.97
    """Share of the evidence that remains from tick to tick while nothing is verified."""
    review_ticks: int = 4
    """Ticks between two reviews of the evidence while nothing is verified."""
    nominal_prior: float = 8.0
    """Nats for each channel in favour of its wired slot, at the start."""


@dataclass(frozen=True)
class TrustSettings:
    """Tuned numbers that decide when an assignment of input slots to channels is known to be right.

    They were chosen on the Ant with unknown wirings.
    """

    consistent_ticks: int = 5
    """Consecutive ticks with low costs after which a monitor is no longer lost, if all channels are
    sure."""
    sure: float = 12.0
    """Nats that each swap of a channel with another must cost for the channel to be sure."""
    settled_ticks: int = 12
    """Ticks without a correction after which the assignment counts as right."""


@dataclass(frozen=True)
class FitSettings:
    """Tuned numbers that decide whether the forward model describes the connected robot.

    They also decide how well a suspected rewiring must explain the readings to be accepted. They
    hold for all models; `FitLimits` has the limits that are measured for each model. The numbers
    were chosen in tests on robots with other mass, friction, motor lag and sensor rate, so that
    monitors report no false rewiring and find the true ones (`experiments/monitor_fit`).
    """

    min_gain: float = 24.0
    """Least nats by which another assignment must explain the readings better."""
    ticks: int = 50
    """Ticks over which the excess nats are averaged, and after which slow slots are looked for."""
    seen_ticks: int = 100
    """Ticks for which the readings must be explained before the robot is known to fit."""
    bad_ticks: int = 20
    """Ticks with twice the largest excess after which the robot does not fit, if the assignment was
    known."""
    lost_ticks: int = 100
    """Ticks with twice the largest excess after which the robot does not fit, if the assignment was
    not known."""
    caution: float = 4.0
    """Factor on the nats by which another assignment must be better, while it is unknown whether
    the robot fits."""
    hysteresis: float = 0.8
    """Share of the largest excess below which a robot that did not fit may fit again."""
    strange: float = 0.18
    """Share of the largest excess from which on a robot counts as unusual, because similar channels
    seem to swap if a model explains no channel well (such as on a cheetah with motor lag)."""
    distrust: float = 1.5
    """Factor on a robot's share of the largest excess. On an unusual robot, the nats that a move
    must explain are multiplied by 1 plus the product."""
    strange_remaining: float = 0.6
    """Largest share of all channels' excess that may remain after a move on an unusual robot."""
    unexplained: float = 0.4
    """Share of the moved channels' excess that may remain after a move. A real move leaves nearly
    nothing of it, a wrong one leaves most of it."""
    unexplained_nats: float = 8.0
    """Nats for each moved channel that may remain in addition to the share `unexplained`."""
    start_nats: float = 5.0
    """Nats for each moved channel that may remain just after a move. After a hit that nothing
    explains (the Ant with a motor lag of 0.5), a wrong assignment leaves half of the excess of the
    channels that it moves, and three quarters of that of the other channels."""
    tick_nats: float = 2.0
    """Nats added to `start_nats` for each tick after the move on a usual robot; none at the largest
    excess."""
    remaining: float = 0.5
    """Share of all channels' excess. If no more than this remains after a move, `start_nats` and
    `tick_nats` do not apply."""
    channel_gain: float = 9.0
    """Nats that a move must explain for each of its channels, because among the many assignments of
    several channels one always explains the readings a little better."""
    gain_channels: int = 10
    """Most channels of a move that are counted with `channel_gain`."""
    others: float = 0.9
    """Nats that all channels together must gain, as a share of the moved channels' gain. A wrong
    assignment may explain the channels that it moves at the cost of the other channels, because it
    feeds the forward model wrong readings (two similar velocities of a cheetah with motor lag)."""
    repeated_share: float = 0.8
    """Share of a slot's changes that follow a repeated reading, from which on its sensor counts as
    slower than the ticks."""
    rounding: float = 1e-5
    """Largest change of a scaled reading that is taken for rounding, so that it says nothing about
    the rate of its sensor."""
    resting: float = 0.01
    """Largest distance of a reading from the value at which a contact or a constant rests, while
    sensors' offsets are subtracted; otherwise the reading must be equal."""
    min_changes: int = 8
    """Least number of changes from which the share for `repeated_share` is computed."""
    fade: float = 0.5
    """Share of the counts of changes and repeats that remains after each look for slow slots."""


@dataclass(frozen=True)
class BudgetSettings:
    """Limits on how much the search for an assignment of input slots may compute in a tick.

    They were measured on an ordinary CPU core with numba, for the Ant's 28 channels and 54,528
    weights. Episodes of a robot that works as usual are the same with and without these limits.
    """

    share: float = 0.08
    """Share of a tick's period that its search may take, by the estimate. In reality the Ant's
    search takes a tenth of the period, because caches are cold, a tick has fixed work, and work
    that was begun is finished."""
    unfit_share: float = 0.03
    """The same share if the model is known not to fit the robot; it is smaller because nothing
    waits for the search then."""
    call_s: float = 7e-5
    """Seconds for the calls that compare one assignment, compare one round of swaps, or run the
    classifier once, whatever their sizes."""
    product_s: float = 2.6e-11
    """Seconds for a tick's readings under one assignment, for each weight of the forward model."""
    pair_s: float = 6e-9
    """Seconds for a tick's readings under one assignment, for each pair of a slot and a channel.
    Together with `product_s`, the readings of the Ant take 6 us."""


@dataclass(frozen=True)
class ImputationSettings:
    """Tuned numbers for estimating missing channels.

    They say up to which share of missing channels estimates are made, how many of the other
    channels must fit their predictions, and for how many past ticks estimates can be made again.
    They were chosen on the Ant with 10 to 50 % of the channels missing and on a hopper with one
    missing.
    """

    max_missing: float = 0.5
    """Share of the slots up to which missing ones are imputed."""
    explained: float = 0.3
    """Share of the present channels that is well explained in every tick while others are missing.
    A poor estimate makes the predictions of some channels worse, but a move makes those of nearly
    all channels worse."""
    replay_ticks: int = 40
    """Ticks that are kept to be imputed again under another assignment."""


@dataclass(frozen=True)
class PartialSearchSettings:
    """Tuned limits of the search for an assignment while channels are missing.

    They decide when an assignment counts as explaining the readings, when it counts as surely
    right, and how much better another one must be. They were tuned on a hopper, and on the Ant with
    10 and 25 % of the channels missing and signals moved every 25 and 100 steps.
    """

    max_cost: float = 3.0
    """Mean nats of the classifier against the channels of the slots with readings, up to which the
    assignment counts as explained: right channels have 0.1 to 1.5, wrong ones 4 to 8."""
    sure_cost: float = 1.0
    """Mean nats of the classifier, as for `max_cost`, up to which the assignment is sure."""
    sure_ticks: int = 8
    """Ticks for which an assignment must be known to be sure."""
    rate: float = 0.2
    """Weight of the newest tick in the classifier's mean costs, once 1 / rate ticks were counted.
    """
    min_gain: float = 2.0
    """Nats by which another assignment must be better while the present one is new."""
    min_gain_later: float = 8.0
    """Nats by which another assignment must be better when the present one is no longer new."""
    new_ticks: int = 30
    """Ticks for which an assignment is new."""
    max_share: float = 0.6
    """Most that another assignment may cost if the present one is not explained, as a share of the
    present one's cost."""
    link_fade: float = 0.9
    """Share of the costs that were known when the search started, which remains from tick to tick.
    """
    wired_prior: float = 4.0
    """Nats for each channel in favour of the slot that it had when the search started, as long as
    that assignment explains the readings; for policies that need an order. Without it the
    classifier moved 6 to 10 channels of an Ant that was wired rightly but walked like another Ant
    than the one that it knew, and the Ant fell."""
    back: float = 8.0
    """Nats that count against the return of a missing signal at the tick at which other signals
    move."""
    min_link_gain: float = 5.0
    """Nats for each present slot by which another assignment must continue the last tick's readings
    better to count as a move."""
    max_excess: float = 3.0
    """Excess nats from which on a tick's readings count as not continuing the previous ones. After
    a move readings have 4 to 10 excess nats."""
    jump: float = 1.5
    """Factor on a slot's largest recent change from which on a change is a jump."""
    jumping: float = 0.35
    """Share of the slots that must jump to count as a move."""


@dataclass(frozen=True)
class NeuronStateSettings:
    """Tuned numbers for the monitor's corrections of the states of the policy's neurons.

    They were chosen on Ants whose signals moved every 25 steps, on Ants that start lying on the
    ground, and on a hopper whose signals moved every 100 steps. On the hopper they raised the mean
    return from 1,098 to 2,383.
    """

    replay_ticks: int = 40
    """Ticks after a move that are kept: twice as many as an assignment is verified."""
    identified: float = 4.0
    """Nats of evidence that the policy's attention gets for a channel that the monitor has
    identified."""


@dataclass(frozen=True)
class MonitorSettings:
    """All tuned numbers of the monitor, one group for each estimator."""

    stuck: StuckSettings = StuckSettings()
    delay: SensorDelaySettings = SensorDelaySettings()
    offset: SensorOffsetSettings = SensorOffsetSettings()
    noise: NoiseSettings = NoiseSettings()
    costs: CostSettings = CostSettings()
    detector: DetectorSettings = DetectorSettings()
    search: AssignmentSearchSettings = AssignmentSearchSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    budget: BudgetSettings = BudgetSettings()
    fit: FitSettings = FitSettings()
    trust: TrustSettings = TrustSettings()
    imputation: ImputationSettings = ImputationSettings()
    partial_search: PartialSearchSettings = PartialSearchSettings()
    neuron_state: NeuronStateSettings = NeuronStateSettings()


@dataclass(frozen=True)
class RecoverySettings:
    """Tuned numbers for freeing a robot that stands still by random actions ("pushes").

    They were chosen on 100 Ants that lay on the ground (seed 1). With pushes of six ticks, 86 of
    100 reached 85 % of the return of an undisturbed episode; with these numbers, all 100 did.
    """

    held_ticks: int = 3
    """Ticks for which each random action of a recovery is held."""
    max_pushes: int = 3
    """Most random actions of a recovery. The first recovery since the start or the last stop has
    one, each later one has one more."""
    pause_ticks: int = 20
    """Ticks after the start, a stop or the last push before a recovery may start. Pushed at once
    after a stop, 6 of 88 Ants that walk again by themselves fell and stayed down."""
    rate: float = 0.08
    """Weight of a tick in the running mean of changes."""
    first_change: float = 10.0
    """Initial running mean, in units of the change below which a robot counts as standing still."""
    in_command: float = 0.5
    """Share of the policy's last action that must have been sent so that the policy counts as being
    in command, because a robot that was stopped rightly stands still. A smaller share is enough if
    the sent commands approach the action, as under a rate limit."""
    max_change: float = 1.0
    """Bound of a reading's change in a tick, because a reading that jumps must not look like a
    moving robot."""


@dataclass(frozen=True)
class HandOverSettings:
    """Tuned numbers for the hand-over from a student to a policy that needs its channels in order.

    The student is a permutation-invariant policy, which acts first.
    """

    sure_ticks: int = 10
    """Ticks in a row for which the monitor must have known the order of the channels."""


@dataclass(frozen=True)
class ExcitationSettings:
    """Tuned numbers for finding the order of the channels by small motions of the actuators.

    They were chosen on 50 Ants that lay on the ground, and on 20 with other mass and friction.
    """

    pool_s: float = 0.08
    """Seconds over which readings and changes are averaged, a third of the fastest swing."""
    min_pools: int = 10
    """Least such means of a motion: of a short one they are taken over shorter times."""
    max_pools: int = 62
    """Most such means of a motion, which bounds the computing time."""
    common_share: float = 0.3
    """Share of the covariance that all channels have in common, as the runs are few."""
    floor: float = 1e-3
    """Variance added to that of each feature, as a share of the mean variance."""
    min_margin: float = 4.0
    """Nats that the exchange of two channels must cost for the order to be certain. Two channels
    whose mean recorded readings differ by less are not told apart."""
    max_distance: float = 2.5
    """Largest median over the channels of the squared distance from the recorded runs, in
    variances. 50 Ants had up to 1.2, Ants with other mass and friction 3.8 or more."""
    max_missing: float = 0.25
    """Largest share of the channels without any reading."""
    tries: int = 5
    """Number of times that the motions are played if the order is not certain."""
    lost_ticks: int = 100
    """Ticks after which a monitor that does not know the order has lost it, so that the next reset
    plays the motions again."""
    interruptions: int = 3
    """Number of times that a motion may be cut short by other commands before that is reported."""


MONITOR = MonitorSettings()
"""The shipped settings of the monitor."""
RECOVERY = RecoverySettings()
"""The shipped settings of the recovery."""
HAND_OVER = HandOverSettings()
"""The shipped settings of the hand-over."""
EXCITATION = ExcitationSettings()
"""The shipped settings of the excitation."""
