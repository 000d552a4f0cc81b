"""`an-control train` refuses options that it would not read."""

import pytest

pytest.importorskip("cma", reason="needs the train extra")
pytest.importorskip("numba", reason="needs the sim extra")

from an_control.cli import main
from an_control.policy import MlpSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import CARTPOLE_TASK

START = "--start-model, whose form is taken; allowed is --normalise"
MLP = "--form mlp; allowed is --hidden"
TRANSFORMER = "--recurrence trxl, trxl-i or gtrxl"


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "start.safetensors"
    write_model(path, make_random_model(MlpSizes(5, 1, [8]), seed=2, task=CARTPOLE_TASK))
    return ["--start-model", str(path)]


def refused(tmp_path, capsys, words):
    assert main(["train", "cartpole", "--out", str(tmp_path / "run"), *words]) == 2
    assert not (tmp_path / "run").exists()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--form", "mlp"],
        ["--hidden", "16"],
        ["--queries", "8"],
        ["--neuron", "4"],
        ["--stack", "4"],
        ["--encoder", "sab"],
        ["--pma", "4"],
        ["--learned-queries", "4"],
        ["--recurrence", "gru"],
        ["--window", "5"],
    ],
    ids=lambda words: words[0],
)
def test_a_start_model_decides_the_form(tmp_path, capsys, start, words):
    assert f"{words[0]}: not with {START}" in refused(tmp_path, capsys, [*start, *words])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--normalise"], "--normalise"),
        (["--queries", "8", "--neuron", "4", "--stack", "4"], "--queries, --neuron, --stack"),
        (["--encoder", "isab", "--inducing", "3"], "--encoder, --inducing"),
        (["--recurrence", "gtrxl", "--units", "8"], "--recurrence, --units"),
    ],
)
def test_an_mlp_has_no_attention(tmp_path, capsys, words, named):
    assert f"{named}: not for {MLP}" in refused(tmp_path, capsys, ["--form", "mlp", *words])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--inducing", "3"], "--inducing 3: only with --encoder isab"),
        (["--inducing", "3", "--encoder", "sab"], "--inducing 3: only with --encoder isab"),
        (["--heads", "2"], "--heads 2: only with --encoder sab or isab, or --pma"),
        (["--units", "5"], "--units 5: only with --recurrence"),
        (["--units", "5", "--recurrence", "none"], "--units 5: only with --recurrence"),
        (["--window", "5"], f"--window 5: only with {TRANSFORMER}"),
        (["--layers", "2", "--recurrence", "gru"], f"--layers 2: only with {TRANSFORMER}"),
        (["--recurrent-heads", "2"], f"--recurrent-heads 2: only with {TRANSFORMER}"),
        (["--pma", "4", "--queries", "8"], "--queries: not with --pma or --learned-queries"),
        (["--learned-queries", "4", "--form", "attention-raw"], "--form: not with --pma or"),
        (["--optimiser", "cma", "--rate", "0.1"], "--rate: not for --optimiser cma;"),
        (["--optimiser", "cma-diagonal", "--sigma-rate", "0.1"], "--sigma-rate: not for"),
        (["--dask", "tcp://nowhere:1", "--workers", "2"], "--workers: not with --dask"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_an_option_of_a_part_that_is_not_there_is_refused(tmp_path, capsys, words, why):
    assert why in refused(tmp_path, capsys, words)
