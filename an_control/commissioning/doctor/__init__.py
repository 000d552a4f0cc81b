"""The wiring doctor: which lines of a wiring are wrong, by what a robot reads as it moves."""

from an_control.commissioning.doctor.diagnosis import (
    DOCTOR,
    Diagnosis,
    DoctorSettings,
    Finding,
    diagnose,
)
from an_control.commissioning.doctor.wires import Recording, Wires

__all__ = [
    "DOCTOR",
    "Diagnosis",
    "DoctorSettings",
    "Finding",
    "Recording",
    "Wires",
    "diagnose",
]
