"""`an-control train-teacher` improves a teacher from the command line and leaves one to distill."""

import json

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.cli import main
from an_control.learning.runs.run_folder import CHECKPOINT
from an_control.policy import load_policy


def test_it_leaves_a_teacher_that_distill_takes(tmp_path):
    figures, run = tmp_path / "figures.json", tmp_path / "teacher"
    train = ["train-teacher", "ant", "--smoke", "--out", str(run), "--json", str(figures)]
    assert main(train) == 0
    written = json.loads(figures.read_text())
    assert [line["iteration"] for line in written["iterations"]] == [1, 2]
    policy = load_policy(written["model"])
    assert policy.model.kind == "mlp" and len(policy.nominal_ids) == 28
    before = (run / CHECKPOINT).read_bytes()
    assert main(train) == 0, "a run that is done stays as it is"
    assert (run / CHECKPOINT).read_bytes() == before
    distill = ["distill", "ant", "--smoke", "--rounds", "0", "--out", str(tmp_path / "student")]
    assert main([*distill, "--teacher", written["model"]]) == 0


def test_a_stopped_run_continues_to_the_same_bits_and_another_is_refused(tmp_path, capsys):
    def teach(name, *more):
        return main(["train-teacher", "ant", "--smoke", "--out", str(tmp_path / name), *more])

    assert teach("whole") == 0
    assert teach("part", "--stop-after", "1") == 0
    assert teach("part") == 0
    models = [
        load_policy(tmp_path / name / "model.safetensors").model for name in ("whole", "part")
    ]
    for name, array in models[0].arrays.items():
        assert array.tobytes() == models[1].arrays[name].tobytes()
    lines = (tmp_path / "part/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1, 2]
    assert teach("part", "--seed", "2") == 1
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["nothing"], "'nothing' is not one of"), (["ant", "--iterations", "0"], "--iterations 0")],
)
def test_bad_input_ends_with_2_and_names_it(arguments, named, tmp_path, capsys):
    assert main(["train-teacher", *arguments, "--out", str(tmp_path)]) == 2
    assert named in capsys.readouterr().err
