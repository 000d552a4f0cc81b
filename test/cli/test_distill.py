"""`an-control distill` trains from the command line and says what is wrong in one line."""

import json

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.cli import main
from an_control.policy import read_model


def test_it_leaves_a_model_and_its_figures_and_continues_where_it_was(tmp_path, capsys):
    figures = tmp_path / "figures.json"
    arguments = [
        "distill",
        "ant",
        "--out",
        str(tmp_path / "run"),
        "--smoke",
        "--no-products",
        "--json",
        str(figures),
    ]
    assert main(arguments) == 0
    written = json.loads(figures.read_text())
    model = read_model(written["model"])
    assert [line["round"] for line in written["rounds"]] == [1, 2, 3]
    assert model.task["name"] == "ant" and "neuron.products" not in model.arrays
    assert main(arguments) == 0
    assert "3 of 3 rounds were done before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nothing"], "environment 'nothing'"),
        (["pong", "--missing-patches", "1.5"], "--missing-patches"),
        (["pong", "--missing-patches", "0.5", "0.2"], "--missing-patches (0.5, 0.2)"),
        (["ant", "--missing-patches", "0.5"], "not for ant"),
        (["ant", "--seed", "4"], "other settings"),
        (["ant", "--rounds", "-1"], "--rounds -1"),
    ],
)
def test_bad_input_ends_with_2_and_names_it(arguments, named, tmp_path, capsys):
    run = ["--out", str(tmp_path), "--smoke"]
    (tmp_path / "config.json").write_text("{}")
    assert main(["distill", *arguments, *run]) == 2
    assert named in capsys.readouterr().err
