"""The wiring doctor: finds wrong lines of a wiring file from a recording of the moving robot."""

from an_control.commissioning.doctor.diagnosis import (
    DOCTOR,
    Diagnosis,
    Finding,
    diagnose,
)
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Recording

__all__ = [
    "DOCTOR",
    "CandidateWiring",
    "Diagnosis",
    "Finding",
    "Recording",
    "diagnose",
]
