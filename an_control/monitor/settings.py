"""Every tuned number of the monitor and of the recovery, with its unit, meaning and origin.

Unless its group says otherwise a number was chosen on the shipped Ant (28 channels, 60 Hz) in
November 2026, and is used unchanged for the swing-up CartPole and the ten robots of
`experiments/ten_robots`. Pairs of returns (1621 before, 2575 after) are mean returns with and
without what the number stands for; protocols such as `25,swap=2` are those of docs/rewiring.md.

A nat is a unit of negative log-likelihood; excess nats are nats above what the same readings cost
where nothing moved. What was measured for one model alone (`FitLimits`) travels in its file.
"""

from __future__ import annotations

from dataclasses import dataclass

FREEDOM = 3.0
"""Degrees of freedom of the prediction errors, which follow Student's t: contacts make heavy tails.
Not a setting, like the next two: the networks are trained with it."""
MIN_LOG_SCALE, MAX_LOG_SCALE = -6.0, 3.0
"""Bounds of an error's log scale, in units of the channel's usual step."""


@dataclass(frozen=True)
class CostSettings:
    """What a reading costs as a channel; chosen on the Ant, with its contacts and constants."""

    move: float = 2.0
    """Nats that a moved channel costs: many that move must explain more than a few."""
    min_probability: float = 0.02
    """Least probability that a binary channel reads otherwise than expected."""
    min_likelihood: float = 1e-5
    """Likelihood of a reading that is neither 0 nor 1, as a binary channel."""
    binary_scale: float = 0.003
    """Distance within which a reading counts as 0 or 1."""
    floor: float = 1e-6
    """Variance added to that of the errors."""
    constant_floor: float = 1e-12
    """The same of channels that never changed in training: far stricter, as a joint at its limit
    reads next to nothing new and a constant nothing at all."""
    max_ratio: float = 1e6
    """Ratio of an error to its scale up to which it counts."""
    constant_max_ratio: float = 13.0
    """The same of channels that never changed in training: a change costs 8 nats a tick at most,
    since such a channel may flicker on another robot."""
    noise_variances: float = 2.0
    """Variances of the sensors' noise in a change: of the last reading and of the new one."""


@dataclass(frozen=True)
class StuckSettings:
    """When a sensor counts as stuck. Chosen on the Ant with three of 28 sensors frozen (1621 with a
    monitor without these rules, 2575 with none), HopperBullet and BipedalWalker's lidar."""

    ticks: int = 5
    """Ticks in a row with the same reading after which a slot may be stuck; half as many where
    another one is found to be."""
    still_ticks: int = 40
    """The same of a slot to which a contact or a constant may have moved, which the search finds in
    half that time."""
    min_excess: float = 12.0
    """Excess nats that these ticks must cost: by so much the channel should have moved."""
    min_mean_excess: float = 2.0
    """The same for one of these ticks, in the mean: a reading at the end of its range that could
    well move costs up to 1.7 (the beams of BipedalWalker's lidar), a frozen one mostly 3 and
    more."""
    max_typical_excess: float = 3.0
    """Excess nats in one tick of the median slot that moves: beyond it most signals have moved, and
    what stands still may be a joint at its limit."""
    max_repeats: int = 3
    """Messages in a row that may count as a repeated one. With a tenth of the messages repeated the
    Ant made 2022 without this rule and 2570 with it."""
    moving_share: float = 0.5
    """Share of the slots that are neither contacts nor constants which must change for a tick to
    count: else the robot stands still, or a message came twice."""
    better: float = 10.0
    """Nats in a tick by which the present assignment must explain the slots that move better than
    the last settled one, to be the one that stuck slots are judged by."""


@dataclass(frozen=True)
class NoiseSettings:
    """The noise that all sensors carry, and its filter. Chosen on the Ant with noise of 0.02 and
    0.05; the errors' part on a hopper with noise of 0.02 (1,074 before, 2,125 after)."""

    ticks: int = 25
    """Ticks by which the noise is estimated."""
    min_ticks: int = 12
    """Ticks after which it is estimated for the first time."""
    every: int = 4
    """Ticks from one estimate to the next."""
    share: float = 0.1
    """Share of the channels that counts as the smoothest."""
    of_smoothest: float = 1.23
    """Noise where the smoothest of 28 equally noisy channels seems to have 1; computed."""
    of_second_difference: float = 0.6745 * 6.0**0.5
    """Median size of the second difference of normal noise of sd 1; computed."""
    rate: float = 0.2
    """Weight of the newest value in the estimate."""
    carried: float = 0.5
    """Share of a filtered reading's variance that enters the prediction of the next."""
    outlier: float = 4.0
    """Sds from what is expected, beyond which a reading counts in full."""
    error_rate: float = 0.1
    """Weight of the newest squared error in the mean one."""
    first_error: float = 2.5
    """Mean squared error at first, in variances of the noise."""
    explained: float = 2.0
    """Mean squared error that the noise explains, in its variances: its sd is an estimate."""


