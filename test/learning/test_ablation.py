"""A policy without one of its parts: what is left out has no influence, all else stays."""

from dataclasses import replace

import numpy as np
import pytest

from an_control.cli import main
from an_control.learning.evaluation.evaluate import make_model_without_part
from an_control.load import make_policy
from an_control.policy import AttentionSizes, MlpSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import make_paper_sizes
from an_control.policy.task import Task

PAPER = make_random_model(
    make_paper_sizes(actions=1, queries=16, hidden_layers=0), seed=3, gain=2.0
)
OURS = make_random_model(
    AttentionSizes(
        actions=2,
        neuron=6,
        queries=7,
        key=5,
        inputs=["value", "change"],
        head=[8],
        products=True,
        attention="softmax",
    ),
    seed=3,
    gain=2.0,
)
IDS = tuple("abcdef")


def stepped(model, ticks=4, seed=1):
    """A policy that has seen some ticks of six channels."""
    policy, rng = make_policy(model, "off", engine="numpy"), np.random.default_rng(seed)
    for _ in range(ticks):
        policy.step_array(rng.normal(size=len(IDS)), IDS)
    return policy


@pytest.mark.parametrize("model", [PAPER, OURS], ids=["paper", "ours"])
class TestWithout:
    def test_attention_all_channels_get_the_same_weights(self, model):
        assert np.ptp(stepped(model).attention, axis=1).max() > 0.01
        assert (
            np.ptp(stepped(make_model_without_part(model, "attention")).attention, axis=1).max()
            < 1e-6
        )

    def test_queries_all_places_of_the_message_are_the_same(self, model):
        assert np.ptp(stepped(model).attention, axis=0).max() > 0.01
        left = stepped(make_model_without_part(model, "queries")).attention
        of_channels = left if model.sizes.attention == "tanh" else left[: model.sizes.queries - 1]
        assert np.ptp(of_channels, axis=0).max() < 1e-6

    def test_action_the_neurons_do_not_see_what_was_sent(self, model):
        def key_after(shown, action):
            policy = stepped(shown)
            policy.previous_action = np.full(model.sizes.actions, action, np.float32)
            policy.step_array(np.zeros(len(IDS)), IDS)
            return policy.keys

        assert np.abs(key_after(model, 1.0) - key_after(model, -1.0)).max() > 1e-3
        left = make_model_without_part(model, "action")
        assert (key_after(left, 1.0) == key_after(left, -1.0)).all()

    @pytest.mark.parametrize("part", ["attention", "queries", "action"])
    def test_any_part_the_given_model_stays_as_it_is(self, model, part):
        before = {name: array.copy() for name, array in model.arrays.items()}
        left = make_model_without_part(model, part)
        assert all((model.arrays[name] == array).all() for name, array in before.items())
        assert left.sizes == model.sizes and left.arrays.keys() == model.arrays.keys()


def test_evaluate_plays_a_policy_without_a_part_beside_the_whole_one(tmp_path, capsys):
    path = tmp_path / "cartpole.safetensors"
    write_model(path, replace(PAPER, task=Task(name="cartpole")))
    words = ["reset", "reset,without=attention"]
    assert main(["evaluate", str(path), "--episodes", "2", "--table", *words]) == 0
    shown = capsys.readouterr().out
    assert "| `reset,without=attention` |" in shown


def test_a_policy_that_lacks_the_part_is_refused_before_anything_is_played(tmp_path, capsys):
    path = tmp_path / "mlp.safetensors"
    sizes = MlpSizes(channels=5, actions=1, head=[4])
    write_model(path, make_random_model(sizes, task=Task(name="cartpole")))
    assert main(["evaluate", str(path), "--table", "none", "none,without=queries"]) == 2
    assert "without=queries" in capsys.readouterr().err
