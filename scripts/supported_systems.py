"""The only list of the systems that an_control runs on: ROS 2 distribution, machine and CPython.

    python scripts/supported_systems.py matrix    print the table of README.md
    python scripts/supported_systems.py legs      print what .ci/run tests: CPython, ROS, kind
    PYTHON scripts/supported_systems.py fits ROS  print why this interpreter is not supported
    PYTHON scripts/supported_systems.py pybullet  print where its PyBullet comes from: wheel, source

The tests compare README.md, setup.py and .ci/run with this list. `fits` may be asked of a very old
interpreter: keep to what Python 3.6 can read.
"""

import platform
import sys

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PYBULLET = ("3.10", "3.11", "3.12", "3.13")
"""CPythons for which PyPI has a wheel of PyBullet, on Linux x86-64."""

SUITE = "in CI: whole suite"
ROS_TESTS = "in CI: ROS tests, `sim ant`"
IMPORT = "in CI: install, `sim cartpole`"
IMPORT_AND_SUITE = IMPORT + "; by hand, 2026-11-28: whole suite"
IMPORT_IF_FOUND = (
    "in CI: `sim cartpole` (if the CI machine has CPython 3.14); by hand, 2026-11-28: `sim ant`"
)
LEGS = {SUITE: "suite", ROS_TESTS: "ros", IMPORT_AND_SUITE: "import", IMPORT_IF_FOUND: "import"}
RETURNS = "by hand, 2026-11-27: golden returns"
WHOLE = "by hand, 2026-11-27: whole suite"
ANT = "by hand, 2026-11-27: `sim ant`"
SOURCES = "untested"
NOT = "no: "
UBUNTU = NOT + "built for CPython "

KILTED, JAZZY = "Kilted from PyPI, Linux x86-64", "Jazzy from PyPI, Linux x86-64"
TABLE = {
    KILTED: (RETURNS, SUITE, WHOLE, IMPORT_AND_SUITE, IMPORT_IF_FOUND),
    JAZZY: (ANT, ANT, ROS_TESTS, ANT, "by hand, 2026-11-28: `sim ant`"),
    "Jazzy or Kilted by apt": (UBUNTU + "3.12",) * 2 + (SOURCES,) + (UBUNTU + "3.12",) * 2,
    "Lyrical by apt": (NOT + "needs CPython 3.12 or newer",) * 2 + (SOURCES,) * 3,
    "aarch64, ROS 2 by apt": (NOT + "needs CPython 3.12 or newer",) * 2 + (SOURCES,) * 3,
}
"""One row for each ROS 2 and machine, with a cell for each of PYTHONS."""

ROWS = {"kilted": KILTED, "wheels": KILTED, "jazzy": JAZZY}
"""The row of each value of ROS= that takes packages from PyPI."""


def list_supported_pythons(ros):
    """Return the CPython versions that are supported with a ROS 2 distribution.

    Args:
        ros: A key of `ROWS`, such as "kilted", if ROS 2 is installed from PyPI. Any other text
            stands for another installation, with which all versions are supported.
    """
    if ros not in ROWS:
        return PYTHONS
    return [one for one, cell in zip(PYTHONS, TABLE[ROWS[ros]]) if not cell.startswith(NOT)]


def describe_why_unsupported(ros):
    """Return why this interpreter cannot be used with a ROS 2 distribution, or "" if it can.

    Args:
        ros: Distribution, as for `list_supported_pythons`.
    """
    version = "{}.{}".format(*sys.version_info)
    allowed = list_supported_pythons(ros)
    if sys.implementation.name != "cpython" or version not in allowed:
        name = sys.implementation.name.replace("cpython", "CPython")
        return "{} {} is not supported, {} to {} are".format(name, version, allowed[0], allowed[-1])
    if platform.libc_ver()[0] != "glibc":
        return (
            "ROS 2's packages and PyBullet are built for glibc; this system has another C library"
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return "it lacks venv: apt install python{}-venv".format(version)
    return ""


def find_pybullet_package_kind():
    """Yield one line: "wheel" if PyPI has a PyBullet wheel for this interpreter, else "source"."""
    has_wheel = "{}.{}".format(*sys.version_info) in PYBULLET and platform.machine() == "x86_64"
    yield "wheel" if has_wheel else "source"


def format_table_of_systems():
    """Yield the lines of the README's table of supported systems."""
    yield "| ROS 2 | " + " | ".join("CPython " + one for one in PYTHONS) + " |"
    yield "|---" * (len(PYTHONS) + 1) + "|"
    for name, cells in TABLE.items():
        yield "| {} | {} |".format(name, " | ".join(cells))


def list_ci_systems():
    """Yield a line for each system that CI tests, such as "3.12 jazzy ros".

    The words are the version of CPython, the ROS 2 distribution from PyPI, and the kind of tests:
    "suite" (all), "ros" or "import".
    """
    for ros in ("kilted", "jazzy"):
        for version, cell in zip(PYTHONS, TABLE[ROWS[ros]]):
            if cell in LEGS:
                yield " ".join((version, ros, LEGS[cell]))


def main(arguments):
    """Print a table or list of supported systems, and return the exit status.

    Args:
        arguments: The words of the command line, of which the module's docstring shows all forms.
    """
    if arguments[0] == "fits":
        reason = describe_why_unsupported(arguments[1])
        print(reason)
        return int(bool(reason))
    print(
        "\n".join(
            {
                "matrix": format_table_of_systems,
                "legs": list_ci_systems,
                "pybullet": find_pybullet_package_kind,
            }[arguments[0]]()
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