@dataclass(frozen=True)
class LatenessSettings:
    """By how many ticks readings are late. Chosen on the Ant with delays of one to three ticks, and
    against ice, where no delay may be found."""

    max_ticks: int = 3
    """Longest delay that is looked for, in ticks."""
    first_ticks: int = 100
    """Ticks of an episode in which another delay is compared at each, one after the other."""
    every: int = 3
    """Ticks between two comparisons later, while nothing speaks for another delay."""
    max_gain: float = 30.0
    """Nats that a single tick may speak for another delay: a foot that slips is no delay."""
    slack: float = 2.0
    """Nats that a tick must speak for another delay to count: where the model is wrong, as on ice,
    it is so by every action."""
    enough: float = 60.0
    """Nats, since it last spoke against it, by which another delay must explain the readings
    better."""


@dataclass(frozen=True)
class DetectorSettings:
    """When signals may have moved, and when the monitor is lost; chosen on the Ant, moved every 25
    and 100 steps."""

    tick_gain: float = 10.0
    """Nats by which another assignment must explain one tick better to be verified."""
    tick_gain_again: float = 60.0
    """The same in the `WINDOW` ticks after that, when the present one may be wrong."""
    max_surprise: float = 15.0
    """Excess nats a tick, lately, beyond which the monitor is lost."""
    max_surprise_channel: float = 1.0
    """The same, added for each channel."""
    surprising_channel: float = 0.2
    """Excess nats a tick and channel, lately, from which on the readings are surprising: two
    signals may have swapped without a jump (25,swap=2: 3012 before, 3254 after)."""
    consistent: float = 20.0
    """Excess nats in one tick below which an assignment may be right."""
    consistent_channel: float = 3.0
    """The same, added for each channel."""
    unknown: float = 60.0
    """Excess nats a tick that are assumed at the start, where nothing is known."""
    rate: float = 0.1
    """Weight of the newest tick in the excess."""


@dataclass(frozen=True)
class EvidenceSettings:
    """How evidence for an assignment is collected; chosen on the Ant, moved every 25 steps."""

    max_identity_cost: float = 8.0
    """Nats that the identity classifier can speak against a channel."""
    reckoning_growth: float = 1.2
    """Factor by which the errors of dead reckoning grow in a tick."""
    classifier_rows: float = 7.0
    """Cost of asking the classifier, in ticks under one assignment (`BudgetSettings`); measured."""
    swap_rows: float = 0.5
    """The same of a tick under an assignment of which only the total is asked; measured."""


@dataclass(frozen=True)
class AssignmentSearchSettings:
    """How an assignment is sought and verified. Chosen on the Ant, moved every 5 to 100 steps, with
    two, four and all signals, and with unknown wirings."""

    verify_ticks: int = 20
    """Ticks for which an assignment is verified."""
    reckoning_ticks: int = 6
    """Ticks of dead reckoning after a move."""
    turns: int = 3
    """Turns of expecting and assigning, at most, in one tick."""
    swaps: int = 8
    """Swaps of two channels that are tried between two ticks, at most."""
    max_swaps: int = 48
    """Swaps after which the likeliest are tried again."""
    newest_ticks: int = 8
    """Ticks by which swaps are tried where readings are surprising although nothing is verified."""
    min_identity_gain: float = 2.0
    """Nats for each channel that moves by which the identity classifier must be for a correction,
    too: right swaps of two gain 5 to 16. Where a robot lies on the ground, is worn or has noisy
    sensors, predictions may be wrong in such a way that moved signals explain them; the classifier
    is then against it (Ants on the ground: 3100 before, 3140 after)."""
    fade: float = 0.97
    """Share of the evidence that remains from one tick to the next while nothing is verified."""
    review_ticks: int = 4
    """Ticks between two reviews of that evidence."""
    nominal_prior: float = 8.0
    """Nats by which each channel is assumed to be where it is wired, at the start."""


