"""The parts of the reference that the code writes say what the code says."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="needs the docs extra")

from an_control.cli.help import JSON_KEYS, OFFERS, VERBS
from an_control.disturbance.settings import SETTINGS
from an_control.ros.parameter_table import PARAMETERS

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def pages():
    path = ROOT / "docs/_extension/generated.py"
    spec = importlib.util.spec_from_file_location("generated", path)
    module = sys.modules.setdefault("generated", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module.PAGES


def test_every_verb_has_its_options(pages):
    pytest.importorskip("torch", reason="needs the train extra")
    text = pages["cli"]()
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        f"### an-control {verb}" for verb in VERBS
    ]
    assert "`--shuffle " in text and "`--wiring PATH`" in text and "--help" not in text


def test_every_parameter_and_disturbance_and_offer_has_a_row(pages):
    for name, entries in (
        ("parameters", PARAMETERS),
        ("disturbances", [one.name for one in SETTINGS]),
        ("offers", OFFERS),
    ):
        text = pages[name]()
        assert all(f"| `{one}` |" in text for one in entries), name
        assert len({line.count(" | ") for line in text.splitlines()[2:]}) == 1, name


def test_every_verb_with_json_has_its_keys(pages):
    text = pages["json"]()
    assert all(f"| `{verb}` | `" in text for verb in JSON_KEYS)
    assert len({line.count(" | ") for line in text.splitlines()[2:]}) == 1


def test_every_key_of_a_yaml_file_has_a_row(pages):
    text = pages["wiring"]()
    for place in ("sources.NAME", "channels.ID", "command.actuators.ACTUATOR", "command.bring_up"):
        assert f"\n## {place}\n" in text
    assert "| `max_age_s` | number, 0 to 1e+06, needed |" in text
    assert "\n## publish.TOPIC\n" in pages["simulation"]()
