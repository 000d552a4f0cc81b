"""Learn to estimate missing channels for a policy of another tool, and measure its returns.

    python -m experiments foreign_policies --folder runs/foreign_policies --policy teacher.onnx
    python -m experiments foreign_policies --policy teacher.onnx --excitation 50

The policy is the Ant's MLP teacher as an ONNX file, behind the monitor of the shipped Ant. Its
imputation network, which estimates missing channels, is learned again from episodes that the policy
itself drives. With `--excitation`, the policy finds an unknown order of its channels by small
motions instead. The README reports the results, which are kept in results.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from an_control.disturbance import TRAINING_SEEDS, Range
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.forward_model.episodes import (
    EpisodeTrace,
    Explorer,
    MissingChannelsDriver,
    play_and_record_episode,
    record_episodes,
)
from an_control.learning.forward_model.imputation import ImputationTraining
from an_control.learning.forward_model.networks import ForwardModelSettings
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.learning.runs.run_folder import EpisodeRecordings
from an_control.load import make_policy
from an_control.policy import Model, read_model
from an_control.system.files import write_file
from an_control_sim.gym.environments import make_environment
from an_control_sim.gym.units import Units
from experiments.foreign_policies.excitation import (
    measure_order_finding_by_excitation,
    summarise_excitation,
)

HERE = Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "models"
PROTOCOLS = ("none", "missing=0.1")
ACTION_NOISE = 0.4
FIRST_STEPS, FIRST_MISSING = 24_000, (20_000, Range(0.02, 0.4))
"""Steps that the policy drives with all channels, and with missing ones behind the taken monitor,
before the first training."""
SECOND_EPISODES, SECOND_TICKS, SECOND_MISSING = 70, 300, Range(0.02, 0.3)
"""Number and length of the episodes behind the monitor that has learned once, before the second."""


def main(arguments: Sequence[str]) -> int:
    """Measure an ONNX policy's returns with missing channels, or with channels in unknown order.

    Return the exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m experiments foreign_policies")
    parser.add_argument("--folder", type=Path, help="the learned networks")
    parser.add_argument("--policy", type=Path, required=True, help="ONNX file with a monitor")
    parser.add_argument(
        "--excitation",
        type=int,
        default=0,
        metavar="N",
        help="only let N Ants on the ground find the order by the policy's excitation",
    )
    parser.add_argument(
        "--walking",
        action="store_true",
        help="the episodes of --excitation begin with the motions, as recorded ones began",
    )
    parser.add_argument("--updates", type=int, default=4000, help="of each of two trainings")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000, help="of an episode after an excitation")
    parser.add_argument("--seed", type=int, default=1, help="of the evaluated episodes")
    parser.add_argument("--protocols", nargs="*", default=PROTOCOLS)
    parser.add_argument("--json", type=Path, default=HERE / "results.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    if options.json.exists():
        results = json.loads(options.json.read_text(encoding="utf-8"))
    if options.excitation:
        measured = measure_order_finding_by_excitation(
            options.policy, range(options.excitation), options.steps, on_ground=not options.walking
        )
        key = "excitation, walking" if options.walking else "excitation"
        results[key] = summarise_excitation(measured)
        write_file(options.json, (json.dumps(results, indent=1) + "\n").encode())
        return 0
    if options.folder is None:
        parser.error("--folder: where the learned networks are kept")
    options.folder.mkdir(parents=True, exist_ok=True)
    task = read_model(MODELS / "ant.safetensors").task
    env = make_environment(task.environment, Units.from_task(task))
    taken = read_model(options.policy)
    models = {"taken": taken, **_train_or_read_models(taken, env, options.folder, options.updates)}
    for name, model in models.items():
        for protocol in options.protocols:
            key = f"{name}/{protocol}/seed {options.seed}"
            if len(results.get(key, {}).get("returns", [])) >= options.episodes:
                continue
            returns = _play_episodes_and_list_returns(
                model, env, protocol, options.episodes, options.seed
            )
            results[key] = _summarise_returns(returns)
            print(key, {name: one for name, one in results[key].items() if name != "returns"})
            write_file(options.json, (json.dumps(results, indent=1) + "\n").encode())
    return 0


def _play_episodes_and_list_returns(
    model: Model, env: gymnasium.Env[Any, Any], protocol: str, episodes: int, seed: int
) -> list[float]:
    """Play episodes of a policy and return the sum of rewards of each."""
    channels = model.task.channels
    asked = EvaluationProtocol.parse(protocol)
    played = play_episodes(make_policy(model), env, channels, episodes, seed, asked)
    return [round(one.total, 2) for one in played]


def _summarise_returns(returns: Sequence[float]) -> dict[str, Any]:
    """Return mean, standard error and minimum of returns, with the returns themselves."""
    error = float(np.std(returns, ddof=1) / len(returns) ** 0.5) if len(returns) > 1 else 0.0
    return {
        "mean": round(float(np.mean(returns)), 1),
        "error": round(error, 1),
        "min": min(returns),
        "returns": list(returns),
    }


def _train_or_read_models(
    policy: Model, env: gymnasium.Env[Any, Any], folder: Path, updates: int
) -> dict[str, Model]:
    """Train the network that estimates missing channels twice; return the model of each training.

    The second training continues the first with further episodes. Recorded episodes and trained
    networks that exist in the folder are read from there.
    """
    first = _read_or_record_episodes(
        folder, 1, lambda: _record_first_training_episodes(policy, env)
    )
    once = _train_or_read_imputation_network(folder / "learned_1.npz", policy, first, updates, 2e-3)
    second = _read_or_record_episodes(
        folder, 2, lambda: _record_second_training_episodes(once, env)
    )
    twice = _train_or_read_imputation_network(
        folder / "learned_2.npz", once, [*first, *second], updates, 1.5e-3
    )
    return {"learned once": once, "learned twice": twice}


def _record_first_training_episodes(
    model: Model, env: gymnasium.Env[Any, Any]
) -> list[EpisodeTrace]:
    """Record episodes with all channels, and with missing channels, for the first training."""
    rng = np.random.default_rng(54)
    steps, missing = FIRST_MISSING
    traces = record_episodes(env, Explorer(model, ACTION_NOISE, rng), FIRST_STEPS, rng)
    driver = MissingChannelsDriver(model, missing, ACTION_NOISE, rng)
    return traces + record_episodes(env, driver, steps, rng)


def _record_second_training_episodes(
    model: Model, env: gymnasium.Env[Any, Any]
) -> list[EpisodeTrace]:
    """Record the first ticks of episodes with missing channels, for the second training.

    Only the first ticks are recorded, because they decide much of the return of such an episode.
    """
    rng = np.random.default_rng(55)
    driver = MissingChannelsDriver(model, SECOND_MISSING, ACTION_NOISE, rng)
    traces = []
    for _ in range(SECOND_EPISODES):
        driver.start_episode()
        seed = int(rng.integers(*TRAINING_SEEDS))
        traces.append(play_and_record_episode(env, seed, driver, None, False, SECOND_TICKS))
    return traces


def _read_or_record_episodes(
    folder: Path, number: int, record: Callable[[], list[EpisodeTrace]]
) -> list[EpisodeTrace]:
    """Return the recording with a number; if the folder has none, record the episodes first."""
    recordings = EpisodeRecordings(folder, EpisodeTrace)
    if not (folder / f"episodes_{number:03}.npz").exists():
        recordings.write_episodes(number, record())
    return recordings.read_episodes(number)


def _train_or_read_imputation_network(
    path: Path, model: Model, traces: Sequence[EpisodeTrace], updates: int, rate: float
) -> Model:
    """Return a model whose network for missing channels has been trained on these episodes.

    If `path` is that of the second training, training starts from the model's network.
    """
    assert model.forward is not None
    if not path.exists():
        torch.manual_seed(1)
        settings = ForwardModelSettings(imputation_updates=updates, imputation_batch=128, rate=rate)
        again = model.arrays if path.name == "learned_2.npz" else {}
        training = ImputationTraining(traces, settings, np.random.default_rng(1), again)
        while not training.is_over:
            print(path.stem, training.done, training.run_updates(500))
        arrays = training.to_arrays()
        arrays["imputation.max_roughness"] = model.arrays["imputation.max_roughness"]
        np.savez(path, **arrays)  # type: ignore[arg-type]
    with np.load(path) as stored:
        learned = {name: stored[name] for name in stored.files}
    units = len(learned["imputation.0.bias"])
    forward = replace(model.forward, imputation=units)
    return replace(model, arrays={**model.arrays, **learned}, forward=forward)
