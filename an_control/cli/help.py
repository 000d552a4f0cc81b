"""Make the help texts of `an-control`, on verbs, options and the attributes of environments."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from an_control.cli.common import InputError

Command = TypeVar("Command")
ARG = type(tyro.conf.arg())
GROUPS = {
    "Run": {
        "sim": "a simulated robot and the policy node, over ROS 2",
        "run": "the policy node alone, for a robot",
        "new": "draft the YAML files of another robot, simulated or running",
        "check": "compare a wiring with a model, and with a running robot",
        "view": "show a running robot in the browser, and rewire it there",
        "rewire": "connect a running policy node's channels to other topics or fields",
    },
    "Operate": {
        "status": "show a running policy node's state, e-stop, sources and rates",
        "estop": "stop the robot: the policy node sends the safe command until it is reset",
        "reset": "clear the e-stop, or the policy's memory",
        "shadow": "let the policy node propose commands only (on), or command (off)",
        "activate": "let the policy node act",
        "deactivate": "let the policy node stop acting",
    },
    "Evaluate": {
        "evaluate": "measure a model's return without ROS, by the paper's protocols",
        "info": "show what a model file holds",
        "bench": "measure speed and latency on this machine",
    },
    "Record": {
        "replay": "compute a recording's commands again, and compare them",
        "export": "write a policy as ONNX, or a recording as CSV or Parquet",
    },
    "Train": {
        "learn": "train a policy for any gymnasium environment: teacher, student, monitor and card",
        "train": "search for a policy by its return: CMA-ES or PGPE, any gymnasium environment",
        "train-teacher": "train a teacher for any gymnasium environment: PPO, SAC, TD3 or TQC",
        "distill": "train a permutation-invariant policy on what a teacher does: DAgger",
        "train-monitor": "train a model's monitor, which detects unannounced rewiring",
        "record-excitation": "record small motions, by which a policy finds its channels' order",
        "new-model": "write a small random policy for a robot, for its bring-up",
        "import": "convert a policy of Stable-Baselines3 or TorchScript to ONNX",
        "import-authors": "convert the weights of the AttentionNeuron authors",
    },
}
VERBS = {verb: what for group in GROUPS.values() for verb, what in group.items()}
RENAMED = {
    "teach": "an-control train-teacher",
    "foresee": "an-control train-monitor",
    "examine": "an-control evaluate --identification",
    "inspect": "an-control info",
    "campaign": "make campaign, in the source tree",
    "soak": "make soak, in the source tree",
    "bench memory": "python -m experiments memory, in the source tree",
    "bench scaling": "python -m experiments scaling, in the source tree",
    "train-teacher --faults": "--disturb",
    "train-teacher --fault-share": "--disturb-share",
    "train-monitor --faults": "--disturb",
    "train-monitor --fault-share": "--disturb-share",
    "distill --missing-chance": "--disturb missing=SHARE --disturb-share PROBABILITY",
    "distill --noise-chance": "--disturb noise=NUMBER --disturb-share PROBABILITY",
    "distill --copies-chance": "--disturb copies=NUMBER --disturb-share PROBABILITY",
    "distill --added": "the numbers in --disturb noise=1..NUMBER copies=1..NUMBER",
    "distill --missing-patches": "--disturb missing=SHARE, or missing=MIN..MAX",
}
"""A mapping from an earlier name of a verb, or of a verb's option, to what it is called now."""
SHELLS = {
    "bash": 'eval "$(an-control --completion bash)"  in ~/.bashrc',
    "zsh": "an-control --completion zsh > DIR/_an-control  for a DIR in $fpath",
    "fish": "an-control --completion fish > ~/.config/fish/completions/an-control.fish",
}
"""A mapping from each shell that can complete verbs and options to the way to enable that."""


def format_usage() -> str:
    """Return the text of ``an-control --help``, a list of all verbs by group."""
    width = max(map(len, VERBS))
    lines = ["usage: an-control VERB ...     (an-control VERB --help shows its options)"]
    for group, verbs in GROUPS.items():
        lines += ["", group, *(f"  {verb:<{width}}  {what}" for verb, what in verbs.items())]
    lines += ["", "an-control --version", "an-control --completion SHELL, once:"]
    lines += [f"  {shell:<{width}}  {how}" for shell, how in SHELLS.items()]
    return "\n".join(lines)


MIN_LIKENESS, SAME_LIKENESS = 0.5, 0.1
"""The likeness (0..1) to a verb from which a word may be a misspelling of it, and the difference
within which several verbs are offered."""


