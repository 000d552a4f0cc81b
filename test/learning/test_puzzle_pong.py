"""PuzzlePong as its authors describe it, put together from torch's own layers, is what we compute.

Their weights are not here: random ones of theirs' number and order take their place.
"""

import numpy as np
import pytest
import torch
from torch import nn

from an_control.learning.import_authors import import_policy_of_authors
from an_control.load import make_policy
from an_control.policy.set_transformer import make_positional_table

PATCHES, TICKS, ACTIONS, MESSAGE = 60, 4, 6, 32


class PuzzlePong:
    """The layers in the order in which their parameters are flattened."""

    def __init__(self) -> None:
        self.query, self.key = nn.Linear(8, MESSAGE), nn.Linear(3 * 36 + ACTIONS, MESSAGE)
        self.value, self.input_norm = nn.Linear(4 * 36, MESSAGE), nn.LayerNorm(36)
        self.output_norm = nn.LayerNorm(MESSAGE)
        self.network = nn.Sequential(
            nn.ReLU(), nn.Conv2d(MESSAGE, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, ACTIONS),
        )  # fmt: skip
        with torch.no_grad():
            for norm in (self.input_norm, self.output_norm):
                norm.weight.uniform_(0.5, 1.5)
                norm.bias.uniform_(-0.5, 0.5)

    def parameters(self) -> np.ndarray:
        layers = (self.query, self.key, self.value, self.input_norm, self.output_norm, self.network)
        flat = [one.detach().numpy().ravel() for layer in layers for one in layer.parameters()]
        return np.concatenate(flat)

    @torch.no_grad()
    def scores(self, patches: np.ndarray, previous: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(patches).float().flatten(2) / 255.0
        before = torch.from_numpy(previous).expand(len(x), -1)
        keys = self.key(torch.cat([x.diff(dim=1).flatten(1), before], 1))
        values = self.value(self.input_norm(x).flatten(1))
        table = torch.from_numpy(make_positional_table(400, 8)).float()
        attention = torch.softmax(self.query(table) @ keys.T / MESSAGE**0.5, -1)
        message = self.output_norm(torch.relu(attention @ values))
        image = message.reshape(20, 20, MESSAGE).permute(2, 0, 1)[None]
        return np.asarray(self.network(image)[0])


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_imported_weights_give_the_scores_that_the_description_gives(tmp_path, engine):
    torch.manual_seed(0)
    theirs = PuzzlePong()
    path = tmp_path / "puzzle_pong.npz"
    np.savez(path, params=theirs.parameters())
    policy = make_policy(import_policy_of_authors(path, "puzzle_pong"), engine=engine)
    rng = np.random.default_rng(0)
    previous = np.eye(ACTIONS, dtype=np.float32)[3]
    for _ in range(TICKS):
        patches = rng.integers(0, 256, (PATCHES, 4, 6, 6)).astype(np.uint8)
        expected = theirs.scores(patches, previous)
        previous = policy.step_array(patches, [str(i) for i in range(PATCHES)])
        np.testing.assert_allclose(policy._head.scores, expected, atol=1e-5)
        np.testing.assert_array_equal(previous, np.eye(ACTIONS)[expected.argmax()])
