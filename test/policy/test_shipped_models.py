"""A shipped model is loaded by its name, unless there is a file of that name."""

import shutil

import pytest

import an_control
from an_control.system.share import find_share_path


def test_a_shipped_model_is_loaded_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cartpole").mkdir()  # a run folder is no model
    policy = an_control.load_policy("cartpole", engine="numpy")
    assert policy.model.task.environment == "an_control/CartPoleSwingUpHarder-v0"


def test_a_file_comes_before_the_shipped_model_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(find_share_path("models/cartpole_reshuffle.safetensors"), tmp_path / "cartpole")
    policy = an_control.load_policy("cartpole", engine="numpy")
    shipped = an_control.load_policy(find_share_path("models/cartpole.safetensors"), engine="numpy")
    assert policy.model.parameter_count != shipped.model.parameter_count


@pytest.mark.parametrize("name", ["aunt", "ant-2"])
def test_an_unknown_name_is_refused_with_those_that_ship(name):
    with pytest.raises(
        an_control.ModelError, match=rf"^{name}: neither a file nor .*\(ant, ant_ppo, "
    ):
        an_control.load_policy(name)


def test_an_empty_path_is_named_as_one():
    with pytest.raises(an_control.ModelError, match=r"^the path of the model file is empty$"):
        an_control.load_policy("")