def describe_unknown_verb(word: str) -> str:
    """Return the error text for an unknown verb, such as "unknown verb 'simm': did you mean sim?".

    Args:
        word: The first argument of the command line.
    """
    if word in RENAMED:
        return f"{word!r} is now: {RENAMED[word]}"
    likeness = {verb: difflib.SequenceMatcher(None, verb, word).ratio() for verb in VERBS}
    closest = max(likeness.values())
    near = [verb for verb in VERBS if likeness[verb] >= max(MIN_LIKENESS, closest - SAME_LIKENESS)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"the verbs are {', '.join(VERBS)}"
    return f"unknown verb {word!r}: {hint}"


def parse_arguments(verb: type[Command], prog: str, arguments: Sequence[str]) -> Command:
    """Parse a verb's arguments and return them as an instance of the verb's dataclass.

    Args:
        verb: Dataclass of the verb.
        prog: Name of the program in messages, such as ``an-control sim``.
        arguments: Arguments of the verb, without its name.

    Raises:
        InputError: An option was renamed; the message has its new name.
        SystemExit: The arguments are wrong, or ask for help, which is printed.
    """
    for word in (*arguments[:1], *(one for one in arguments[1:] if one.startswith("--"))):
        name = word.partition("=")[0]
        if now := RENAMED.get(f"{prog.removeprefix('an-control ')} {name}"):
            raise InputError(f"{name!r} is now: {now}")
    return tyro.cli(add_help_texts(verb), prog=prog, args=arguments)


def add_help_texts(verb: type[Command]) -> type[Command]:
    """Return a subclass of a verb's dataclass from which the library tyro makes the ``--help``.

    The docstring below each field becomes the help text of its option. Defaults such as None or "",
    which only mean that an option is not given, are not shown. A flag that is off by default gets
    no opposite flag ``--no-...``.

    Args:
        verb: Dataclass of the verb, such as `SimCommand`.
    """
    conf: Any = tyro.conf  # its markers take types, which here are values
    hints = get_type_hints(verb, include_extras=True)
    texts = _collect_docstrings_of_fields(verb)
    annotations: dict[str, Any] = {}
    for field in fields(verb):  # type: ignore[arg-type]
        hint = _exclude_none_from_choices(hints[field.name])
        if any(isinstance(one, ARG) for one in getattr(hint, "__metadata__", ())):
            annotations[field.name] = conf.DisallowNone[hint]  # has its own help text
            continue
        kind = conf.DisallowNone[hint]
        if field.default is False:
            kind = conf.FlagCreatePairsOff[kind]
        unset = field.default is None or field.default is False or field.default in ((), "")
        about = tyro.conf.arg(
            help=field.metadata.get("help") or texts.get(field.name),
            help_behavior_hint="" if unset else None,
            metavar=field.name.upper() if _is_type_of_free_positional(hint) else None,
        )
        annotations[field.name] = Annotated[kind, about]
    return type(verb.__name__, (verb,), {"__annotations__": annotations, "__doc__": verb.__doc__})


def _exclude_none_from_choices(type_hint: Any) -> Any:
    """Return a type hint from which tyro does not make "None" one of the words to choose from.

    None is only the default of such an argument. Other type hints are returned as they are.

    Args:
        type_hint: Type of an argument's dataclass field.
    """
    if get_origin(type_hint) is Annotated:
        kind, *marks = get_args(type_hint)
        annotated: Any = Annotated
        return annotated[tuple([_exclude_none_from_choices(kind), *marks])]
    kinds = [one for one in get_args(type_hint) if one is not NoneType]
    if NoneType not in get_args(type_hint) or [get_origin(one) for one in kinds] != [Literal]:
        return type_hint
    words: tuple[str, ...] = get_args(kinds[0])
    spec: Any = tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(words)}}}",
        instance_from_str=lambda given: given[0],
        is_instance=lambda value: value is None or value in words,
        str_from_instance=lambda value: [str(value)],
        choices=words,
    )
    return Annotated[type_hint, spec]


def _is_type_of_free_positional(type_hint: Any) -> bool:
    """Return whether an argument of this type is positional and accepts any word.

    It does not if it must be one of a fixed list of words.
    """
    if tyro.conf.Positional not in getattr(type_hint, "__metadata__", ()):
        return False
    kind = get_args(type_hint)[0]
    return all(get_origin(one) is not Literal for one in (kind, *get_args(kind)))


