"""A policy that an ONNX network computes: readings by channel id in, an action in [-1, 1] out.

It needs its channels in a fixed order; a monitor in front of it can restore the order after
rewiring. onnxruntime is imported only here. It computes on one thread, into arrays that are
allocated only once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from an_control.policy.exact_sums import MAX_READING
from an_control.policy.interface import Policy, PreviousActionMixin, check_and_order_readings
from an_control.policy.model_file import Model
from an_control.policy.onnx_file import INSTALL, ForeignNetwork, Tensor
from an_control.policy.onnx_layout import PHASE, PREVIOUS, HistoryArrangement

F32 = np.float32


class OnnxSession:
    """An onnxruntime session with input and output arrays that are allocated once.

    Args:
        network: The network that the session computes.

    Raises:
        ValueError: onnxruntime is not installed, or refuses the network.
    """

    def __init__(self, network: ForeignNetwork) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ValueError(INSTALL) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                network.content, options, providers=["CPUExecutionProvider"]
            )
            self._binding = self._session.io_binding()
            self.observation = self._allocate_bound_array(
                network.observation, self._binding.bind_input
            )
            self.action = self._allocate_bound_array(network.action, self._binding.bind_output)
            self.states = [
                (
                    self._allocate_bound_array(entering, self._binding.bind_input),
                    self._allocate_bound_array(leaving, self._binding.bind_output),
                )
                for entering, leaving in network.states
            ]
        except Exception as error:  # onnxruntime has no common class for its errors
            raise ValueError(f"onnxruntime refuses it: {_shorten_error(error)}") from None

    def _allocate_bound_array(self, tensor: Tensor, bind: Any) -> np.ndarray:
        """Allocate an array for an input or output, attach it to the network, and return it.

        Args:
            tensor: The input or output.
            bind: The method of onnxruntime's binding that attaches the array to the network.
        """
        array = np.zeros(tensor.shape, np.float64 if tensor.double else F32)
        bind(tensor.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return array

    def run(self) -> None:
        """Compute the values in the output arrays from those in the input arrays.

        Raises:
            ValueError: onnxruntime reports an error.
        """
        try:
            self._session.run_with_iobinding(self._binding)  # run options would cost 30 us
        except Exception as error:  # as above
            raise ValueError(f"onnxruntime: {_shorten_error(error)}") from None


def _shorten_error(error: Exception) -> str:
    """Return an error message of onnxruntime in one line, without the location in its sources."""
    text = " ".join(str(error).split())
    text = text.split(") ", 1)[1] if "/onnxruntime_src/" in text and ") " in text else text
    return text[:300]


class ObservationBuilder:
    """A builder of the network's observation from the readings and the previous action.

    Args:
        network: The network, whose layout says which numbers the observation has.
    """

    def __init__(self, network: ForeignNetwork) -> None:
        layout = network.layout
        self._actions = network.action.size
        count = len(layout.channels)
        places: list[int] = []
        self._phases: list[tuple[int, float]] = []
        """For each phase (a sine and a cosine) a pair: its index in `_source`, and its angle per
        tick."""
        place, end = 0, count + self._actions
        for term in layout.terms:
            if term.kind == PREVIOUS:
                places += range(count, count + self._actions)
            elif term.kind == PHASE:
                self._phases.append((end, 2.0 * math.pi * (layout.step_s or 0.0) / term.period_s))
                places += [end, end + 1]
                end += 2
            else:
                places += range(place, place + term.width)
                place += term.width
        self._source = np.zeros(end)
        self._readings, self._previous = self._source[:count], self._source[count:]
        self._previous = self._previous[: self._actions]
        self._places = np.array(places, np.intp)
        ordered = np.arange(end)[: len(places)]
        self._in_order = len(places) == end and bool((self._places == ordered).all())
        self._scale = np.array([one for term in layout.terms for one in term.scale])
        self._offset = np.array([one for term in layout.terms for one in term.offset])
        self._scales = bool((self._scale != 1.0).any() or self._offset.any())
        self._low, self._high = np.array([one.clip for one in layout.terms for _ in one.scale]).T
        self._clips = bool(np.isfinite([self._low, self._high]).any())
        self._limit = layout.limit
        self._history: _ObservationHistory | None = None
        if layout.history.length > 1:
            self._history = _ObservationHistory(
                layout.history, [term.width for term in layout.terms]
            )
        self.reset()

    def reset(self) -> None:
        """Start an episode, without earlier observations."""
        self._tick = 0
        if self._history is not None:
            self._history.reset()

    def write_observation(
        self, readings: np.ndarray, previous_action: np.ndarray, out: np.ndarray
    ) -> None:
        """Write the observation of a tick into the network's input.

        Args:
            readings: (N,) the readings in the network's order.
            previous_action: (A,) the previous action, in [-1, 1].
            out: The network's input vector, which receives the observation.
        """
        self._readings[:] = readings
        np.multiply(previous_action, self._limit, out=self._previous)
        for place, angle in self._phases:
            self._source[place] = math.sin(angle * self._tick)
            self._source[place + 1] = math.cos(angle * self._tick)
        self._tick += 1
        x = self._source if self._in_order else self._source[self._places]
        if self._scales:
            x = x * self._scale
            x += self._offset
        if self._clips:
            x = np.minimum(np.maximum(x, self._low), self._high)
        out[:] = (
            x
            if self._history is None
            else self._history.append_observation_and_get_network_input(x)
        )


class _ObservationHistory:
    """A buffer of the newest observations, in the order in which a network reads them.

    Args:
        history: The arrangement of the observations.
        widths: The number of values of each term of an observation.
    """

    def __init__(self, history: HistoryArrangement, widths: Sequence[int]) -> None:
        self._history, width = history, sum(widths)
        self._rows = np.zeros((history.length, width))
        ticks = np.arange(history.length)
        if history.newest == "first":
            ticks = ticks[::-1]
        places = ticks[:, None] * width + np.arange(width)
        if history.by == "term":
            ends = np.cumsum([0, *widths])
            columns = [places[:, a:b].ravel() for a, b in pairwise(ends)]
            self._places = np.concatenate(columns)
        else:
            self._places = places.ravel()
        self.reset()

    def reset(self) -> None:
        """Start an episode, without earlier observations."""
        self._rows[:] = 0.0
        self._fresh = self._history.start == "repeat"

    def append_observation_and_get_network_input(self, observation: np.ndarray) -> np.ndarray:
        """Append an observation (width,); return the network's input of the newest observations."""
        if self._fresh:
            self._rows[:] = observation
            self._fresh = False
        else:
            self._rows[:-1] = self._rows[1:]
            self._rows[-1] = observation
        found: np.ndarray = self._rows.ravel()[self._places]
        return found


