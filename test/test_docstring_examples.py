"""The examples in docstrings do what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"an_control": ROOT, "an_control_sim": ROOT / "sim"}


def modules_with_examples():
    """Return the names of the product's modules whose source has a doctest."""
    names = []
    for package, folder in PACKAGES.items():
        for path in sorted((folder / package).rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                parts = path.relative_to(folder).with_suffix("").parts
                names.append(".".join(parts).removesuffix(".__init__"))
    return names


@pytest.mark.parametrize("module", modules_with_examples())
def test_the_examples_of_a_module_run(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted and not result.failed
