"""Policies of Stable-Baselines3 and TorchScript act as ONNX files as they do at home."""

import io
import pickle
import zipfile

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")
pytest.importorskip("onnxruntime")

import gymnasium
import torch
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from an_control import load_policy
from an_control.cli import main
from an_control.learning.import_policy import PolicyNames, import_policy, read_normalisation
from an_control.policy import ModelError

pytestmark = pytest.mark.filterwarnings("ignore")


class Reach(gymnasium.Env):
    """Four numbers, two actions of different bounds."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Box(
        np.float32([-2.0, 0.0]), np.float32([2.0, 5.0]), dtype=np.float32
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._see(), {}

    def step(self, action):
        self.steps += 1
        return self._see(), float(-np.abs(action).sum()), False, self.steps >= 20, {}

    def _see(self):
        return (self.np_random.normal(size=4) * [1.0, 5.0, 0.1, 2.0] + [0, 3, 0, 1]).astype(
            np.float32
        )


gymnasium.register("test/Reach-v0", Reach)
KINDS = {
    "ppo": lambda env: PPO("MlpPolicy", env, n_steps=40, batch_size=20, device="cpu", seed=1),
    "ppo relu": lambda env: PPO(
        "MlpPolicy", env, n_steps=40, batch_size=20, device="cpu", seed=1,
        policy_kwargs={"activation_fn": torch.nn.ReLU, "net_arch": [8]},
    ),
    "sac": lambda env: SAC("MlpPolicy", env, learning_starts=10, device="cpu", seed=1),
    "td3": lambda env: TD3("MlpPolicy", env, learning_starts=10, device="cpu", seed=1),
}  # fmt: skip


def learned(folder, kind, normalised=True):
    """A policy that has learned a little; its zip and its VecNormalize."""
    env = DummyVecEnv([Reach])
    if normalised:
        env = VecNormalize(env, clip_obs=2.0)
    policy = KINDS[kind](env)
    policy.learn(80)
    policy.save(folder / "policy.zip")
    if normalised:
        env.training = False
        env.save(folder / "normalise.pkl")
    return policy, env


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_of_stable_baselines_acts_as_it_does_there(tmp_path, kind, capsys):
    policy, env = learned(tmp_path, kind)
    arguments = ["--out", str(tmp_path / "out.onnx"), "--task", "test/Reach-v0"]
    arguments += ["--normalise", str(tmp_path / "normalise.pkl")]
    assert main(["import", str(tmp_path / "policy.zip"), *arguments]) == 0
    assert "cut off" not in capsys.readouterr().out
    ours = load_policy(tmp_path / "out.onnx")
    low, high = Reach.action_space.low, Reach.action_space.high
    rng = np.random.default_rng(7)
    for _ in range(200):
        seen = (rng.normal(size=4) * [2.0, 9.0, 0.3, 5.0]).astype(np.float32)
        action, _ = policy.predict(env.normalize_obs(seen[None]), deterministic=True)
        expected = 2.0 * (action[0] - low) / (high - low) - 1.0
        np.testing.assert_allclose(ours.step_array(seen, ours.nominal_ids), expected, atol=2e-5)
    assert len(ours.nominal_ids) == 4 and len(ours.model.task.actuators) == 2


def test_without_a_task_channels_and_actuators_are_numbered(tmp_path):
    learned(tmp_path, "ppo", normalised=False)
    out = tmp_path / "out.onnx"
    assert main(["import", str(tmp_path / "policy.zip"), "--out", str(out)]) == 0
    policy = load_policy(out)
    assert policy.nominal_ids == tuple(f"observation.{i}" for i in range(4))
    assert policy.model.task.actuators == ("action.0", "action.1")


class Scripted(torch.nn.Module):
    """A network with a branch, which tracing would lose."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ELU(), torch.nn.Linear(8, 2), torch.nn.Tanh()
        )

    def forward(self, x):
        return self.layers(torch.clamp(x, -3.0, 3.0))


