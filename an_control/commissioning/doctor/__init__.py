"""The wiring doctor: finds wrong lines of a wiring file from a recording of the moving robot."""

from an_control.commissioning.doctor.diagnosis import diagnose
from an_control.commissioning.doctor.findings import Diagnosis, Finding
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Recording
from an_control.commissioning.doctor.settings import DOCTOR

__all__ = [
    "DOCTOR",
    "CandidateWiring",
    "Diagnosis",
    "Finding",
    "Recording",
    "diagnose",
]
