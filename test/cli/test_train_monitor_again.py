"""`an-control train-monitor` again in its folder: with other limits, after its end, after NaN."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from cart_env import Cart

from an_control.cli import main
from an_control.learning.forward_model import learner as learner_module
from an_control.learning.forward_model.learner import ForwardModelLearner
from an_control.learning.forward_model.networks import ForwardModelSettings
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.policy import AttentionSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.gym.environments import describe_task, make_environment

SHORT = ("--steps", "300", "--updates", "20", "--imputation-updates", "3")
LITTLE = 1e-6
"""Minutes in which each network gets one update."""


class FailingCart(Cart):
    """Works for `left` steps; then it fails as `how` says: "raises" from then on, or gives "nan"
    once."""

    left, how = 0, ""

    def step(self, action):
        state, *others = super().step(action)
        FailingCart.left -= 1
        if self.how == "raises" and self.left < 0:
            raise OSError("the cable is off")
        return state * np.nan if self.how == "nan" and self.left == 0 else state, *others


if "FailingCart-v0" not in gymnasium.registry:
    gymnasium.register("FailingCart-v0", FailingCart)


def model_of(path: Path, task: str) -> Path:
    """A random policy that has no monitor."""
    env = make_environment(task)
    sizes = AttentionSizes(actions=1, neuron=2, queries=4, key=2, inputs=["value"], head=[])
    write_model(path, make_random_model(sizes, task=describe_task(env, task, task)))
    return path


@pytest.fixture
def cart(tmp_path) -> Path:
    return model_of(tmp_path / "cart.safetensors", "cart_env:Cart-v0")


@pytest.fixture
def run(tmp_path, cart, monkeypatch):
    """Makes or continues a run of two steps for each of the first two networks."""
    monkeypatch.setattr(learner_module, "CHUNK", 10)

    def run(name: str, minutes: float, stop_after: int | None = None) -> RunLoop:
        settings = ForwardModelSettings(
            hidden=(8,), steps=300, updates=15, identity=8, identity_updates=15,
            imputation=8, imputation_updates=15, imputation_batch=4, minutes=minutes,
        )  # fmt: skip
        env = make_environment("cart_env:Cart-v0")
        learner = ForwardModelLearner(tmp_path / name, env, read_model(cart), settings, seed=1)
        loop = RunLoop(RunFolder(tmp_path / name, learner.config), learner)
        loop.run(stop_after=stop_after)
        return loop

    return run


@pytest.mark.parametrize("stop_after", [1, 3, 5, 7])
def test_with_fewer_minutes_the_network_at_hand_ends_as_it_is(run, tmp_path, stop_after):
    run("run", minutes=0.0, stop_after=stop_after)
    ended = run("run", LITTLE)
    assert ended.is_finished and "loss" not in ended.metrics[stop_after]
    assert ended.metrics[stop_after]["update"] == 10
    assert [line["learns"] for line in ended.metrics][-1] == "impute"
    last = ended.learner.make_model()
    kept = read_model(tmp_path / "run/model.safetensors")
    assert all(a.tobytes() == kept.arrays[name].tobytes() for name, a in last.arrays.items())
    assert last.trained["forward"]["minutes_limit"] == LITTLE


@pytest.mark.parametrize("stop_after", [None, 2])
def test_with_more_minutes_a_run_that_was_cut_short_is_learned_as_if_it_had_had_them(
    run, stop_after
):
    whole = run("whole", minutes=0.0).learner.make_model()
    assert run("run", LITTLE, stop_after).learner.make_model().trained["forward"]["updates"] == 1
    parts = [
        run("run", minutes=0.0, stop_after=stop).learner.make_model() for stop in (5, 9, None)
    ][-1]
    assert parts.trained == whole.trained and whole.trained["forward"]["updates"] == 15
    assert all(a.tobytes() == parts.arrays[name].tobytes() for name, a in whole.arrays.items())


def test_back_at_the_minutes_that_had_cut_it_short_nothing_begins_again(run):
    run("run", 2 * LITTLE, stop_after=1)
    run("run", LITTLE, stop_after=2)
    last = run("run", 2 * LITTLE)
    assert not last.learner.starts_again and last.is_finished
    assert run("run", 3 * LITTLE).learner.starts_again


def test_a_run_that_needed_no_more_minutes_keeps_those_that_it_had(run):
    first = run("run", minutes=5.0)
    for minutes in (20.0, LITTLE, 0.0):
        again = run("run", minutes)
        assert (
            again.done == first.done
            and again.learner.make_model().trained["forward"]["minutes_limit"] == 5
        )


def test_the_same_command_after_the_end_leaves_the_file_as_it_was_written(cart, tmp_path, capsys):
    arguments = ["train-monitor", str(cart), "--folder", str(tmp_path / "run"), *SHORT]
    assert main(arguments) == 0
    written = cart.read_bytes()
    assert main(arguments) == 0
    assert "4 of 4 steps were done before" in capsys.readouterr().out
    assert cart.read_bytes() == written
    assert main([*arguments, "--seed", "2"]) == 2
    assert "(--seed is 1, not 2)" in capsys.readouterr().err


def test_with_more_minutes_after_the_end_it_learns_again_and_says_so(cart, tmp_path, capsys):
    arguments = ["train-monitor", str(cart), "--folder", str(tmp_path / "run"), *SHORT]
    assert main([*arguments, "--minutes", str(LITTLE)]) == 0
    assert read_model(cart).trained["forward"]["updates"] == 1
    assert main(arguments) == 0
    assert "begins again" in capsys.readouterr().out
    assert read_model(cart).trained["forward"] == {
        "steps": 300, "updates": 20, "imputation_updates": 3,
    }  # fmt: skip


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Trains the monitor of a cart that fails as asked, in a folder; returns the status."""
    monkeypatch.setattr(RunLoop, "save_every_s", 0.0)
    model = model_of(tmp_path / "model.safetensors", "FailingCart-v0")

    def train(folder: str, how: str = "", left: int = 0) -> int:
        monkeypatch.setattr(FailingCart, "how", how)
        monkeypatch.setattr(FailingCart, "left", left)
        arguments = "train-monitor", str(model), *SHORT, "--folder", str(tmp_path / folder)
        return main([*arguments, "--out", str(tmp_path / f"{folder}.safetensors")])

    return train