class OnnxPolicy(PreviousActionMixin, Policy):
    """A policy that is computed by an ONNX network of another tool.

    Readings by channel id are put into the network's order. A missing channel keeps its last
    reading, and reads 0 before its first one. If the network returns a value that is not finite,
    the action is NaN, the network's states stay as they were, and the node sends the safe command.

    Args:
        model: A model of kind ``foreign``, with its network.
    """

    engine = "onnxruntime"
    permutation_invariant = False

    def __init__(self, model: Model) -> None:
        assert model.network is not None
        self.model, network = model, model.network
        self.nominal_ids: tuple[str, ...] = network.layout.channels
        self._session = OnnxSession(network)
        self._observations = ObservationBuilder(network)
        self._input = self._session.observation.reshape(-1)
        self._output = self._session.action.reshape(-1)
        self._limit = network.layout.limit
        self.reset()

    def reset(self) -> None:
        """Start an episode: set states, previous action and all stored readings to zero."""
        self._previous = np.zeros(self.model.sizes.actions, F32)
        self._newest = np.zeros(len(self.nominal_ids))
        self._observations.reset()
        for entering, _ in self._session.states:
            entering[...] = 0.0

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick and return the action (A,) float32 in [-1, 1].

        Args:
            values: (N,) the readings; one that is not finite counts as missing.
            ids: (N,) their channel ids.

        Raises:
            ValueError: The lengths differ, an id occurs twice, or onnxruntime reports an error.
            TypeError: The values are not real numbers.
        """
        values = check_and_order_readings(values, ids, self.nominal_ids)
        if not np.vdot(values, values) < MAX_READING:
            values = np.where(np.abs(values) <= MAX_READING, values, self._newest)
        self._newest = values
        self._observations.write_observation(values, self._previous, self._input)
        self._session.run()
        states = self._session.states
        computed = (self._output, *(after for _, after in states))
        if not all(math.isfinite(one.sum()) for one in computed):
            return np.full(len(self._output), np.nan, F32)
        for before, after in states:
            before[...] = after
        action = self._output if self._limit == 1.0 else self._output / self._limit
        self._previous = np.minimum(np.maximum(action, -1.0), 1.0).astype(F32)
        return self._previous.copy()
