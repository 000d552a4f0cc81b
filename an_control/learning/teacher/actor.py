"""The deterministic part of an actor of stable-baselines3 as a model file's MLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from an_control.learning.teacher.teachers import Layers, Output
from an_control.policy import MlpSizes, Model


class Normalisation(NamedTuple):
    """What the network's inputs are: (observation - mean) / sd, so that inf hides a channel."""

    mean: np.ndarray
    sd: np.ndarray
    """(N,) each, float64."""


def actor_layers(algorithm: Any) -> Layers:
    """The weights (out, in) and biases (out,) float64 from observation to action.

    Of PPO's mean action or logits, or of what SAC, TD3 and TQC squash by tanh.
    """
    return tuple(
        (part.weight.detach().double().numpy(), part.bias.detach().double().numpy())
        for part in linear_parts(algorithm.policy)
    )


def linear_parts(policy: Any) -> Sequence[nn.Linear]:
    """Those of the actor from observation to action, in order."""
    if hasattr(policy, "action_net"):
        last = policy.action_net
        last = last if isinstance(last, nn.Sequential) else (last,)
        parts = [*policy.mlp_extractor.policy_net, *last]
    else:
        actor = policy.actor
        mean = actor.mu if isinstance(actor.mu, nn.Sequential) else (actor.mu,)
        parts = [*getattr(actor, "latent_pi", ()), *mean]
    return [part for part in parts if isinstance(part, nn.Linear)]


def folded(layers: Layers, normalisation: Normalisation) -> Layers:
    """The same network for observations as they are."""
    (weight, bias), *others = layers
    weight = weight / normalisation.sd
    return ((weight, bias - weight @ normalisation.mean), *others)


def means(logits: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """Return for each of the logits (A, ...) the mean of those of the same choice; 0 for a bit."""
    parts, first = [], 0
    for count in choices:
        part = logits[first : first + count]
        own = part.mean(0, keepdims=True) if count > 1 else np.zeros_like(part)
        parts.append(np.broadcast_to(own, part.shape))
        first += count
    return np.concatenate(parts)


def centred(layers: Layers, choices: Sequence[int], largest: float) -> Layers:
    """The same choices: logits without their mean, divided by the largest one that was seen."""
    *hidden, (weight, bias) = layers
    weight, bias = weight - means(weight, choices), bias - means(bias, choices)
    return (*hidden, (weight / largest, bias / largest))


def mlp_model(
    layers: Layers, output: Output, task: dict[str, Any], trained: dict[str, Any]
) -> Model:
    """The relu network as a model; `output` is ``tanh`` or ``clip``."""
    arrays = {}
    for place, (weight, bias) in enumerate(layers):
        arrays[f"head.{place}.weight"] = np.ascontiguousarray(weight, np.float32)
        arrays[f"head.{place}.bias"] = np.ascontiguousarray(bias, np.float32)
    hidden = [len(bias) for _, bias in layers[:-1]]
    channels, actions = layers[0][0].shape[1], len(layers[-1][1])
    sizes = MlpSizes(channels, actions, hidden, activation="relu", output=output)
    return Model("mlp", sizes, arrays, task, trained)
