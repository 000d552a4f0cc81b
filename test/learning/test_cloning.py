"""Compiled imitation: a true gradient, honest labels, and runs that resume to the same bits."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs the sim extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.cli import main
from an_control.disturbance import Disturber
from an_control.learning.dagger.compiled.gradient import Parameters, Piece, backward, forward, tape
from an_control.learning.dagger.compiled.memory import ABSENT, Memory, show
from an_control.learning.dagger.compiled.run import CompiledDagger
from an_control.learning.dagger.compiled.training import Cloner, Cloning
from an_control.learning.es.parametrisation import Authors
from an_control.learning.rollout.engine import training_starts
from an_control.learning.rollout.protocol import Protocol
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.policy import OrderedSizes, read_model, write_model
from an_control.policy.random_model import random_model
from an_control.policy.tasks import CARTPOLE_TASK

parse = Protocol.parse_disturbance
STEPS, SLOTS, D, QUERIES, ACTIONS, LANES = 7, 3, 8, 4, 2, 16


def shapes(stack):
    """Of the parameters: of LSTMs, or of neurons on so many stacked readings."""
    units = D if stack else 4 * D
    return (
        (units, stack or 1),
        (units, ACTIONS),
        (units, 0 if stack else D),
        (units,),
        (QUERIES, D),
        (ACTIONS, QUERIES),
        (ACTIONS,),
        (SLOTS, D),
        (SLOTS,),
    )


SHARE = 0.3
TINY = Cloning(rounds=3, updates=4, first_episodes=32, episodes=32, memory=64, batch=32)


@pytest.fixture(scope="module")
def teacher():
    return random_model(OrderedSizes(5, 1, [8]), seed=2, task=CARTPOLE_TASK)


@pytest.fixture(params=[0, 3])
def stack(request):
    return request.param


@pytest.fixture
def piece(stack):
    rng = np.random.default_rng(0)

    def uniform(*shape):
        return rng.uniform(-1.0, 1.0, shape).astype(np.float32)

    counts = np.ones((STEPS, LANES), np.float32)
    counts[5:, 3] = 0.0
    share = rng.uniform(0.5, 1.5, (STEPS, LANES)).astype(np.float32)
    channels = np.stack([rng.permutation(SLOTS) for _ in range(STEPS * LANES)], -1)
    return Piece(
        uniform(STEPS, SLOTS, stack or 1, LANES),
        uniform(STEPS, ACTIONS, LANES),
        uniform(STEPS, ACTIONS, LANES),
        counts,
        np.moveaxis(channels.T.reshape(STEPS, LANES, SLOTS), 1, 2).astype(np.int8).copy(),
        share,
    )


def loss_in_torch(torch, weights, piece):
    """The same loss written down in torch, float64, and its gradients."""
    w = [torch.tensor(array.astype(np.float64), requires_grad=True) for array in weights]
    inputs, action, hidden, bias, scores, out, out_bias, channel, channel_bias = w
    observed, previous, labels, counts, channels, share = (
        torch.tensor(array.astype(np.float64)) for array in piece
    )
    h = c = torch.zeros(LANES, SLOTS, D, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for t in range(STEPS):
        o = observed[t, :, 0].T
        z = observed[t].permute(2, 0, 1) @ inputs.T + (previous[t].T @ action.T)[:, None] + bias
        if hidden.shape[1]:
            i, f, g, leave = (z + h @ hidden.T).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = leave.sigmoid() * c.tanh()
        else:
            h = z.tanh()
        sums = ((h @ scores.T).tanh() * o[..., None]).sum(1)
        message = (share[t, :, None] * sums).tanh()
        u = message @ out.T + out_bias
        chance = (1.0 + labels[t].T) / 2.0
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(
            2.0 * u, chance, reduction="none"
        )
        read = h @ channel.T + channel_bias
        right = torch.nn.functional.one_hot(channels[t].T.long(), SLOTS)
        mistaken = 0.5 * ((read - right) ** 2).sum((1, 2))
        total = total + ((entropy.sum(1) + SHARE * mistaken) * counts[t]).sum()
    total.backward()
    return [np.zeros(array.shape) if array.grad is None else array.grad.numpy() for array in w]


def test_the_compiled_gradient_is_the_gradient(piece, stack):
    torch = pytest.importorskip("torch", reason="needs the train extra")
    rng = np.random.default_rng(1)
    weights = Parameters(
        *(rng.normal(0.0, 0.5, shape).astype(np.float32) for shape in shapes(stack))
    )
    room = tape(STEPS, SLOTS, D, QUERIES, ACTIONS, LANES, not stack)
    forward(weights, piece, room)
    gradient = Parameters(*(np.zeros((*shape, LANES), np.float32) for shape in shapes(stack)))
    backward(weights, piece, room, np.float32(SHARE), gradient)
    expected = loss_in_torch(torch, weights, piece)
    for name, ours, theirs in zip(Parameters._fields, gradient, expected, strict=True):
        np.testing.assert_allclose(ours.sum(-1), theirs, rtol=2e-4, atol=2e-4, err_msg=name)


def test_a_piece_shows_the_action_before_each_step_and_what_each_slot_shows():
    memory = Memory(4, 6, 2, 1)
    observations = np.arange(12, dtype=np.float32).reshape(1, 6, 2)
    channels = np.tile(np.array([1, 0], np.int8), (1, 6, 1))
    actions = 10.0 + np.arange(6, dtype=np.float32).reshape(1, 6, 1)
    memory.add(observations[:, :, [1, 0]], channels, actions, -actions, np.array([5]))
    first, second = (memory.piece(np.zeros(1, int), begin, 3, Authors().sizes) for begin in (0, 3))
    assert first.previous[:, 0, 0].tolist() == [0, 10, 11]
    assert second.previous[:, 0, 0].tolist() == [12, 13, 14]
    assert second.labels[:, 0, 0].tolist() == [-13, -14, -15]
    assert first.observed[0, :, 0, 0].tolist() == [1, 0]
    assert second.counts[:, 0].tolist() == [1, 1, 0]


def test_a_piece_stacks_each_slots_newest_readings_from_the_episodes_begin_on():
    memory = Memory(4, 6, 1, 1)
    readings = np.arange(1, 7, dtype=np.float32).reshape(1, 6, 1)
    memory.add(readings, np.zeros((1, 6, 1), np.int8), readings, readings, np.array([6]))
    sizes = Authors(stack=3).sizes
    first, second = (memory.piece(np.zeros(1, int), begin, 3, sizes) for begin in (0, 3))
    assert first.observed[:, 0, :, 0].tolist() == [[1, 1, 1], [2, 1, 1], [3, 2, 1]]
    assert second.observed[:, 0, :, 0].tolist() == [[4, 3, 2], [5, 4, 3], [6, 5, 4]]


def test_the_student_that_records_is_the_student_that_learns(cartpole, fused, teacher, stack):
    """The way forward of learning gives the actions that the compiled rollout took."""
    sizes = Authors(stack=stack, normalise=5)
    settings = Cloning(sizes, rounds=1, mixture=(parse("20,noise=2,copies=3"),))
    cloner = Cloner(fused, teacher, CARTPOLE_TASK, settings, 5)
    cloner.history = [cloner.student] * 3
    cloner._record(0, cloner.student)
    alone = np.flatnonzero(
        (cloner._memory.actions[:1024, :, 0] != cloner._memory.labels[:1024, :, 0]).all(1)
        | (cloner._memory.steps[:1024] > 40)
    )
    weights, room = cloner._weights(), cloner._tapes[0]
    agree = 0
    for begin in range(0, len(alone) - LANES, LANES):
        chosen = alone[begin : begin + LANES]
        piece = cloner._memory.piece(chosen, 0, 40, sizes.sizes)
        small = tape(40, 10, D, 16, 1, LANES, not stack)
        forward(weights, piece, small)
        done = cloner._memory.actions[chosen, :40, 0].T
        taught = done == cloner._memory.labels[chosen, :40, 0].T
        wrong = np.abs(small.actions[:, 0] - done) > 1e-3
        counted = piece.counts > 0
        assert not (wrong & ~taught & counted).any()
        agree += (~taught & counted).sum()
    assert agree > 1000 and room is not None
    cloner.close()


@pytest.mark.parametrize("shuffle", [("none",), ("reset+20", "none,drop=0.4,copies=2")])
def test_a_resumed_run_continues_to_the_same_bits(tmp_path, cartpole, teacher, shuffle):
    settings = replace(TINY, mixture=tuple(map(parse, shuffle)))

    def run(folder):
        learner = CompiledDagger(cartpole, CARTPOLE_TASK, teacher, settings, 3, 8)
        return RunLoop(RunFolder(folder, learner.config), learner)

    whole = run(tmp_path / "whole")
    whole.run()
    run(tmp_path / "part").run(stop_after=2)
    part = run(tmp_path / "part")
    assert part.done == 2
    part.run()
    for name, array in whole.learner.model().arrays.items():
        assert array.tobytes() == part.learner.model().arrays[name].tobytes(), name
    assert whole.metrics[-1]["action_loss"] == part.metrics[-1]["action_loss"]


def test_distill_teaches_the_authors_form_from_the_command_line(tmp_path, teacher, capsys):
    path, out = tmp_path / "teacher.safetensors", tmp_path / "run"
    write_model(path, teacher)
    arguments = ["distill", "cartpole", "--teacher", str(path), "--out", str(out), "--smoke"]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert "2 of 2 rounds were done before" in capsys.readouterr().out
    assert read_model(out / "model.safetensors").sizes.queries == 16


@pytest.mark.parametrize("recipe", ["--compiled", "--no-compiled"])
def test_distill_teaches_neurons_with_stacked_readings(tmp_path, teacher, recipe):
    path, out = tmp_path / "teacher.safetensors", tmp_path / "run"
    write_model(path, teacher)
    arguments = ["distill", "cartpole", "--teacher", str(path), "--out", str(out), "--smoke"]
    assert main([*arguments, recipe, "--stack", "3", "--neuron", "16"]) == 0
    model = read_model(out / "model.safetensors")
    assert (model.sizes.stack, model.sizes.neuron) == (3, 16)
    assert model.arrays["neuron.input"].shape == (16, 3)
    assert "neuron.hidden" not in model.arrays


@pytest.mark.parametrize(
    "words",
    [
        ["--compiled", "--shuffle", "reset,noise=2,copies=3", "20,drop=0.2"],
        ["--no-compiled", "--absent", "1", "--copied", "1", "--foreign", "1", "--added", "3"],
    ],
)
def test_distill_teaches_a_normalised_student_with_channels_added_and_lost(
    tmp_path, teacher, words
):
    path, out = tmp_path / "teacher.safetensors", tmp_path / "run"
    write_model(path, teacher)
    arguments = ["distill", "cartpole", "--teacher", str(path), "--out", str(out), "--smoke"]
    if "20,drop=0.2" in words:  # drops and reshuffles are not for compiled rollouts together
        assert main([*arguments, "--normalise", *words]) == 2
        words = [*words[:-1], "reset,drop=0.2"]
    assert main([*arguments, "--normalise", *words]) == 0
    assert read_model(out / "model.safetensors").sizes.normalise == 5


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--compiled", "--absent", "0.2"], "--absent"),
        (["--no-compiled", "--shuffle", "reset"], "--shuffle"),
        (["--no-compiled", "--copied", "1.5"], "--copied 1.5: must be from 0 to 1"),
        (["--compiled", "--shuffle", "reset,zeroed"], "reset,zeroed"),
    ],
)
def test_distill_names_the_option_that_a_recipe_does_not_take(
    tmp_path, teacher, capsys, words, named
):
    path = tmp_path / "teacher.safetensors"
    write_model(path, teacher)
    arguments = ["distill", "cartpole", "--teacher", str(path), "--out", str(tmp_path / "run")]
    assert main([*arguments, *words]) == 2
    assert named in capsys.readouterr().err


def test_distill_without_a_teacher_says_how_to_get_one(tmp_path, capsys):
    assert main(["distill", "cartpole", "--out", str(tmp_path)]) == 2
    assert "an-control train cartpole --form ordered" in capsys.readouterr().err


def test_distill_goes_on_from_a_student_that_is_there(cartpole, teacher):
    form = Cloning().form
    start = np.random.default_rng(0).normal(0.0, 0.3, form.size)
    settings = Cloning(**{**TINY.__dict__, "rate": 1e-9, "final_rate": 1e-9})
    learner = CompiledDagger(cartpole, CARTPOLE_TASK, teacher, settings, 3, 8, start)
    learner.step()
    np.testing.assert_allclose(form.vector(learner.model()), start, atol=1e-5)
    learner.close()


def test_memory_keeps_what_each_slot_shows_and_which_channel_that_is(fused):
    """Of every disturbance at once, against the scrambling that the robot's readings pass."""
    observations = np.random.default_rng(0).standard_normal((3, 50, 5)).astype(np.float32)
    starts = training_starts(np.random.default_rng(1), 3)
    for text in ("none", "reset+20,noise=2", "reset,drop=0.4,copies=3,noise=1"):
        scrambling = parse(text)
        readings, shown = show(observations, fused.conditions(starts, scrambling), 12)
        for episode, start in enumerate(starts):
            scramble = Disturber(fused.channels, scrambling, start.run)
            scramble.reset(start.episode)
            for tick, observation in enumerate(observations[episode]):
                values, _ = scramble.apply(observation, fused.channels)
                there = shown[episode, tick] != ABSENT
                seen = readings[episode, tick]
                assert sorted(seen[there].tolist()) == sorted(values.tolist())
                assert (seen[~there] == 0.0).all()
                known = there & (shown[episode, tick] < 5)
                assert (seen[known] == observation[shown[episode, tick][known]]).all()