class Remembering(torch.nn.Module):
    """A network that keeps its state inside, as rsl_rl's recurrent TorchScript does."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.register_buffer("hidden", torch.zeros(1, 2))

    def forward(self, x):
        self.hidden[:] = torch.tanh(self.layer(x) + self.hidden)
        return self.hidden.clone()


def scripted(folder, network):
    path = folder / "policy.pt"
    torch.jit.script(network).save(str(path))
    return path


def test_a_torchscript_network_acts_as_it_does_in_torch(tmp_path, capsys):
    network = Scripted().eval()
    path, out = scripted(tmp_path, network), tmp_path / "out.onnx"
    assert main(["import", str(path), "--out", str(out), "--task", "test/Reach-v0"]) == 0
    assert "those beyond 1 are cut off" in capsys.readouterr().out
    policy = load_policy(out)
    for seen in np.random.default_rng(8).normal(size=(50, 4)).astype(np.float32) * 3:
        with torch.no_grad():
            expected = network(torch.from_numpy(seen[None])).numpy()[0]
        np.testing.assert_allclose(policy.step_array(seen, policy.nominal_ids), expected, atol=1e-5)


def refusal(path, *more):
    with pytest.raises(ModelError) as caught:
        import_policy(path, PolicyNames(), *more)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    return text


def test_a_network_that_keeps_its_state_inside_is_refused(tmp_path):
    assert "it keeps its state inside" in refusal(scripted(tmp_path, Remembering()))


class Bomb:
    """Unpickled, it would write a file."""

    path = ""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_the_pickle_of_a_vecnormalize_runs_no_code(tmp_path):
    bomb = tmp_path / "normalise.pkl"
    bomb.write_bytes(pickle.dumps({"obs_rms": Bomb(tmp_path / "ran")}))
    with pytest.raises(ModelError, match="not a file of a VecNormalize"):
        read_normalisation(bomb)
    assert not (tmp_path / "ran").exists()


def test_the_weights_of_a_zip_run_no_code(tmp_path):
    learned(tmp_path, "ppo", normalised=False)
    content = io.BytesIO()
    torch.save({"action_net.weight": Bomb(tmp_path / "ran")}, content)
    path = replaced(tmp_path / "policy.zip", {"policy.pth": content.getvalue()})
    assert "its weights cannot be read" in refusal(path)
    assert not (tmp_path / "ran").exists()


def replaced(path, contents):
    """The zip with other contents in some of its files."""
    other = path.with_name("other.zip")
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(other, "w") as after:
        for one in before.namelist():
            after.writestr(one, contents.get(one, before.read(one)))
    return other


def test_what_is_no_such_policy_is_refused_by_name(tmp_path, capsys):
    path = tmp_path / "policy.zip"
    path.write_bytes(b"PK\x03\x04nothing")
    refusal(path)
    path.write_bytes(b"nothing")
    assert "neither a zip of Stable-Baselines3 nor TorchScript" in refusal(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy.pth", bytes(300 * 2**20))
    assert "unpacks to more than" in refusal(path)
    torch.save({"a": torch.zeros(2)}, tmp_path / "weights.pt")
    assert "weights alone are not a policy" in refusal(tmp_path / "weights.pt")
    assert main(["import", str(path), "--out", str(tmp_path / "o.bin")]) == 2
    assert "must end in .onnx" in capsys.readouterr().err
    learned(tmp_path, "ppo", normalised=False)
    _, env = learned(tmp_path, "ppo")
    env.obs_rms.mean, env.obs_rms.var = np.zeros(3), np.ones(3)
    env.save(tmp_path / "short.pkl")
    text = refusal(tmp_path / "policy.zip", tmp_path / "short.pkl")
    assert "has 4 inputs, but its VecNormalize has 3" in text
    wrong = replaced(path, {"data": b"{}"})
    assert "its actions are not a Box" in refusal(wrong)


def _expect(policy, low, high):
    """The action of a policy of Stable-Baselines3, as ours gives it."""

    def act(seen):
        return 2.0 * (policy.predict(seen[None], deterministic=True)[0][0] - low) / (high - low) - 1

    return act


@pytest.mark.parametrize("kind", [SAC, TQC])
@pytest.mark.parametrize("options", [{}, {"net_arch": []}, {"clip_mean": 0.5}, {"clip_mean": 0.0}])
def test_a_policy_that_learned_with_state_dependent_noise_acts_as_it_does_there(
    tmp_path, kind, options
):
    policy = kind("MlpPolicy", Reach(), use_sde=True, policy_kwargs=options, device="cpu", seed=1)
    with torch.no_grad():
        for weight in policy.actor.mu.parameters():
            weight *= 30.0  # so that the bound of the mean counts
    policy.save(tmp_path / "policy.zip")
    (tmp_path / "out.onnx").write_bytes(import_policy(tmp_path / "policy.zip", PolicyNames()))
    ours = load_policy(tmp_path / "out.onnx")
    act = _expect(policy, Reach.action_space.low, Reach.action_space.high)
    for seen in np.random.default_rng(7).normal(size=(50, 4)).astype(np.float32) * 3:
        np.testing.assert_allclose(ours.step_array(seen, ours.nominal_ids), act(seen), atol=2e-5)


def test_layers_that_an_old_ppo_shares_with_its_critic_are_converted(tmp_path):
    policy = PPO("MlpPolicy", Reach(), device="cpu", seed=1)
    policy.save(tmp_path / "policy.zip")
    weights = policy.policy.state_dict()
    for part in ("weight", "bias"):  # as versions before 1.8 name them
        weights[f"mlp_extractor.shared_net.0.{part}"] = weights.pop(
            f"mlp_extractor.policy_net.0.{part}"
        )
    content = io.BytesIO()
    torch.save(weights, content)
    path = replaced(tmp_path / "policy.zip", {"policy.pth": content.getvalue()})
    (tmp_path / "out.onnx").write_bytes(import_policy(path, PolicyNames()))
    ours = load_policy(tmp_path / "out.onnx")
    act = _expect(policy, Reach.action_space.low, Reach.action_space.high)
    for seen in np.random.default_rng(7).normal(size=(20, 4)).astype(np.float32):
        np.testing.assert_allclose(ours.step_array(seen, ours.nominal_ids), act(seen), atol=2e-5)


class Own(ActorCriticPolicy):
    """A policy class with another activation, which its zip does not name."""

    def __init__(self, *given, **named):
        super().__init__(*given, activation_fn=torch.nn.ReLU, **named)


class Halving(FlattenExtractor):
    """A features extractor that computes something, but has no weights."""

    def forward(self, observations):
        return 0.5 * super().forward(observations)


def test_what_would_act_otherwise_once_converted_is_refused(tmp_path):
    CrossQ("MlpPolicy", Reach(), device="cpu").save(tmp_path / "crossq.zip")
    text = refusal(tmp_path / "crossq.zip")
    assert "actor.latent_pi.0 is not a linear layer with weight and bias" in text
    options = {"features_extractor_class": Halving}
    PPO("MlpPolicy", Reach(), device="cpu", policy_kwargs=options).save(tmp_path / "own.zip")
    text = refusal(tmp_path / "own.zip")
    assert "'Halving'; allowed are FlattenExtractor, CombinedExtractor" in text
    PPO(Own, Reach(), device="cpu").save(tmp_path / "class.zip")
    text = refusal(tmp_path / "class.zip")
    assert f"its policy class is of {__name__!r}, so its network may be another" in text


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_vecnormalize_is_read_whichever_python_wrote_it(tmp_path, protocol):
    _, env = learned(tmp_path, "ppo")
    (tmp_path / "other.pkl").write_bytes(pickle.dumps(env, protocol))  # CPython 3.14 writes 5
    found, expected = (read_normalisation(tmp_path / one) for one in ("other.pkl", "normalise.pkl"))
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.sd, expected.sd)


def test_a_vecnormalize_of_a_dict_is_refused_by_name(tmp_path):
    _, env = learned(tmp_path, "ppo")
    env.obs_rms = {"observation": env.obs_rms}
    env.save(tmp_path / "dict.pkl")
    with pytest.raises(ModelError, match="observations of the type Dict, which are not converted"):
        read_normalisation(tmp_path / "dict.pkl")
