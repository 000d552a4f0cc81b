"""Present a motion and its diagnosis to a user: tables, sentences and the corrected file."""

from __future__ import annotations

from typing import Any

from an_control.commissioning.doctor.repair import Repair
from an_control.commissioning.motion.compare import MotionDiagnosis
from an_control.commissioning.motion.plan import MotionPlan
from an_control.commissioning.motion.run import MotionRecording
from an_control.wiring import Wiring

SIGNS = {1: "+", -1: "-", 0: "?"}


def describe_plan(wiring: Wiring, plan: MotionPlan) -> str:
    """Return a text that says how the robot will move, to be shown before the user agrees.

    Args:
        wiring: The robot's wiring.
        plan: The motion.
    """
    parts = [
        f"{name} by up to {amplitude:.3g}"
        for name, amplitude in zip(wiring.command.names, plan.amplitudes, strict=True)
        if amplitude > 0.0
    ]
    seconds = plan.ticks / wiring.rate_hz
    return (
        f"the robot will move for {seconds:.0f} s, one actuator after another, around the safe"
        f" command (amounts in its units): {', '.join(parts) or 'none can move'}"
    )


def make_actuator_sensor_rows(
    recording: MotionRecording, diagnosis: MotionDiagnosis
) -> list[dict[str, Any]]:
    """Return table rows that show which sensors each actuator moved, with values by column name.

    Args:
        recording: The recording of the motion.
        diagnosis: The diagnosis made from this recording.
    """
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(recording.actuators):
        mine = [one for one in diagnosis.pairs if one.actuator == place]
        moved = float(recording.plan.amplitudes[place])
        if not mine:
            rows.append({"actuator": name, "moved by": moved, "sensor": "none"})
        rows += [
            {
                "actuator": name,
                "moved by": moved,
                "sensor": recording.ids[one.channel],
                "from": f"{one.group.name.partition(':')[0]}: "
                f"{recording.configs[one.channel].field}",
                "sign": SIGNS[one.sign],
                "gain": one.gain,
                "late by at least [ticks]": "?" if one.delay is None else str(one.delay),
                "share": one.share,
            }
            for one in mine
        ]
    return rows


def make_finding_rows(diagnosis: MotionDiagnosis) -> list[dict[str, Any]]:
    """Return one table row for each wiring mistake that a test motion showed, by column name."""
    return [
        {
            "what": one.what,
            "is wrong": one.text,
            "how sure": "certain" if one.certain else "seen, but not its cause",
            "would become": one.correction if one.certain else "",
            "look at": "" if one.certain else one.correction,
        }
        for one in diagnosis.findings
    ]


def list_found_mistakes(diagnosis: MotionDiagnosis) -> list[str]:
    """Return one sentence for each wiring mistake that a test motion showed."""
    return [f"motion: {one.what} {one.text}" for one in diagnosis.findings]


def correct_wiring(text: str, wiring: Wiring, diagnosis: MotionDiagnosis) -> Repair:
    """Correct the wiring mistakes that a test motion showed with certainty, in a copy of the text.

    Args:
        text: Text of the wiring file.
        wiring: The wiring that was loaded from the file.
        diagnosis: The diagnosis of the motion.

    Returns:
        The `Repair` that holds the corrected text.
    """
    repair = Repair(text, wiring, diagnosis.recording, None)
    repair.write_corrections(diagnosis.corrected)
    return repair
