"""DAgger for image patches: rounds of recording and learning, driven by the run loop."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from an_control.disturbance import DisturbanceSettings, Range, Shuffle
from an_control.learning.dagger.image_patches.batches import PatchBatch, PatchBatches
from an_control.learning.dagger.image_patches.episodes import PatchEpisode, record_episode
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.dagger.image_patches.student import VisionStudent
from an_control.learning.es.search import VALIDATION_SEED
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.runs.run_folder import EpisodeRecordings, convert_arrays_to_tensors
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.teachers import hash_model, select_model_hashes_to_store
from an_control.load import make_policy
from an_control.policy import Model, Policy
from an_control.policy.task import Task
from an_control_sim.gym.environments import HasTeacher


def make_student(settings: PatchDaggerSettings, seed: int) -> VisionStudent:
    """Return a student for image patches with random initial weights.

    Args:
        settings: The recipe (the run's settings), with the student's sizes and the factors of its
            initial weights.
        seed: Seed of the weights.
    """
    student = VisionStudent(settings.student, seed)
    with torch.no_grad():
        student.find_parameter("key.change").mul_(settings.key_gain)
        if settings.student.attention != "pma":
            student.find_parameter("query.weight").mul_(settings.query_gain)
        student.find_parameter("key.action").zero_()
    return student


def train_student_on_batch(
    student: VisionStudent,
    optimiser: torch.optim.Optimizer,
    batch: PatchBatch,
    memory_state: Tensor,
    settings: PatchDaggerSettings,
) -> tuple[float, Tensor]:
    """Make one gradient update of a student on a batch.

    Args:
        student: The student, which is updated in place.
        optimiser: Optimiser of the student's parameters.
        batch: T steps of B episodes.
        memory_state: State (B, H) of the student's memory (a GRU) before the batch, one row for
            each episode. Gradients do not reach back into earlier batches.
        settings: Kind of the actions, and weights of the loss.

    Returns:
        The loss, and the state (B, H) of the memory after the batch.
    """
    device = student.table.device
    patches, still, numbers, previous, labels, counts, begins = (
        torch.from_numpy(part).to(device) for part in (*batch.seen, *batch[1:])
    )
    memory_state = memory_state * ~begins[:, None]
    common = previous.new_zeros(len(patches), settings.student.actions)
    message = student.compute_attention_message(
        patches, common, patch_counts=numbers, mean_still_patch=still
    )
    message = message.unflatten(0, labels.shape[:2])
    scores, memory_state = student.run_convolving_head(message, previous, memory_state)
    loss = _compute_loss(scores[counts], labels[counts], settings)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimiser.step()
    return loss.item(), memory_state.detach()


def _compute_loss(scores: Tensor, labels: Tensor, settings: PatchDaggerSettings) -> Tensor:
    """Return the loss of scores (K, A): cross-entropy for discrete actions, else weighted error."""
    if not settings.student.choice:
        scale = scores.new_tensor(settings.loss_scale)
        error = functional.smooth_l1_loss(scores.tanh(), labels, reduction="none", beta=0.3)
        return (error * scale).mean()
    chosen = labels.argmax(-1)
    weight = None
    if settings.balance:
        seen = torch.bincount(chosen, minlength=scores.shape[-1]).clamp(min=1)
        weight = (len(chosen) / seen) ** settings.balance
    return functional.cross_entropy(scores, chosen, weight)


class PatchDagger:
    """Trainer of a student that acts on image patches and imitates a teacher by DAgger.

    The run loop calls `step` once for each round. In the first round the teacher drives, in all
    others the student. The student learns from the teacher's action at each recorded step.

    Args:
        folder: The run's folder, in which the recorded episodes are stored.
        env: The environment, to which the teacher belongs (`HasTeacher`).
        task: The task for the model file.
        settings: The recipe, the settings of the run.
        seed: Seed of all random numbers of the run.
        device: Torch device on which the student learns; it always drives on the CPU.
        start: Model from whose weights the student starts; None for random weights.

    Raises:
        ValueError: The environment has no teacher, or `start` has other sizes than the settings.
    """

    unit = "round"

    def __init__(
        self,
        folder: Path,
        env: gymnasium.Env[Any, Any],
        task: Task,
        settings: PatchDaggerSettings,
        seed: int,
        device: str = "cpu",
        start: Model | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self.settings, self.seed = settings, seed
        self._env = env
        self._task = replace(task, repeats=task.repeats or settings.acts_on_repeated_frames)
        if not isinstance(env.unwrapped, HasTeacher):
            raise ValueError(f"task {task.name!r}: its environment has no teacher")
        self._teacher = env.unwrapped.teacher()
        self._started = None if start is None else start.trained
        self._hashes = select_model_hashes_to_store(folder, start_hash=hash_model(start))
        self._student = make_student(settings, seed)
        if start is not None:
            self._student.load_start_model(start)
        self._student.to(device)
        self._driver = copy.deepcopy(self._student)
        self._optimiser = torch.optim.Adam(self._student.parameters())
        self._recordings = EpisodeRecordings(folder, PatchEpisode)
        self._episodes: list[PatchEpisode] = []
        self._round = 0

    @property
    def total_step_calls(self) -> int:
        """Return the number of rounds of the whole run; each is one step of the run loop."""
        return self.settings.rounds

    @property
    def config(self) -> dict[str, Any]:
        """Return the run's settings, which are written to `config.json` in its folder.

        A new training in this folder continues the run only if its settings are the same; the
        number of rounds may differ.
        """
        return {
            "task": self._task.to_header(),
            "seed": self.seed,
            "settings": asdict(self.settings),
            "start": self._started,
            **self._hashes,
        }

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def step(self) -> dict[str, Any]:
        """Run one round: record episodes, learn from the newest ones, and sometimes validate.

        Returns:
            The round's figures by name, such as "loss", "return" and "validation".
        """
        rng = np.random.default_rng([self.seed, self._round])
        new = self._record_round_episodes(rng)
        self._recordings.write_episodes(self._round, new)
        self._episodes = (self._episodes + new)[-self.settings.memory :]
        losses = self._train_round_and_return_losses(rng)
        self._round += 1
        line = {
            "loss": float(np.mean(losses)),
            "return": float(np.mean([episode.total for episode in new])),
            "episodes": len(new),
            "helped": float(np.mean([episode.helped for episode in new])),
        }
        if self._round % self.settings.validate_every == 0 or self._round == self.total_step_calls:
            line["validation"] = self._measure_validation_return()
        return line

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the run's checkpoint, from which `restore` continues."""
        return {
            "round": self._round,
            "student": self._student.state_dict(),
            "driver": self._driver.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint of `make_checkpoint` and the episodes in the run's folder."""
        tensors = convert_arrays_to_tensors(state)
        self._student.load_state_dict(tensors["student"])
        self._driver.load_state_dict(tensors["driver"])
        self._optimiser.load_state_dict(tensors["optimiser"])
        self._round = state["round"]
        for number in range(max(0, self._round - self.settings.memory), self._round):
            self._episodes += self._recordings.read_episodes(number)
        self._episodes = self._episodes[-self.settings.memory :]

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the student as a model, with the running average of its weights over the updates.

        Args:
            run: Figures of the run to store in the model file's header.
        """
        trained: dict[str, Any] = {"how": "DAgger on image patches", "seed": self.seed, **run}
        if self._started is not None:
            trained["start"] = self._started
        return self._driver.make_model(self._task, trained)

    def _record_round_episodes(self, rng: np.random.Generator) -> list[PatchEpisode]:
        """Record the episodes of one round.

        In the first round the teacher drives, in later rounds the student.
        """
        settings = self.settings
        if self._round == 0:
            first = settings.first_episodes if self._started is None else 2
            strengths = np.linspace(0.0, 3.0 * settings.noise, first)
            return [
                self._record_episode(None, strength, rng, settings.steps) for strength in strengths
            ]
        new: list[PatchEpisode] = []
        left = settings.steps
        while left > 0:
            strength = settings.noise * (len(new) % 2)
            steps = min(left, settings.longest)
            new.append(self._record_episode(self._make_driver_policy(), strength, rng, steps))
            left -= len(new[-1].frames)
        return new

    def _train_round_and_return_losses(self, rng: np.random.Generator) -> list[float]:
        """Make the gradient updates of one round and return their losses."""
        settings = self.settings
        for group in self._optimiser.param_groups:
            group["lr"] = settings.compute_learning_rate(self._round)
        losses = []
        from_scratch = not self._round and self._started is None
        batches = PatchBatches(self._episodes, settings, rng)
        units = self._student.table.new_zeros(settings.batch, settings.student.memory)
        for _ in range(settings.first_updates if from_scratch else settings.updates):
            loss, units = train_student_on_batch(
                self._student, self._optimiser, batches.make_next_batch(), units, settings
            )
            losses.append(loss)
            self._update_driver_weights()
        return losses

    def _record_episode(
        self, policy: Policy | None, noise_strength: float, rng: np.random.Generator, max_steps: int
    ) -> PatchEpisode:
        """Record an episode that the policy drives, or the teacher if `policy` is None."""
        return record_episode(
            self._env, self._teacher, policy, self.settings, noise_strength, rng, max_steps
        )

    def _make_driver_policy(self) -> Policy:
        """Return the driving student, whose weights are an average over updates, as a policy."""
        return make_policy(self.make_model())

    @torch.no_grad()
    def _update_driver_weights(self) -> None:
        """Move the weights of the driving student a little towards those of the learning student.

        The driving student's weights are thereby a running average over the updates.
        """
        learned = self._student.parameters()
        for slow, quick in zip(self._driver.parameters(), learned, strict=True):
            slow.lerp_(quick, 1.0 - self.settings.average)

    def _measure_validation_return(self) -> float:
        """Return the mean return of the driving student in the validation episodes."""
        shuffled = DisturbanceSettings(
            shuffle=Shuffle(True),
            missing=Range.from_value(self.settings.mean_share_of_missing_patches),
        )
        results = play_episodes(
            self._make_driver_policy(),
            self._env,
            self._task.channels,
            self.settings.validation_episodes,
            VALIDATION_SEED,
            shuffled,
        )
        return float(np.mean([result.total for result in results]))
