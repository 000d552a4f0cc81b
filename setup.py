"""Install an_control with colcon (ament_python) and with pip."""

import sys
from glob import glob
from pathlib import Path

from setuptools import Distribution, find_packages, setup

NAME = "an_control"
COMMANDS = {
    "an-control": "an_control.entry_points:an_control",
    "policy_node": "an_control.entry_points:policy_node",
    "simulator": "an_control.entry_points:simulator",
    "scrambler": "an_control.entry_points:scrambler",
}
DATA_FILES = [
    ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
    (f"share/{NAME}", ["package.xml"]),
    (f"share/{NAME}/launch", sorted(glob("launch/*.launch.py"))),
    (f"share/{NAME}/config", sorted(glob("config/*.yaml") + glob("config/*.xml"))),
    (f"share/{NAME}/config/schemas", sorted(glob("config/schemas/*.json"))),
    (f"share/{NAME}/config/sros2", sorted(glob("config/sros2/*.xml"))),
    (f"share/{NAME}/recipes", sorted(glob("recipes/*.yaml"))),
    (f"share/{NAME}/models", sorted(glob("models/*.*"))),
]
# colcon puts the console scripts into lib/an_control, where `ros2 launch` looks for executables
# (setup.cfg). A wheel's scripts always go to bin/, so a wheel also carries shims to there.
if {"bdist_wheel", "editable_wheel"} & set(sys.argv):
    DATA_FILES.append((f"lib/{NAME}", [f"scripts/{command}" for command in COMMANDS]))


class DistributionWithData(Distribution):
    """Distribution that also installs data files in an editable install.

    Setuptools asks its `has_data` before it does so, which its own class lacks.
    """

    has_data = Distribution.has_data_files


LINUX_X86 = "sys_platform == 'linux' and platform_machine == 'x86_64'"
ROS = [
    "ros-rclpy[fastrtps]",
    "ros-std-msgs",
    "ros-sensor-msgs",
    "ros-geometry-msgs",
    "ros-nav-msgs",
    "ros-std-srvs",
    "ros-diagnostic-msgs",
    "ros-visualization-msgs",
    "ros-trajectory-msgs",
]
VIEW = ["tornado>=6.4", "msgspec>=0.18"]
# 1.5 is the first that can finish a chunk at any time; it brings lz4 and zstandard.
RECORD = ["mcap>=1.5"]
EXPORT = [*RECORD, "pyarrow>=17"]
BOX2D = "(platform_machine == 'x86_64' or sys_platform == 'darwin')"
CAMERA = ["opencv-python-headless>=4.8"]
# pybullet-arm64 is PyBullet for more interpreters and machines, under the same import name. What
# asks for pybullet by its name would have pip build that beside it.
SIM = [
    "gymnasium>=1.0",
    f"pybullet>=3.2.7; python_version < '3.12' and {LINUX_X86}",
    f"pybullet-envs-gymnasium>=0.6; python_version < '3.12' and {LINUX_X86}",
    f"pybullet-arm64>=3.2.8; python_version >= '3.12' and python_version < '3.14' and {LINUX_X86}",
    "pybullet-arm64>=3.2.8; python_version < '3.14' and sys_platform == 'darwin'"
    " and platform_machine == 'arm64'",
    "numba>=0.60",
    *CAMERA,
    # CarRacing's. Box2D has wheels for these only.
    f"Box2D>=2.3.10; python_version < '3.14' and {BOX2D}",
    f"pygame>=2.6; python_version < '3.14' and {BOX2D}",
    "ale-py>=0.10",
]
ONNX = ["onnx>=1.16", "onnxruntime>=1.18"]
TRAIN = [
    *ONNX,
    "onnxscript>=0.1",
    "torch>=2.4",
    "cma>=4.0",
    "gymnasium>=1.0",
    "numba>=0.60",
    "distributed>=2024.1",
    "tensorboard>=2.17",
    "matplotlib>=3.8",
    "scikit-learn>=1.5",
    "stable-baselines3>=2.6",
    "sb3-contrib>=2.6",
    "popgym>=1.0.6",
]
TEST = [
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "scipy>=1.11",
    "ruff>=0.9",
    "mypy>=1.14",
    "types-PyYAML",
    "colcon-common-extensions",
    "setuptools>=70.1,<80",
    *VIEW,
    *EXPORT,
    "rosbags>=0.10",
    "mcap-ros2-support>=0.5",
    "playwright>=1.45",
    "axe-playwright-python>=0.1.4",
    "jsonschema>=4.18",
]
DOCS = [
    f"{name}; python_version >= '3.11'" for name in ("sphinx>=9", "myst-parser>=5", "furo>=2025.12")
]

setup(
    name=NAME,
    distclass=DistributionWithData,
    version="1.0.0",
    description="Controls a robot with a policy that any sensors, in any order, can feed",
    long_description=Path(__file__).resolve().with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    keywords="ROS 2, robotics, control, reinforcement learning, permutation invariance, attention",
    author="The an_control authors",
    author_email="an-control@example.org",
    maintainer="The an_control authors",
    maintainer_email="an-control@example.org",
    license="Apache-2.0",
    python_requires=">=3.10",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        # Those of scripts/supported_systems.py.
        *(
            f"Programming Language :: Python :: {version}"
            for version in ("3.10", "3.11", "3.12", "3.13", "3.14")
        ),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=[*find_packages(include=["an_control", "an_control.*"]), *find_packages("sim")],
    package_dir={"an_control_sim": "sim/an_control_sim"},
    package_data={"an_control": ["py.typed", "view/page/*"], "an_control_sim": ["py.typed"]},
    data_files=DATA_FILES,
    zip_safe=False,
    install_requires=[
        "numpy>=1.26",
        "PyYAML>=6",
        "safetensors>=0.4.3",
        "tyro>=1.0.17",
        "rich>=13",
    ],
    extras_require={
        # mcap is for the black box, which a node has by default.
        "ros": [*(f"{name}; {LINUX_X86}" for name in ROS), *RECORD],
        "camera": CAMERA,
        "sim": SIM,
        "view": VIEW,
        "record": RECORD,
        "export": EXPORT,
        "onnx": ONNX,
        "train": TRAIN,
        "test": TEST,
        "docs": DOCS,
        "fuzz": ["atheris>=2.3; python_version < '3.14'"],
    },
    entry_points={
        "console_scripts": [f"{command} = {function}" for command, function in COMMANDS.items()],
    },
)
