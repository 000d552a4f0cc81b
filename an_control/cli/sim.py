"""The verb ``an-control sim``, which runs the simulator here and the policy node as a process."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from an_control.cli.common import (
    InputError,
    ModelFile,
    OutputFile,
    OutputFolder,
    format_flag,
    require_packages,
    write_json,
)
from an_control.cli.disturbance import Options, make_disturbance_options
from an_control.cli.run import format_parameter_arguments, make_option_for_node_parameter
from an_control.control.controller import Controller
from an_control.disturbance import DisturbanceSettings, ScheduledChange, load_schedule
from an_control.policy import Monitor
from an_control.ros.parameter_table import convert_options_to_parameter_values
from an_control.system.interrupts import INTERRUPTED, exit_on_signal, run_child_process
from an_control.system.priority import raise_process_priority
from an_control.system.share import find_share_path
from an_control.view.process import PACKAGES as PAGE_PACKAGES
from an_control.view.process import make_live_page_command_line, wait_until_page_watches_policy
from an_control.wiring import Wiring, load_wiring
from an_control_sim.envs.tasks import SUCCESS, WALK_M

if TYPE_CHECKING:
    from an_control_sim.bridge.episodes import RunSummary
    from an_control_sim.bridge.recorder import Recorder
    from an_control_sim.bridge.simulation_file import Simulation
    from an_control_sim.bridge.simulator_node import SimulatorSettings


SIMULATORS = {
    "ant": ("pybullet",),
    "cartpole": (),
    "car_racing": ("Box2D", "pygame", "cv2"),
    "pong": ("ale_py", "cv2"),
}
"""A mapping from each task to the packages that it needs in addition to gymnasium."""


@dataclass(frozen=True)
class _SimulationFiles:
    """Paths of the three files that a simulation needs: simulation YAML, wiring and model."""

    simulation: Path
    wiring: Path
    model: Path


@dataclass(frozen=True)
class SimCommand:
    """Run a simulated robot and the policy node as two processes that exchange ROS 2 messages.

    In each step the simulator waits for the node's command (lockstep), unless --realtime is given.
    Give a shipped robot by its name, or your own by its two YAML files.
    """

    task: tyro.conf.Positional[Literal["ant", "cartpole", "car_racing", "pong"] | None] = None
    """The name of a shipped robot; without it give --simulation, --wiring and --model."""
    simulation: Path | None = None
    """The simulation YAML; by default the task's. `an-control new` drafts one."""
    wiring: Path | None = None
    """The robot's wiring YAML; by default the task's."""
    model: ModelFile | None = None
    """A .safetensors model file, an .onnx file of another tool, or the name of a shipped model; by
    default the model that ships for the task."""
    episodes: int = 2
    """Number of episodes."""
    seed: int = 0
    """Seed of every start and every disturbance."""
    disturbance: Options = field(default_factory=make_disturbance_options)
    """The disturbances."""
    schedule: Path | None = None
    """A YAML file that changes the disturbance settings at given steps of each episode."""
    view: bool = False
    """Show the run in the browser, with `--scrambler`; prints the page's address."""
    view_port: int = 8765
    """The page's port; 0 takes any that is free."""
    scrambler: bool = False
    """Put the scrambler between sensors and policy even if it changes nothing at first; its
    parameters, on the node simulator, can then be set at any time."""
    monitor: Monitor | None = make_option_for_node_parameter("monitor")
    recovery: float | None = make_option_for_node_parameter("recovery")
    realtime: bool = False
    """Step in real time, as a real robot does, instead of in lockstep."""
    trigger: Literal["sources", "timer"] = make_option_for_node_parameter("trigger")
    ramp: float | None = make_option_for_node_parameter("ramp_s")
    thread_priority: int = make_option_for_node_parameter("thread_priority")
    record: OutputFolder | None = None
    """Record what the policy node does into a new folder inside this folder; `an-control replay`
    reads the recording."""
    video: OutputFile | None = None
    """Record the camera: .mp4 for a video, .png for a sheet of pictures. For a robot with a camera
    also the policy's view of each image, coloured by its attention."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        """Run the episodes, print the results and return the exit status."""
        # Until `_run_node_and_simulator` handles signals, before it starts anything.
        exit_on_signal(INTERRUPTED)
        require_packages("ros", "rclpy")
        require_packages("sim", "gymnasium", "numba", *SIMULATORS.get(self.task or "", ()))
        if self.view:
            require_packages("view", *PAGE_PACKAGES)
        if self.record is not None:
            require_packages("record", "mcap")
        if self.episodes < 1:
            raise InputError(f"--episodes {self.episodes}: must be 1 or more")
        for name in ("seed", "ramp"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise InputError(f"--{name} {value}: must be 0 or more")
        if not 0 <= self.thread_priority <= 98:
            raise InputError(f"--thread-priority {self.thread_priority}: must be 0 to 98")
        if self.video is not None and self.video.suffix not in (".mp4", ".png"):
            raise InputError(f"--video {self.video}: must end in .mp4 or .png")
        from an_control_sim.scrambler.messages import make_scrambled_message

        files = self._choose_simulation_files()
        model, wiring = files.model, files.wiring
        controller = Controller(
            str(wiring), str(model), "numpy", monitor=self.monitor, recovery=self.recovery
        )
        refusal = controller.explain_control_rate_mismatch()
        if refusal:
            raise InputError(refusal)
        try:
            disturbance = self.disturbance.to_settings()
            schedule = () if self.schedule is None else load_schedule(self.schedule)
            make_scrambled_message(load_wiring(wiring)).check_settings(disturbance, schedule)
        except ValueError as error:
            raise InputError(str(error)) from error
        if not (schedule or self.scrambler or self.view):  # nothing can change the settings later
            _refuse_options_without_effect(disturbance)
        silent = self._check_files_and_list_silent_sources(
            files.simulation, controller.wiring, disturbance
        )
        name = self.task or controller.wiring.robot
        print(f"{name}: {model.name}, {self.episodes} episodes, {disturbance}", flush=True)
        if silent:
            print(f"{files.simulation} publishes nothing for: {', '.join(silent)}", flush=True)
        return self._run_node_and_simulator(files, name, disturbance, schedule)

    def _choose_simulation_files(self) -> _SimulationFiles:
        """Return the paths of the simulation file, the wiring and the model to use.

        Paths that the options do not give are those of the task's own files.
        """
        given = {name: getattr(self, name) for name in ("simulation", "wiring", "model")}
        if self.task is None:
            if lacking := [f"--{name}" for name, path in given.items() if path is None]:
                tasks, missing = ", ".join(SIMULATORS), ", ".join(lacking)
                raise InputError(
                    f"give a robot ({tasks}), or --simulation, --wiring and --model; {missing}"
                    " not given"
                )
            return _SimulationFiles(**given)
        return _SimulationFiles(
            self.simulation or find_share_path(f"config/{self.task}_sim.yaml"),
            self.wiring or find_share_path(f"config/{self.task}.yaml"),
            self.model or _find_shipped_model(self.task),
        )

    def _check_files_and_list_silent_sources(
        self, simulation: Path, wiring: Wiring, disturbance: DisturbanceSettings
    ) -> list[str]:
        """Check that simulation and wiring fit; return the sources that will have no messages."""
        from an_control_sim.bridge.robot import SimulatedRobot
        from an_control_sim.bridge.simulation_file import load_simulation
        from an_control_sim.bridge.simulator_node import (
            check_wiring_fits_simulation,
            find_unpublished_sources,
        )

        simulated = load_simulation(simulation)
        check_wiring_fits_simulation(simulated, wiring, lockstep=not self.realtime)
        if self.task is None or disturbance.does_disturb_target("robot"):
            try:
                SimulatedRobot(simulated, disturbance=disturbance).close()
            except ValueError as error:
                raise InputError(str(error)) from error
        return [one.name for one in find_unpublished_sources(simulated, wiring)]

    def _run_node_and_simulator(
        self,
        files: _SimulationFiles,
        name: str,
        disturbance: DisturbanceSettings,
        schedule: tuple[ScheduledChange, ...],
    ) -> int:
        """Run policy node and simulator until the episodes are done, and report the result."""
        from an_control_sim.bridge.episodes import RunSummary
        from an_control_sim.bridge.policy_link import BridgeError, wait_until_no_other_simulator
        from an_control_sim.bridge.rehearsal import derive_wiring_for_disturbed_simulation
        from an_control_sim.bridge.simulation_file import load_simulation
        from an_control_sim.bridge.simulator_node import simulate
        from an_control_sim.process import catch_signals, initialise_ros_and_create_node
        from an_control_sim.scrambler.wiring import write_wiring

        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        if self.realtime:
            raise_process_priority()
        wired = load_wiring(files.wiring)
        settings = self._make_simulator_settings(files, wired, disturbance, schedule)
        summary, failure = RunSummary(()), ""
        with ExitStack() as stack:
            stopped = stack.enter_context(catch_signals())
            seen = files.wiring
            if settings.uses_scrambler:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                seen = Path(folder) / "scrambled.yaml"
                write_wiring(derive_wiring_for_disturbed_simulation(wired, files.simulation), seen)
            node = stack.enter_context(initialise_ros_and_create_node("simulator", name))
            try:
                wait_until_no_other_simulator(node, stopped)
            except BridgeError as error:
                print(f"an-control sim: {error}", file=sys.stderr)
                return 1
            parameters = self._make_node_parameters(seen, files.model)
            died = stack.enter_context(_run_policy_node(name, parameters))
            if self.view:
                page = stack.enter_context(
                    run_child_process(make_live_page_command_line(name, self.view_port))
                )
                if self.realtime:
                    wait_until_page_watches_policy(page, node, f"/{name}/policy", stopped)
            report = stack.enter_context(show_progress_line(self.episodes))
            recorder = None
            if self.video is not None:
                recorder = _make_video_recorder(
                    node, self.video, load_simulation(files.simulation), wired
                )
            try:
                with recorder or nullcontext():
                    summary = simulate(node, settings, report)
            except OSError as error:
                failure = str(error)
        if died:
            failure = f"the policy node ended by itself, status {died[0]}"
        return self._report_result_and_get_exit_status(
            name, files.model, summary, failure or summary.failure
        )

    def _make_simulator_settings(
        self,
        files: _SimulationFiles,
        wiring: Wiring,
        disturbance: DisturbanceSettings,
        schedule: tuple[ScheduledChange, ...],
    ) -> SimulatorSettings:
        """Return the settings of the simulator that the options describe."""
        from an_control_sim.bridge.policy_link import COMMAND_S, PAIR_START_S
        from an_control_sim.bridge.recorder import RATE_HZ
        from an_control_sim.bridge.simulator_node import SimulatorSettings

        return SimulatorSettings(
            simulation=str(files.simulation),
            wiring=str(files.wiring),
            episodes=self.episodes,
            seed=self.seed,
            realtime=self.realtime,
            command_timeout_s=0.0 if self.realtime else COMMAND_S,
            start_timeout_s=PAIR_START_S,
            scrambler=self.scrambler or self.view,
            disturbance=disturbance,
            schedule=schedule,
            camera_hz=RATE_HZ if self.video is not None and not wiring.images else 0.0,
        )

    def _report_result_and_get_exit_status(
        self, name: str, model: Path, summary: RunSummary, failure: str
    ) -> int:
        """Print the results of the finished episodes and any failure; write the results as JSON."""
        summary = replace(summary, walk_m=WALK_M.get(self.task or ""))
        print("\n".join(summary.format_lines()))
        if summary.episodes:
            write_json(self.json, self._make_result_for_json(name, model, summary))
        if failure:
            print(f"an-control sim: {failure}", file=sys.stderr)
            return 1
        return 0 if len(summary.episodes) == self.episodes else INTERRUPTED

    def _make_node_parameters(self, wiring: Path, model: Path) -> Mapping[str, object]:
        """Return the parameters of the policy node, by name, that the options set."""
        from an_control_sim.bridge.policy_link import SOURCES_S

        return convert_options_to_parameter_values(
            wiring=wiring,
            model=model,
            mode="rate" if self.realtime else "lockstep",
            autostart=True,
            executor="events",
            lockstep_wait_s=SOURCES_S,
            monitor=self.monitor,
            recovery=self.recovery,
            trigger=self.trigger,
            ramp_s=self.ramp,
            thread_priority=self.thread_priority,
            record=None if self.record is None else str(self.record.absolute()),
        )

    def _make_result_for_json(self, name: str, model: Path, summary: RunSummary) -> dict[str, Any]:
        """Return the values that ``--json`` writes about the run, by name."""
        enough = SUCCESS.get(self.task or "")
        success = None if enough is None else float((summary.returns > enough).mean())
        return {
            "task": name,
            "model": str(model),
            "seed": self.seed,
            **self.disturbance.to_json_values(),
            "success_share": success,
            "episodes_asked": self.episodes,
            **summary.as_dict(),
        }


def _find_shipped_model(task: str) -> Path:
    """Return the path of the model that is shipped for a task."""
    try:
        return find_share_path(f"models/{task}.safetensors")
    except FileNotFoundError as error:
        raise InputError(f"no model ships for {task}: give one with --model") from error


def _refuse_options_without_effect(disturbance: DisturbanceSettings) -> None:
    """Check that no disturbance option is given that has no effect without another option."""
    for one in disturbance.settings_without_effect:
        given = f"{format_flag(one.name)} {getattr(disturbance, one.name)}"
        raise InputError(f"{given}: does nothing without {format_flag(one.modifies)}")


def _make_video_recorder(node: Any, path: Path, simulation: Simulation, wiring: Wiring) -> Recorder:
    """Make a recorder of the video that ``--video`` asks for.

    It shows the simulator's picture. For a robot with a camera it shows, side by side, the camera's
    images and what the policy attends to in them. The video plays at the rate at which pictures are
    published per simulated second, so that the robot moves at its true speed.
    """
    from an_control_sim.bridge.recorder import RATE_HZ, Recorder
    from an_control_sim.bridge.step_outputs import compute_steps_per_picture

    if wiring.images:
        camera = next(one.source for one in wiring.channels if one.image is not None)
        eye = next(one.topic for one in wiring.sources if one.name == camera)
        topics, steps = [eye, "policy/attended"], 1
    else:
        topics = [] if simulation.camera is None else [simulation.camera.topic]
        steps = compute_steps_per_picture(RATE_HZ, simulation.step_s)
    return Recorder(node, path, topics, 1.0 / (steps * simulation.step_s))


@contextmanager
def _run_policy_node(namespace: str, values: Mapping[str, object]) -> Iterator[list[int]]:
    """Run the policy node in another process until the block of this context ends.

    If the node ends earlier, this process gets a SIGTERM, and the yielded list, which is empty
    until then, gets the exit status of the node. `values` are the node's parameters by name.
    """
    command = [sys.executable, "-m", "an_control.ros.node", "--ros-args", "-r"]
    command += [f"__ns:=/{namespace}", "--log-level", "warn", *format_parameter_arguments(values)]
    died: list[int] = []
    done = threading.Event()
    with run_child_process(command) as process:

        def stop_when_node_ends() -> None:
            """Wait until the node ends; if that is too early, send this process a SIGTERM."""
            status = process.wait()
            if not done.is_set():
                died.append(status)
                os.kill(os.getpid(), signal.SIGTERM)

        watcher = threading.Thread(target=stop_when_node_ends, daemon=True)
        watcher.start()
        try:
            yield died
        finally:
            done.set()
    watcher.join()


USUAL_STEPS = 1000
"""The assumed number of steps of an episode, until the first one has ended."""


@contextmanager
def show_progress_line(episodes: int) -> Iterator[Callable[[Any], None]]:
    """Show the progress of a simulation in one line, as a context manager.

    Args:
        episodes: Number of episodes to run.

    Yields:
        A function to pass to `simulate`, which calls it during and after each episode with the
        state of the run.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("step {task.fields[steps]}"),
        TextColumn("return {task.fields[total_reward]:.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as line:
        bar = line.add_task("starting", total=episodes, steps=0, total_reward=0.0)
        usual = USUAL_STEPS

        def update_progress_line(state: Any) -> None:
            """Update the progress line, and print a line for an episode that has ended."""
            nonlocal usual
            part = min(state.steps / usual, 1.0)
            if state.finished is not None:
                one, part = state.finished, 1.0
                usual = max(1, one.steps)
                distance = "" if one.distance_m is None else f", {one.distance_m:.1f} m"
                line.console.print(
                    f"episode {state.episode + 1}: return {one.return_:.0f} in {one.steps} steps"
                    f"{distance}, channels shuffled {one.shuffles}x"
                )
            line.update(
                bar,
                completed=state.episode + part,
                steps=state.steps,
                total_reward=state.return_,
                description=f"episode {state.episode + 1}/{episodes}",
            )

        yield update_progress_line
