"""Functions for training and evaluation, each from a dataclass of options to one of results.

    teacher = train_teacher(TeacherOptions("CartPole-v1", Path("runs/teacher"), minutes=1))
    student = distill(DistillOptions("CartPole-v1", Path("runs/s"), teacher=str(teacher.model)))
    monitor = train_monitor(MonitorOptions(student.model, minutes=1))

These functions print nothing. Their argument `progress` is a function that they call with reports;
it can stop the run by returning False. Calling the same function with the same options continues a
run that was stopped or killed. Error messages name an option as on the command line, such as
`--teacher-minutes` for the field `teacher_minutes`.
"""

from an_control.learning.api.evaluation import EvaluateOptions, EvaluateResult, evaluate
from an_control.learning.api.evolution import EvolveOptions, EvolveResult, evolve
from an_control.learning.api.monitor import MonitorOptions, MonitorResult, train_monitor
from an_control.learning.api.parts import PolicyParts
from an_control.learning.api.pipeline import LearnOptions, LearnResult, learn
from an_control.learning.api.student import DistillOptions, DistillResult, distill
from an_control.learning.api.teacher import TeacherOptions, TeacherResult, train_teacher
from an_control.learning.runs.progress import OnProgress, RunProgress, RunStoppedError

__all__ = [
    "DistillOptions",
    "DistillResult",
    "EvaluateOptions",
    "EvaluateResult",
    "EvolveOptions",
    "EvolveResult",
    "LearnOptions",
    "LearnResult",
    "MonitorOptions",
    "MonitorResult",
    "OnProgress",
    "PolicyParts",
    "RunProgress",
    "RunStoppedError",
    "TeacherOptions",
    "TeacherResult",
    "distill",
    "evaluate",
    "evolve",
    "learn",
    "train_monitor",
    "train_teacher",
]
