"""One supervised training of one memory (recurrent network) on one task, on one thread."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from an_control.learning.recurrence import RecurrenceModule
from an_control.policy.sizes import RecurrenceSizes
from experiments.memory.tasks import MemoryTask

PARAMETERS = 30_000
"""Maximum number of a network's parameters; each network has as many units as this number
allows."""
CURVE_POINTS = 25
"""Number of points of a learning curve."""
CURVE_EPISODES = 64


@dataclass(frozen=True)
class ComparedMemory:
    """A kind of recurrent network that takes part in the comparison.

    Attributes:
        name: The name in tables.
        kind: The kind of the network, as in `RecurrenceSizes`.
        gate_bias: The initial bias of the network's gates.
    """

    name: str
    kind: Any
    gate_bias: float = 0.0


MEMORIES = (
    ComparedMemory("LSTM", "lstm"),
    ComparedMemory("GRU", "gru"),
    ComparedMemory("TrXL", "trxl"),
    ComparedMemory("TrXL-I", "trxl-i"),
    ComparedMemory("GTrXL, bias 2", "gtrxl", 2.0),
    ComparedMemory("GTrXL, bias 0", "gtrxl", 0.0),
)


@dataclass(frozen=True)
class DrawnSettings:
    """Settings of a training, chosen at random.

    Attributes:
        rate: The learning rate of Adam.
        heads: The number of attention heads of a transformer.
        layers: The number of layers of a transformer; ignored (1 is used) in a task in which only
            the final step's answer counts.
        episodes: The number of episodes in a batch.
        max_norm: The norm to which the gradient is clipped; infinity for no clipping.
    """

    rate: float
    heads: int
    layers: int
    episodes: int
    max_norm: float

    @classmethod
    def from_rng(cls, rng: np.random.Generator) -> DrawnSettings:
        """Draw settings at random; the learning rate is log-uniform between 1e-4 and 3e-2."""
        return cls(
            float(10.0 ** rng.uniform(-4.0, math.log10(3e-2))),
            int(rng.choice([1, 2, 4])),
            int(rng.choice([1, 2])),
            int(rng.choice([16, 32])),
            float(rng.choice([1.0, math.inf])),
        )


class MemoryNetwork(nn.Module):
    """A memory (recurrent network) followed by a linear layer that scores the answers.

    The memory has as many units as are possible with at most `PARAMETERS` parameters.

    Args:
        task: The task, which has the numbers of inputs and answers.
        memory: The kind of recurrent network.
        draw: The settings of the training, which were chosen at random.
    """

    def __init__(self, task: MemoryTask, memory: ComparedMemory, draw: DrawnSettings) -> None:
        super().__init__()
        self._last = task.last
        sizes = _choose_sizes(task, memory, draw)
        self.numbers = _count_parameters(sizes, task)
        """Number of parameters in a model file; torch's own count is larger, because torch has some
        biases of an LSTM and a GRU twice."""
        self.memory = RecurrenceModule(task.features, sizes, memory.gate_bias)
        self.head = nn.Linear(sizes.units, task.answers)

    def forward(self, seen: Tensor) -> Tensor:
        """Return the scores (B, T, K) of K possible answers; (B, K) if only the last step counts.

        The inputs are (T, B, F): T steps, B episodes, F numbers.
        """
        if self._last:
            scores: Tensor = self.head(self.memory.compute_last_output(seen))
            return scores
        outputs, _ = self.memory(seen, self.memory.make_initial_state(seen.shape[1]))
        every: Tensor = self.head(outputs).transpose(0, 1)
        return every

    def predict_answers(self, seen: np.ndarray) -> np.ndarray:
        """Return the answers (B, T) with the highest scores; (B,) if only the last step counts.

        The inputs are (T, B, F): T steps, B episodes, F numbers.
        """
        with torch.no_grad():
            found: np.ndarray = self(torch.from_numpy(seen)).argmax(-1).numpy()
        return found


def _choose_sizes(task: MemoryTask, memory: ComparedMemory, draw: DrawnSettings) -> RecurrenceSizes:
    """Return the sizes of a memory with as many units as `PARAMETERS` allows."""
    sizes = RecurrenceSizes(memory.kind, units=0)
    step = 1
    if memory.kind not in ("lstm", "gru"):
        layers = 1 if task.last else draw.layers
        sizes = replace(sizes, layers=layers, heads=draw.heads, window=task.steps)
        step = max(2, draw.heads)
    units = step
    while _count_parameters(replace(sizes, units=units + step), task) <= PARAMETERS:
        units += step
    return replace(sizes, units=units)


def _count_parameters(sizes: RecurrenceSizes, task: MemoryTask) -> int:
    """Return the number of parameters of a recurrent network and the linear layer behind it."""
    numbers = sum(math.prod(shape) for shape in sizes.list_array_shapes(task.features).values())
    return numbers + (sizes.units + 1) * task.answers


def train_memory_network(
    task: MemoryTask, memory: ComparedMemory, draw: DrawnSettings, updates: int, seed: int
) -> dict[str, Any]:
    """Train a recurrent network once on a task, and return its score, learning curve and costs.

    The training has the settings `draw` and makes this number of updates. In the result "diverged"
    is True if a loss was not finite, or if the final losses are above that of guessing at random.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = MemoryNetwork(task, memory, draw)
    optimiser = torch.optim.Adam(network.parameters(), draw.rate)
    began, curve, losses = time.process_time(), [], []
    marks = {round(updates * (one + 1) / CURVE_POINTS) for one in range(CURVE_POINTS)}
    for update, loss in enumerate(
        _train_and_yield_losses(network, optimiser, task, draw, rng), start=1
    ):
        losses.append(loss)
        if update in marks:
            curve.append([update, _measure_accuracy(network, task, update)])
        if update == updates or not math.isfinite(loss):
            break
    newest = float(np.mean(losses[-max(1, updates // CURVE_POINTS) :]))
    finite = math.isfinite(newest)
    return {
        "parameters": network.numbers,
        "units": network.memory.sizes.units,
        "score": task.measure_share_of_right_answers(network.predict_answers)
        if finite
        else 1.0 / task.answers,
        "loss": newest if finite else None,
        "diverged": not finite or newest > math.log(task.answers) * 1.05,
        "updates": len(losses),
        "curve": curve,
        "cpu_s": round(time.process_time() - began, 1),
    }


def _train_and_yield_losses(
    network: MemoryNetwork,
    optimiser: torch.optim.Optimizer,
    task: MemoryTask,
    draw: DrawnSettings,
    rng: np.random.Generator,
) -> Iterator[float]:
    """Make one update after the other without end; yield each loss before its update, in nats."""
    while True:
        seen, right = task.make_batch(rng, draw.episodes)
        scores = network(torch.from_numpy(seen))
        loss = cross_entropy(
            scores.flatten(0, -2), torch.from_numpy(right).flatten(), ignore_index=-1
        )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), draw.max_norm)
        optimiser.step()
        yield float(loss.detach())


def _measure_accuracy(network: MemoryNetwork, task: MemoryTask, finished_updates: int) -> float:
    """Return the share of right answers in new episodes; the seed is the number of updates."""
    seen, right = task.make_batch(np.random.default_rng([1, finished_updates]), CURVE_EPISODES)
    counts = right >= 0
    return float((network.predict_answers(seen) == right)[counts].mean())
