"""Paths of the files that ship with the code: config/, recipes/, models/ and launch/.

In a source tree these folders lie beside the package, and an editable or symlinked install uses
them there. An installation by pip or colcon puts them into `share/an_control` below the
installation prefix.
"""

import os
from pathlib import Path

PACKAGE = "an_control"


def find_share_path(relative: str) -> Path:
    """Return the absolute path of a file or folder that ships with the code.

    Args:
        relative: The path of the file or folder in the source tree, such as `config/ant.yaml`.

    Raises:
        FileNotFoundError: No folder has it; the text names every folder that was searched.
    """
    places = _list_share_folders()
    for place in places:
        path = place / relative
        if path.exists():
            return path
    searched = ", ".join(str(place) for place in places)
    raise FileNotFoundError(f"{relative} ships with {PACKAGE} but is in none of: {searched}")


def _list_share_folders() -> list[Path]:
    """Return the folders that may hold shipped files: this installation's, then those of ROS 2."""
    tree = Path(__file__).resolve().parents[2]
    if (tree / "package.xml").is_file():
        return [tree]
    prefixes = [*tree.parents]
    prefixes += [Path(p) for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    shares = [prefix / "share" / PACKAGE for prefix in [tree, *prefixes]]
    return [share for share in shares if share.is_dir()] or [tree]