def _collect_docstrings_of_fields(verb: type) -> dict[str, str]:
    """Return the docstrings of a dataclass's own and inherited fields, by the field's name.

    They are read from the source. The lines of each docstring are joined to one.
    """
    texts: dict[str, str] = {}
    for base in reversed([one for one in verb.__mro__ if is_dataclass(one)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in pairwise(tree.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                texts[field.target.id] = " ".join(text.value.value.split())
    return texts


OFFERS = {
    "channels": (
        "ids of the readings, as a wiring has them after its * and pool are expanded: those of"
        " scan.* with 8 numbers are scan.0 to scan.7"
    ),
    "actuators": "names of the actuators",
    "step_s": "seconds a step",
    "teacher": "a teacher that reads the simulator's state",
    "sensors": "physical readings by name",
    "set_physics": "another mass, another friction",
    "starts": "names of other starts",
    "frames": "the camera's pictures",
    "plain": "the name of its own background",
    "show": "another background",
    "batch": "compiled physics of many episodes",
}
"""A mapping from attributes that an environment (`env.unwrapped`) may have to their meaning, for
the reference pages."""


def append_environment_attributes_help(text: str | None) -> str:
    """Append a sentence on the attributes of a user's gymnasium environment to a help text.

    By attributes such as `channels` and `actuators`, the environment tells the training more about
    itself. The sentence names the page that describes them.

    Args:
        text: The help text; None counts as empty.
    """
    return (
        f"{(text or '').rstrip()}\n\n    Your environment may have attributes such as channels,"
        " actuators and teacher: see docs/reference/environments.md.\n    "
    )


_RUN = {"task, seed, model": "what was trained, and the model file"}
_RETURNS = "a list with protocol, episodes, mean, sd, deciles, failed and success_share"
JSON_KEYS: dict[str, dict[str, str]] = {
    "learn": {
        **_RUN,
        "rows": "the table, a list with name, score, episodes, mean, sd, deciles and failed",
        "notes": "what did not fit into the time",
    },
    "train": {**_RUN, "evaluations": _RETURNS, "metrics": "the figures of each generation"},
    "train-teacher": {
        **_RUN,
        "evaluations": f"{_RETURNS}, and the standard_error of their mean",
        "iterations": "the figures of each iteration",
    },
    "distill": {**_RUN, "rounds": "the figures of each round"},
    "train-monitor": {
        "model, seed": "the file that was written, and the seed as asked",
        "course": "the figures of each step",
        "taken": "with --take: the other model",
        "validation": "how often the monitor was right, and how often wrong",
    },
    "evaluate": {
        "task, model, seed, monitor, recovery, normalise": "as asked; null: as the model file says",
        "memory, until, DISTURBANCE": "the protocol, with a key for each disturbance setting",
        "mean, sd, min, median, max": "of the returns; sd divides by the number n of episodes, so"
        " that the standard error of the mean is sd / sqrt(n - 1)",
        "success_share, falls, distance_m, steps_per_s": "share of successes, episodes that ended"
        " before their last step, mean distance, speed of the evaluation",
        "detected, back, walked_m, walk_again": "moves of signals that the monitor detected; share"
        " of the episodes that recovered after --until; distances after stops, and how many of"
        " them are long enough",
        "episodes": "a list: return, steps, shuffles, detected, fell, distance_m, walked_m",
        "protocols": "with --table, a list with the keys from mean to episodes for each protocol,"
        " and difference: mean and sd of the return minus that of the first protocol in the same"
        " episode, and same, the number of equal returns",
    },
    "sim": {
        "task, model, seed, DISTURBANCE": "as asked",
        "mean, sd, success_share, steps_per_s": "as of evaluate",
        "episodes": "a list: return, steps, shuffles, distance_m, timeouts, unmatched, walked_m",
        "episodes_asked": "more than in the list if the run was stopped",
        "policy": "the node's own counts, from its diagnostics",
        "latency_p50_s, latency_p99_s": "median and 99th percentile, from readings to command",
    },
    "check": {
        "wiring, model": "the files",
        "channels, actuators, sources, motion, doctor": "the rows of the printed tables",
        "diff": "the corrections of the wiring file",
        "problems, notes, looked_at, not_looked_at": "sentences",
    },
    "replay": {
        "bag, model, wiring": "as asked",
        "ticks, commands, different, first_tick": "numbers of ticks, commands and commands that"
        " differ from the recorded ones; the tick of the first of these",
        "recorded_s, replay_s": "durations",
        "events": "number of changes of state of each kind",
        "notes": "sentences",
        "actuators": "a list: actuator, different, share, first_tick, mean, largest (differences)",
    },
    "info": {
        "model, kind, parameters, sizes, task, trained, forward": "the header of the model file",
        "arrays": "the shape of each array",
        "network, attention": "of an ONNX file, and of a model without attention",
    },
    "new": {
        "files, channels, actuators": "what was drafted",
        "step_s, rate_hz": "with --env seconds a step, else ticks a second",
    },
    "status": {
        "node, state": "its name and its lifecycle state",
        "parts": "a list: part, level, text, values",
    },
    "bench": {"bench": "the benchmark; the other keys are its figures"},
}
"""A mapping from each verb with ``--json`` to the keys of its file, in groups with a meaning."""
