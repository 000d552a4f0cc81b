"""The forward model: predicts the next reading of every channel of the robot.

One network takes the readings in the model's nominal order and the action, and returns for each
channel its change and the scale of the error, or for a binary channel the probability that it reads
1. A smaller network, the identity classifier, takes a single input slot's readings of some ticks
and the actions, and returns which channel they are from. A third network estimates missing
channels. The networks are stored in the policy's model file. With them the identity monitor finds
which slot carries which sensor's signal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from an_control.monitor.settings import MAX_LOG_SCALE, MIN_LOG_SCALE
from an_control.policy.model_file import Model
from an_control.policy.sizes import WINDOW
from an_control.system.blas import one_blas_thread

F32 = np.float32
Layer = tuple[np.ndarray, np.ndarray]
NETWORKS = ("forward.", "identity.", "imputation.")
"""The prefixes of the networks' array names."""
LEAST_CHANGE = F32(1e-4)
"""The number added to the mean magnitude of a channel's changes; the sum is the channel's usual
step."""
DEFAULT_STEP_S = 0.02
"""The period of a task's ticks if the task names none."""


class FitLimits(NamedTuple):
    """Limits of the prediction errors up to which a model counts as fitting the connected robot.

    They were measured when the model was validated, after its training.
    """

    max_excess: float
    """Largest mean of the excess nats (costs above the usual ones) in a tick, over
    `FitSettings.ticks` ticks."""
    min_gain: float
    """Nats by which another assignment must explain the readings better so that the monitor uses
    it."""
    slow: int
    """The number of slots that repeat readings as sensors slower than the control rate do."""


class ChangePrediction(NamedTuple):
    """The forward model's prediction of how N channels change in one or more ticks.

    All fields have the shape (..., N), float32.
    """

    change: np.ndarray
    """The change since the last reading; meaningless for a binary channel."""
    scale: np.ndarray
    """The scale of the change's error, in the reading's unit."""
    probability: np.ndarray
    """The probability that a binary channel reads 1."""


class ExpectedReadings(NamedTuple):
    """The readings that the forward model expects in a tick, and what it computed them from."""

    signals: np.ndarray
    """(N,) the known signals by channel."""
    action: np.ndarray
    """(A,) the action that followed them."""
    prediction: ChangePrediction
    """The prediction for this one tick, with fields (1, N)."""
    expected: np.ndarray
    """(N,) the signals plus the predicted changes."""
    likeliest: np.ndarray
    """(N,) as `expected`, but for a binary channel the probability that it reads 1."""

    def is_computed_from(self, signals: np.ndarray, action: np.ndarray) -> bool:
        """Return whether this expectation was computed from the given signals and action.

        Args:
            signals: (N,) the signals; they must be the same array object, not only equal numbers.
            action: (A,) the action; equal numbers are enough.
        """
        return self.signals is signals and (
            self.action is action or bool((self.action == action).all())
        )