@pytest.mark.parametrize(("done", "left"), [(0, 30), (3, 400)])
def test_an_environment_that_breaks_ends_it_with_one_line_and_what_was_learned_before_is_kept(
    done, left, failing, tmp_path, capsys
):
    assert failing("whole") == 0
    capsys.readouterr()
    assert failing("run", "raises", left) == 1
    said = capsys.readouterr().err
    assert said.startswith("an-control train-monitor: environment 'FailingCart-v0': step ")
    assert "OSError: the cable is off" in said and "; 20 episodes in a row failed" in said
    assert said.count("\n") == 1
    assert failing("run") == 0
    assert (f"{done} of 4 steps were done before" in capsys.readouterr().out) == bool(done)
    whole, run = (tmp_path / f"{name}.safetensors" for name in ("whole", "run"))
    assert run.read_bytes() == whole.read_bytes()


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")  # its checker sees the NaN
@pytest.mark.parametrize("left", [30, 400])
def test_a_step_without_any_reading_is_learned_as_one_with_the_newest_ones(left, failing, capsys):
    assert failing("run", "nan", left) == 0
    assert "failed" not in capsys.readouterr().out


def test_one_step_to_learn_from_is_one_with_missing_channels_too(cart):
    assert main(["train-monitor", str(cart), *SHORT, "--steps", "1"]) == 0
    assert read_model(cart).forward.imputation > 0


def test_a_model_file_that_cannot_be_written_is_refused_before_the_work(
    cart, tmp_path, monkeypatch, capsys
):
    before = cart.read_bytes()
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    assert main(["train-monitor", str(cart), *SHORT]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(
        f"an-control train-monitor: {cart}: folder {tmp_path} is not writable"
    )
    assert "learns" not in said.out
    assert cart.read_bytes() == before