@dataclass(frozen=True)
class TrustSettings:
    """When an assignment counts as known; chosen on the Ant with unknown wirings."""

    consistent_ticks: int = 5
    """Consistent ticks in a row after which the monitor is no longer lost, if it is sure."""
    sure: float = 12.0
    """Nats that a channel must be away from being confused with another."""
    settled_ticks: int = 12
    """Ticks without a correction after which the assignment counts as right."""


@dataclass(frozen=True)
class FitSettings:
    """Whether the model fits the robot, and what a move must explain there. Chosen with robots of
    other mass, friction, lag and sensor rate, so that monitors invent no move and find those there
    are (`experiments/monitor_fit`)."""

    min_gain: float = 24.0
    """Nats by which another assignment must explain the readings better at least."""
    ticks: int = 50
    """Ticks over which the excess is averaged, and after which slow slots are looked for."""
    seen_ticks: int = 100
    """Ticks for which the readings must be explained before the robot is known to fit."""
    bad_ticks: int = 20
    """Ticks with twice the largest excess after which it does not fit, where the assignment was
    known."""
    lost_ticks: int = 100
    """The same where the assignment is still sought."""
    caution: float = 4.0
    """Factor on the gain that another assignment needs as long as it is not known whether the robot
    fits."""
    hysteresis: float = 0.8
    """Share of the largest excess below which a robot that did not fit may fit again."""
    strange: float = 0.18
    """Share of the largest excess from which on a robot counts as explained otherwise than usual:
    where a model explains no channel well, those that are alike seem to swap (a cheetah whose
    motors lag)."""
    distrust: float = 1.5
    """Factor on that share, by which a move needs more gain there."""
    strange_remaining: float = 0.6
    """Share of all channels' excess that a move may leave there at most."""
    unexplained: float = 0.4
    """Share of the moved channels' excess that a move may leave: a real one leaves nearly nothing,
    an invented one most of it."""
    unexplained_nats: float = 8.0
    """Nats a channel that it may leave beside that."""
    start_nats: float = 5.0
    """Nats a channel that it may leave unexplained at once. After a hit that nothing explains (the
    Ant with a motor lag of 0.5), a wrong assignment leaves half of its channels' excess and three
    quarters of the others'."""
    tick_nats: float = 2.0
    """The same for each tick after it on a robot that is explained as usual; none at the largest
    excess."""
    remaining: float = 0.5
    """Share of all channels' excess up to which what remains needs no such limit."""
    channel_gain: float = 9.0
    """Nats that a move must explain for each of its channels."""
    gain_channels: int = 12
    """Channels of a move up to which that counts: among the many assignments of several channels
    one explains any readings a little better."""
    others: float = 0.9
    """Share of its channels' gain that all channels must gain: what a wrong assignment explains of
    its own channels it may take from the others', as it feeds the forward model wrong readings (two
    alike velocities of a cheetah whose motors lag)."""
    repeated_share: float = 0.8
    """Share of a slot's changes that follow a repeated reading, where its sensor is slower than the
    ticks."""
    min_changes: int = 8
    """Least number of changes that this share is taken of."""
    fade: float = 0.5
    """Share of these counts that remains each time."""


@dataclass(frozen=True)
class BudgetSettings:
    """How much the search may compute in a tick. Measured on an ordinary core with numba, for the
    Ant's 28 channels and 54,528 weights; the shares leave healthy episodes as they are."""

    share: float = 0.08
    """Share of a tick's period that its search may take, as counted. With cold caches, what a tick
    does in any case and what it finishes after its budget is spent, the Ant's takes a tenth."""
    unfit_share: float = 0.03
    """The same where the model is known not to fit the robot: then nothing waits for the search."""
    call_s: float = 7e-5
    """Seconds for the calls that compare one assignment, compare one round of swaps, or ask the
    classifier once, whatever their sizes."""
    product_s: float = 2.6e-11
    """Seconds for a tick's readings under one assignment, for each weight of the forward model."""
    pair_s: float = 6e-9
    """The same for each pair of a slot and a channel. Together the Ant's take 6 us."""