class ForwardModel:
    """The networks of a model file by which the monitor finds out which sensor is which.

    The first network predicts the next readings. The second says which channel an input slot's
    readings are from. The third, which is optional, estimates missing readings.

    Args:
        model: The model as read from its file, which must contain these networks.
    """

    def __init__(self, model: Model) -> None:
        from an_control.monitor import kernels  # imported here, as importing numba takes a second

        assert model.forward is not None
        self.sizes = model.forward
        self.channels: tuple[str, ...] = model.task.channels
        self.binary = np.array([name in model.forward.binary for name in self.channels])
        arrays = model.arrays
        self._forward = _get_first_layers(arrays, "forward", len(model.forward.hidden) + 1)
        self._classifier = _get_first_layers(arrays, "identity", 3)
        self._common = np.ascontiguousarray(arrays["identity.common"].T, F32)
        self._units = arrays["identity.units"]
        self.actions = len(self._forward[0][0]) - len(self.channels)
        self.products = sum(weight.size for weight, _ in self._forward)
        """The number of multiplications in one prediction."""
        self.step_s = model.task.step_s or DEFAULT_STEP_S
        """The period of the task's control steps in seconds."""
        self.imputes = self.sizes.imputation > 0
        """Whether the model can estimate missing channels."""
        self.usual_change = arrays["forward.step"].astype(F32)
        """(N,) the usual magnitude of each channel's change in a tick."""
        self.constant = self.usual_change <= LEAST_CHANGE
        """(N,) True for channels that never changed within a training episode."""
        self.alike = np.eye(len(self.channels), dtype=bool)
        """(N, N) True for pairs of channels that read the same constant and cannot be told
        apart."""
        self.still_values = np.array([0.0, 1.0], F32)
        """The values at which contact sensors and constant channels rest."""
        self.max_roughness = math.inf
        """The roughness of the readings up to which they count as free of noise (see
        `sensor_noise.estimate_noise_of_smoothest_channels`)."""
        if self.imputes:
            self._imputation = _get_first_layers(arrays, "imputation", 3)
            self.typical, self.min_seen, self.max_seen = arrays["imputation.typical"].astype(F32)
            same = self.min_seen == self.max_seen
            self.still_values = np.union1d(self.still_values, self.min_seen[same])
            self.alike |= same[:, None] & same & (self.min_seen[:, None] == self.min_seen)
            self.max_roughness = float(arrays["imputation.max_roughness"][0])
        self.usual_costs = arrays["forward.usual"].astype(F32)
        """(N,) the mean cost of each channel's readings in nats if each slot feeds its channel (see
        `costs`)."""
        measured = self.sizes.validation
        self.limits: FitLimits | None = None
        """The bounds from the model's validation; None if it was not validated."""
        if measured is not None:
            self.limits = FitLimits(measured.max_excess, measured.min_gain, measured.slow)
        self._predict_tick = kernels.predict_next_changes if kernels.COMPILES else None
        self._weights, self._biases = zip(*self._forward, strict=True)
        self.predict_changes(
            np.zeros((1, len(self.channels)), F32), np.zeros((1, self.actions), F32)
        )

    def predict_changes(self, readings: np.ndarray, actions: np.ndarray) -> ChangePrediction:
        """Predict how the readings change until the next tick.

        Args:
            readings: (..., N) the present readings in the model's order of channels, 0 for missing
                ones.
            actions: (..., A) the action after each tick's readings, or one action (A,) for all
                ticks.

        Returns:
            The predicted changes, the scales of their errors, and the probabilities that binary
            channels read 1.
        """
        if actions.shape[:-1] != readings.shape[:-1]:
            actions = np.broadcast_to(actions, (*readings.shape[:-1], actions.shape[-1]))
        x = np.concatenate([readings, actions], -1).astype(F32)
        if self._predict_tick is not None and readings.shape == (1, len(self.channels)):
            tick = self._predict_tick(x[0], self._weights, self._biases, self.usual_change)
            return ChangePrediction(*tick)
        return self._predict_next_changes_by_numpy(x)

    @one_blas_thread
    def _predict_next_changes_by_numpy(self, x: np.ndarray) -> ChangePrediction:
        """Predict how the readings change until the next tick, by numpy, for any number of rows.

        Args:
            x: (..., N + A) in each row the present readings, followed by the action.
        """
        *hidden, (weight, bias) = self._forward
        for hidden_weight, hidden_bias in hidden:
            x = _apply_silu(x @ hidden_weight + hidden_bias)
        x = x @ weight + bias
        channels = len(self.channels)
        first, second = x[..., :channels], x[..., channels:]
        scale = self.usual_change * np.exp(
            np.minimum(np.maximum(second, F32(MIN_LOG_SCALE)), F32(MAX_LOG_SCALE))
        )
        probability = F32(0.5) * np.tanh(F32(0.5) * first) + F32(0.5)
        return ChangePrediction(first * self.usual_change, scale, probability)

    @one_blas_thread
    def compute_jacobian_of_change(self, signals: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Return the derivatives (N, N) of the predicted changes with respect to the signals.

        Row i, column k has the derivative of channel i's change with respect to channel k's signal.
        Rows of binary channels are meaningless.

        Args:
            signals: (N,) the present signals by channel.
            action: (A,) the action that follows them.
        """
        *hidden, (last_weight, _) = self._forward
        count = len(self.channels)
        x = np.concatenate([signals, action]).astype(F32)
        derivatives = np.eye(count, len(x), dtype=F32)
        for weight, bias in hidden:
            x = x @ weight + bias
            share = F32(0.5) * np.tanh(F32(0.5) * x) + F32(0.5)
            derivatives = (derivatives @ weight) * (share * (1 + x * (1 - share)))
            x = x * share
        jacobian: np.ndarray = (derivatives @ last_weight[:, :count]).T
        return jacobian * self.usual_change[:, None]

    def compute_expected_readings(
        self, signals: np.ndarray, action: np.ndarray
    ) -> ExpectedReadings:
        """Return the readings that the forward model expects in the next tick.

        Args:
            signals: (N,) the present readings by channel.
            action: (A,) the action that follows them.
        """
        prediction = self.predict_changes(signals[None], action[None])
        expected = signals + prediction.change[0]
        likeliest = np.where(self.binary, prediction.probability[0], expected)
        return ExpectedReadings(signals, action, prediction, expected, likeliest)

    @one_blas_thread
    def impute_missing_readings(
        self,
        previous_signals: np.ndarray,
        action: np.ndarray,
        readings: np.ndarray,
        missing: np.ndarray,
    ) -> np.ndarray:
        """Return the readings with estimates in place of the missing ones.

        Args:
            previous_signals: (..., N) the readings of the tick before, with estimates in place of
                missing ones, as the previous call returned them.
            action: (..., A) the action after that tick.
            readings: (..., N) the readings in the model's order of channels, NaN where missing.
            missing: (..., N) True for the missing readings.

        Returns:
            (..., N) the readings without gaps.
        """
        given = np.where(missing, previous_signals, readings)
        x = np.concatenate([previous_signals, given, missing, action], -1).astype(F32)
        *hidden, (weight, bias) = self._imputation
        for hidden_weight, hidden_bias in hidden:
            x = _apply_silu(x @ hidden_weight + hidden_bias)
        estimate = np.clip(x @ weight + bias, self.min_seen, self.max_seen)
        imputed: np.ndarray = np.where(missing, estimate, readings)
        return imputed

    @one_blas_thread
    def compute_identity_classifier_costs(
        self, readings: np.ndarray, changes: np.ndarray, actions: np.ndarray
    ) -> np.ndarray:
        """Return how improbable it is that each input slot carries each channel.

        The result is an array (slots, channels) of -log of the probability that slot i carries
        channel k. A network, the identity classifier, computes it from each slot's own readings.

        Args:
            readings: (T, N) the readings of the slots, the newest last; T is at most `WINDOW`, the
                number of ticks that the classifier takes.
            changes: (T, N) the changes that led to these readings.
            actions: (T, A) the actions before the readings.
        """
        own, common = compute_identity_classifier_inputs(
            readings[None], changes[None], actions[None], self._units
        )
        (first, bias), (second, second_bias), (weight, last_bias) = self._classifier
        x = _apply_silu(own[0] @ first + (common[0] @ self._common + bias))
        scores = _apply_silu(x @ second + second_bias) @ weight + last_bias
        scores -= scores.max(1, keepdims=True)
        costs: np.ndarray = np.log(np.exp(scores).sum(1, keepdims=True)) - scores
        return costs


def replace_missing_readings_by_zero(readings: np.ndarray) -> np.ndarray:
    """Return readings with 0 in place of NaN; without NaN, return the given array itself."""
    missing = np.isnan(readings)
    return np.where(missing, F32(0.0), readings) if missing.any() else readings


def get_channel_ranges_in_training(model: Model) -> dict[str, tuple[float, float]]:
    """Return the minimum and maximum of each channel in training, by channel id.

    The result is empty if the model file does not record them.
    """
    if model.forward is None or not model.forward.imputation:
        return {}
    _, low, high = model.arrays["imputation.typical"].tolist()
    return dict(zip(model.task.channels, zip(low, high, strict=True), strict=True))


def compute_identity_classifier_inputs(
    readings: np.ndarray, changes: np.ndarray, actions: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs of the identity classifier, which says which channel a slot carries.

    The classifier always gets `WINDOW` ticks. If fewer ticks are given, zeros stand for the earlier
    ones, and a flag for each tick says whether it was given.

    Args:
        readings: (B, T, N) the readings of N slots, in B sequences of T ticks.
        changes: (B, T, N) the changes that led to these readings.
        actions: (B, T, A) the actions before the readings.
        units: (2,) the number by which readings are divided, and the one for changes.

    Returns:
        A pair: the inputs (B, N, 2 * WINDOW) of each slot, and the inputs (B, WINDOW * (A + 1))
        that all slots share.
    """
    batch, ticks, slots = readings.shape
    own = np.zeros((batch, 2, WINDOW, slots), F32)
    own[:, 0, WINDOW - ticks :] = replace_missing_readings_by_zero(readings) / units[0]
    size = replace_missing_readings_by_zero(changes)
    own[:, 1, WINDOW - ticks :] = np.sign(size) * np.log1p(np.abs(size) / units[1])
    common = np.zeros((batch, WINDOW, actions.shape[2] + 1), F32)
    common[:, WINDOW - ticks :, :-1] = actions
    common[:, WINDOW - ticks :, -1] = 1.0
    return own.reshape(batch, 2 * WINDOW, slots).transpose(0, 2, 1), common.reshape(batch, -1)


def _get_first_layers(
    arrays: Mapping[str, np.ndarray], network_name: str, layer_count: int
) -> list[Layer]:
    """Return the weights (in, out) and biases (out,) of the first layers of a network.

    Args:
        arrays: The arrays of the model file, by name.
        network_name: The prefix of the names of the network's arrays.
        layer_count: The number of layers.
    """
    return [
        (
            np.ascontiguousarray(arrays[f"{network_name}.{layer}.weight"].T, F32),
            arrays[f"{network_name}.{layer}.bias"].astype(F32),
        )
        for layer in range(layer_count)
    ]


def _apply_silu(x: np.ndarray) -> np.ndarray:
    """Return x times its logistic function (SiLU, Elfwing et al. 2017), element by element."""
    gated: np.ndarray = x * (F32(0.5) * np.tanh(F32(0.5) * x) + F32(0.5))
    return gated
