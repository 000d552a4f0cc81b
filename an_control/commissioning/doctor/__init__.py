"""The wiring doctor: finds wrong lines of a wiring file from a recording of the moving robot."""

from an_control.commissioning.doctor.diagnosis import (
    DOCTOR,
    Diagnosis,
    DoctorSettings,
    Finding,
    diagnose,
)
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Recording

__all__ = [
    "DOCTOR",
    "CandidateWiring",
    "Diagnosis",
    "DoctorSettings",
    "Finding",
    "Recording",
    "diagnose",
]