@dataclass(frozen=True)
class ImputationSettings:
    """What is estimated of missing channels; chosen on the Ant with 10 to 50 % missing and on a
    hopper with one of its channels missing."""

    max_missing: float = 0.5
    """Share of the slots up to which missing ones are imputed."""
    explained: float = 0.3
    """Share of the present channels that are explained well in every tick while others stay
    missing: a poor estimate makes the predictions of some worse, signals that move those of nearly
    all."""
    replay_ticks: int = 40
    """Ticks that are kept to be imputed again."""


@dataclass(frozen=True)
class PartialSearchSettings:
    """The search while channels are missing. Chosen on the Ant with 10 and 25 % missing, moved
    every 25 and 100 steps (100,missing=0.25: 1007 before, 2174 after), and on a hopper."""

    max_cost: float = 3.0
    """Nats that the classifier may speak, in the mean of the present slots, against the channels
    that they are assigned to: against the right ones 0.1 to 1.5, against wrong ones 4 to 8."""
    sure_cost: float = 1.0
    """The same where the assignment is sure."""
    sure_ticks: int = 8
    """Ticks for which it must be known to be sure."""
    rate: float = 0.2
    """Weight of the newest tick in these costs, once there are as many."""
    min_gain: float = 2.0
    """Nats by which another assignment must be better while the present one is new."""
    min_gain_later: float = 8.0
    """The same later."""
    new_ticks: int = 30
    """Ticks for which an assignment is new."""
    max_share: float = 0.6
    """Share of the present assignment's cost that another may have where the present one is not
    explained."""
    link_fade: float = 0.9
    """Share that remains, from tick to tick, of what was known when the search began."""
    back: float = 8.0
    """Nats against a signal that is back just when others move."""
    min_link_gain: float = 5.0
    """Nats a present slot by which another assignment must continue the last tick's readings
    better, where signals moved."""
    max_excess: float = 3.0
    """Excess nats from which on a link is surprising: where signals moved it has 4 to 10."""
    jump: float = 1.5
    """Factor of a slot's largest change of late from which on it jumps."""
    jumping: float = 0.35
    """Share of the slots that jump where signals moved."""


@dataclass(frozen=True)
class NeuronStateSettings:
    """What the policy's neurons get from the monitor; chosen on the Ant moved every 25 steps and on
    the ground, and on a hopper moved every 100 steps (1,098 before, 2,383 after)."""

    replay_ticks: int = 40
    """Ticks after a move that are kept, twice as many as an assignment is verified."""
    identified: float = 4.0
    """Nats by which a channel is what the monitor knows it to be, to the policy's attention."""


@dataclass(frozen=True)
class MonitorSettings:
    """All tuned numbers of the monitor, by estimator, in the order of the pipeline."""

    stuck: StuckSettings = StuckSettings()
    lateness: LatenessSettings = LatenessSettings()
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
    """How a robot that stands still is pushed; chosen on 100 Ants on the ground (seed 1: 86 of 100
    made 85 % of the clean return with pushes of six ticks, 100 with these)."""

    held_ticks: int = 3
    """Ticks for which each random action of a recovery is held."""
    max_pushes: int = 3
    """Random actions of a recovery, one after the other: one in the first recovery since the start
    or the last stop, and one more in each that follows, up to so many."""
    pause_ticks: int = 20
    """Ticks after the start, a stop or the last push before a recovery may begin. Pushed at once
    after a stop, 6 of 88 Ants that walk again by themselves fell and stayed down."""
    rate: float = 0.08
    """Weight of a tick in the running mean of changes."""
    first_change: float = 10.0
    """The running mean at first, in least changes that count as movement."""
    in_command: float = 0.5
    """Share of the last action that must have been sent, for the robot to be in the policy's
    command: one that is stopped stands still rightly. Less is enough where what is sent comes
    nearer to the action, as behind a limited rate."""
    max_change: float = 1.0
    """Change of a reading at a tick up to which it counts: one that jumps must not look like a
    robot that moves."""


@dataclass(frozen=True)
class HandOverSettings:
    """When a policy that needs its channels in order takes over from a student that does not."""

    sure_ticks: int = 10
    """Ticks in a row for which the monitor must know the order."""


MONITOR = MonitorSettings()
"""The shipped settings of the monitor."""
RECOVERY = RecoverySettings()
"""The shipped settings of the recovery."""
HAND_OVER = HandOverSettings()
"""The shipped settings of the hand over."""
