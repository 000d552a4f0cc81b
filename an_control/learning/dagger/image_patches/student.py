"""Torch module of the student for image patches, the policy's vision AttentionNeuron.

It computes the same as `an_control.policy` (Tang & Ha 2021, section 3.3), but for many ticks of
many episodes at once. Its parameters are the model file's arrays under their names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from an_control.learning.recurrence import SetEncoder, SetPooling, to_array
from an_control.policy import Model
from an_control.policy.random_model import make_random_model
from an_control.policy.set_transformer import NORM_EPSILON, make_positional_table
from an_control.policy.sizes import ConvolutionSizes
from an_control.policy.task import Task
from an_control.policy.vision.patch_attention import WHITE

NEVER = -1e9
"""Attention score of a missing patch."""


class VisionStudent(nn.Module):
    """Torch module of a student that acts on image patches.

    It gets N patches (..., N, f, p, p) uint8, which are cut from f stacked frames and have p * p
    pixels, and the previous actions (..., A). Each patch is turned into m numbers. For each of M
    queries, the attention computes their weighted sum over all patches. These sums are the
    attention message (..., M, m), from which the head computes the action. Initial weights are
    drawn uniformly from -1 / sqrt(fan-in) to 1 / sqrt(fan-in).

    Args:
        sizes: Sizes of the policy.
        seed: Seed of the initial weights.
    """

    def __init__(self, sizes: ConvolutionSizes, seed: int = 0) -> None:
        super().__init__()
        self.sizes = sizes
        self.encoder = self.pooling = None
        if sizes.encoder != "none":
            self.encoder = SetEncoder(sizes.encoder, sizes.message, sizes.heads, sizes.inducing)
        if sizes.attention == "pma":
            self.pooling = SetPooling(sizes.queries, sizes.message, sizes.heads)
        arrays = make_random_model(sizes, seed).arrays
        of_parts = {name for part in self._optional_layers for name in part.to_arrays()}
        self.weights = nn.ParameterDict(
            {
                _convert_to_torch_name(name): nn.Parameter(torch.from_numpy(array))
                for name, array in arrays.items()
                if name not in of_parts
            }
        )
        for part in self._optional_layers:
            part.load_arrays(arrays)
        table = make_positional_table(sizes.queries, sizes.positions).astype(np.float32)
        self.table: Tensor
        self.register_buffer("table", torch.from_numpy(table), persistent=False)

    @property
    def _optional_layers(self) -> list[SetEncoder | SetPooling]:
        """Return the student's encoder and pooling, as far as it has them."""
        return [part for part in (self.encoder, self.pooling) if part is not None]

    def load_weights(self, model: Model) -> None:
        """Copy a model's weights.

        Raises:
            ValueError: The model has other sizes.
        """
        if model.sizes != self.sizes:
            raise ValueError(
                f"--start-model: the model's sizes are {model.sizes}, but the student's are"
                f" {self.sizes}"
            )
        with torch.no_grad():
            for name, array in model.arrays.items():
                if _convert_to_torch_name(name) in self.weights:
                    self.weights[_convert_to_torch_name(name)].copy_(torch.tensor(array))
        for part in self._optional_layers:
            part.load_arrays(model.arrays)

    def load_start_model(self, model: Model) -> None:
        """Copy the weights of a model from which the student starts to learn.

        Unlike in `load_weights`, the model may lack the memory that the student has. The weights of
        the memory then stay random, and have no effect on the actions at first.

        Raises:
            ValueError: The sizes of model and student differ in more than the memory.
        """
        sizes = model.sizes
        if not isinstance(sizes, ConvolutionSizes) or sizes.memory:
            return self.load_weights(model)
        widened = replace(sizes, memory=self.sizes.memory)
        arrays = self.to_arrays() | model.arrays
        if widened.memory:
            unheard = np.zeros((sizes.actions, widened.memory), np.float32)
            arrays["head.1.weight"] = np.concatenate([arrays["head.1.weight"], unheard], 1)
        return self.load_weights(replace(model, sizes=widened, arrays=arrays))

    def make_model(self, task: Task, trained: dict[str, Any]) -> Model:
        """Return a model (the contents of a model file) with the student's weights.

        Args:
            task: Channels, actuators and other properties of the robot.
            trained: How the model was trained, for the file's header.
        """
        return Model("vision_convolution", self.sizes, self.to_arrays(), task, trained)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights by their array names in a model file."""
        found = {
            name: array
            for part in self._optional_layers
            for name, array in part.to_arrays().items()
        }
        return {
            name: found[name] if name in found else to_array(self.find_parameter(name))
            for name in self.sizes.list_array_shapes()
        }

    def find_parameter(self, name: str) -> Tensor:
        """Return the torch parameter that corresponds to the named array of a model file."""
        return self.weights[_convert_to_torch_name(name)]

    def compute_attention_message(
        self,
        patches: Tensor,
        previous_actions: Tensor,
        present: Tensor | None = None,
        patch_counts: Tensor | None = None,
        mean_still_patch: Tensor | None = None,
    ) -> Tensor:
        """Compute the attention message: for each of M queries, a weighted sum over all patches.

        Args:
            patches: N patches (..., N, f, p, p) uint8 of f frames with p * p pixels. Alternatively
                the entries of `CompressedViews`, which may stand for several patches each.
            previous_actions: Previous actions (..., A).
            present: Mask (..., N), False for missing patches; None if all are present. If all are
                missing, the sum over patches is zero.
            patch_counts: For compressed views: the number of patches that each entry stands for
                (..., N). None if `patches` are not compressed.
            mean_still_patch: For compressed views: the content (..., p * p) of the first entry, the
                mean of normalised patches. None if the first entry is a patch like all others. Not
                used with pooling.

        Returns:
            The message (..., M, m): m numbers for each of M queries.
        """
        pixels = patches.flatten(-2).to(self.table.dtype) / WHITE
        keys = self._apply_linear(pixels.diff(dim=-2).flatten(-2), "key.change", "key.bias")
        keys = keys + self._apply_linear(previous_actions, "key.action").unsqueeze(-2)
        weight, bias = self._find_layer_norm_weight_and_bias("value_norm")
        normed = functional.layer_norm(pixels, pixels.shape[-1:], eps=NORM_EPSILON)
        if mean_still_patch is not None:
            mean = mean_still_patch[..., None, None, :].expand_as(normed[..., :1, :, :])
            normed = torch.cat([mean, normed[..., 1:, :, :]], -3)
        if weight is not None and bias is not None:
            normed = normed * weight + bias
        values = self._apply_linear(normed.flatten(-2), "value.weight", "value.bias")
        if self.encoder is not None or self.pooling is not None:
            number = keys.new_ones(keys.shape[:-1]) if patch_counts is None else patch_counts
            number = number if present is None else number * present
            rows = keys if self.pooling is None else keys + values
            rows = rows if self.encoder is None else self.encoder(rows, number)
            if self.pooling is not None:
                pooled: Tensor = self.pooling(rows, number)
                return pooled
            keys = rows
        queries = self._apply_linear(self.table, "query.weight", "query.bias")
        scores = queries @ keys.transpose(-1, -2) / self.sizes.message**0.5
        if patch_counts is not None:
            scores = scores + patch_counts.log().clamp(min=NEVER).unsqueeze(-2)
        if present is not None:
            scores = scores.masked_fill(~present.unsqueeze(-2), NEVER)
            values = values * present.any(-1)[..., None, None]
        message = torch.relu(scores.softmax(-1) @ values)
        weight, bias = self._find_layer_norm_weight_and_bias("message_norm")
        return functional.layer_norm(message, message.shape[-1:], weight, bias, NORM_EPSILON)

    def forward(
        self, patches: Tensor, previous_actions: Tensor, present: Tensor | None = None
    ) -> Tensor:
        """Run the policy over whole episodes, given their previous actions.

        Args:
            patches: Patches (B, T, N, f, p, p) uint8.
            previous_actions: Previous actions (B, T, A).
            present: Mask (B, T, N), False for missing patches; None if all are present.

        Returns:
            Scores (B, T, A): of discrete actions choose the one with the largest score, else apply
            tanh.
        """
        message = self.compute_attention_message(patches, previous_actions, present)
        units = message.new_zeros(len(message), self.sizes.memory)
        return self.run_convolving_head(message, previous_actions, units)[0]

    def run_convolving_head(
        self, message: Tensor, previous_actions: Tensor, memory_state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run the convolving head on the attention's messages of T ticks.

        Args:
            message: Attention messages (B, T, M, m).
            previous_actions: Previous actions (B, T, A).
            memory_state: State (B, H) of the head's memory (a GRU) before these ticks.

        Returns:
            Scores (B, T, A), and the state (B, H) of the memory after the ticks. Of discrete
            actions choose the one with the largest score; else the action is tanh(scores).
        """
        grid = self.sizes.grid
        image = torch.relu(message).transpose(-1, -2).reshape(-1, self.sizes.message, grid, grid)
        for layer, step in enumerate((2, 1)):
            weight, bias = (
                self.find_parameter(f"convolution.{layer}.{p}") for p in ("weight", "bias")
            )
            image = torch.relu(functional.conv2d(image, weight, bias, step))
        hidden = torch.relu(self._apply_linear(image.flatten(1), "head.0.weight", "head.0.bias"))
        hidden = hidden.reshape(*message.shape[:-2], -1)
        if self.sizes.memory:
            remembered, memory_state = self._run_memory(
                torch.cat([hidden, previous_actions], -1), memory_state
            )
            hidden = torch.cat([hidden, remembered], -1)
        return self._apply_linear(hidden, "head.1.weight", "head.1.bias"), memory_state

    def _run_memory(self, inputs: Tensor, memory_state: Tensor) -> tuple[Tensor, Tensor]:
        """Run the head's GRU over T ticks; return the states (B, T, H) and the last one (B, H)."""
        staying = functional.pad(
            self.find_parameter("memory.hidden_bias"), (2 * memory_state.shape[-1], 0)
        )
        names = "memory.input", "memory.hidden", "memory.bias"
        weights = [*map(self.find_parameter, names), staying]
        training = torch.is_grad_enabled()
        remembered, last = torch.gru(
            inputs, memory_state.unsqueeze(0), weights, True, 1, 0.0, training, False, True
        )
        return remembered, last.squeeze(0)

    def _apply_linear(
        self, inputs: Tensor, weight_name: str, bias_name: str | None = None
    ) -> Tensor:
        """Apply the linear layer whose weights and biases have the given names in a model file."""
        return functional.linear(
            inputs,
            self.find_parameter(weight_name),
            None if bias_name is None else self.find_parameter(bias_name),
        )

    def _find_layer_norm_weight_and_bias(self, name: str) -> tuple[Tensor | None, Tensor | None]:
        """Return weight and bias of the layer norm that has the given name in a model file.

        Both are None if the policy's layer norms only normalise and have no weights.
        """
        if not self.sizes.norm_weights:
            return None, None
        return self.find_parameter(f"{name}.weight"), self.find_parameter(f"{name}.bias")


def _convert_to_torch_name(array_name: str) -> str:
    """Convert the name of a model file's array to that of a torch parameter, which has no dots."""
    return array_name.replace(".", "_")
