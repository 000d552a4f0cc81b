"""Sphinx settings of the documentation site: `make docs` writes it to build/docs.

Every warning is an error, links within the site are checked, and no page asks another host for
anything: fonts are the reader's, scripts and styles lie beside the pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
# rosdoc2 builds from a copy that may lie anywhere, and puts the clone on the path.
places = (*DOCS.parents, *map(Path, sys.path))
ROOT = next(one for one in places if (one / "docs/_extension").is_dir())
sys.path[:0] = [str(ROOT / "docs/_extension"), str(ROOT), str(ROOT / "sim")]

from an_control import __version__  # noqa: E402

project = "an_control"
author = "The an_control authors"
project_copyright = f"2026, {author}"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
# rosdoc2 writes an index.rst and a copy of README.md and the like beside our pages.
exclude_patterns = ["_*", "*.rst", "[A-Z]*"]
nitpicky = False  # docstrings name types in words

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# What the pages of the Python API import but need not run.
autodoc_mock_imports = ["rclpy", "pybullet", "pybullet_utils"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "literal"  # a docstring writes `name` as a page does
smartquotes = False  # "--option" must keep its hyphens

html_theme = "furo"
html_title = f"an_control {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_static/scorer.js")
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

rosdoc2_settings = {
    "allow_other_extensions": True,  # `generated`
    "override_theme": False,
    "enable_intersphinx": False,  # it would ask other hosts
    "automatically_extend_intersphinx_mapping": False,
}
