"""The wiring doctor in a process of its own, beside a policy node that runs.

The node starts it at low priority, writes requests to its standard input and reads answers from its
standard output; see `an_control.ros.doctor.process`. A request is its length as 8 bytes, then that
many bytes: a file of numpy arrays (npz). Its array `about` is JSON text with these values by name:

    model      path of the model file, which has a monitor
    wiring     path of the wiring file
    ids        ids of the N channels, in the model's order
    actuators  names of the A actuators, in the model's order
    channels   for each channel: entry (id of its entry in the file), source, field, scale, offset,
               clip; None for a channel that the wiring does not have

The other arrays are those of `an_control.control.recent_ticks.TickArrays`, with `actions` in place
of `commands`. An answer is one line of JSON: a list with one mapping for each finding; see
`convert_finding_to_json_values`. The process ends at the end of its input.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import sys
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from an_control.commissioning.doctor.diagnosis import diagnose
from an_control.commissioning.doctor.findings import Diagnosis, Finding
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Recording
from an_control.commissioning.doctor.repair import Repair
from an_control.control.model_wiring_check import ActionCommandConverter
from an_control.monitor.forward_model import ForwardModel
from an_control.policy import Model, read_model
from an_control.policy.exact_sums import MAX_READING
from an_control.system.files import read_regular_file
from an_control.wiring import Wiring, load_wiring

LENGTH_BYTES = 8
"""Number of bytes that hold a request's length. `an_control.ros.doctor.process` defines it again,
because it must not import this module."""
CHANGES = {
    "swapped": "slots",
    "permuted": "slots",
    "sign": "line",
    "scale": "line",
    "offset": "line",
    "inverted": "line",
    "motors swapped": "motors",
    "motors permuted": "motors",
    "motor reversed": "gain",
    "motor gain": "gain",
}
"""A mapping from the kind of a finding to what its correction changes, as in
`CandidateWiring.with_values_from`."""
CORRECTABLE = ("sign", "scale", "offset")
"""Kinds of findings that a node can correct while it runs: other scales and offsets of sensors."""


class Examiner:
    """Finder of wiring mistakes for a running policy node, which sends recordings as requests.

    The forward model of the last request stays loaded for the next one.
    """

    def __init__(self) -> None:
        self._path = ""
        self._model: Model | None = None
        self._forward: ForwardModel | None = None

    def find_wiring_mistakes(self, request: bytes) -> list[dict[str, Any]]:
        """Find the wiring mistakes in the recording of one request.

        Args:
            request: The bytes of a numpy file (npz) with the recording, and with the paths of the
                model and the wiring; this module's description lists its content.

        Returns:
            One mapping that can be written as JSON for each mistake; see
            `convert_finding_to_json_values`.
        """
        arrays = np.load(io.BytesIO(request))
        request_values = json.loads(str(arrays["about"]))
        if self._forward is None or request_values["model"] != self._path:
            self._path = request_values["model"]
            self._model = read_model(self._path)
            self._forward = ForwardModel(self._model)
        assert self._model is not None
        recording = make_recording(
            request_values, arrays["raw"], arrays["actions"], arrays["starts"]
        )
        with np.errstate(over="ignore", invalid="ignore"):  # readings that no wiring explains
            diagnosis = diagnose(recording, self._forward, list_undetectable=False)
        wiring = None
        if diagnosis.findings:
            with suppress(ValueError, OSError):  # the file may be half written or gone
                wiring = load_wiring(request_values["wiring"])
        return [
            convert_finding_to_json_values(
                one, diagnosis, recording, request_values, wiring, self._model
            )
            for one in diagnosis.findings
        ]


def make_recording(
    request_values: dict[str, Any], raw: np.ndarray, actions: np.ndarray, starts: np.ndarray
) -> Recording:
    """Make a recording from the parts of a request: T ticks of N channels and A actuators.

    Args:
        request_values: The values of the request by name, such as `ids` and `channels`; this
            module's description lists them.
        raw: (T, N) numbers of the message fields, before scale and offset.
        actions: (T, A) actions in [-1, 1].
        starts: (T,) True for a tick that does not directly follow the tick before it.
    """
    ids = tuple(request_values["ids"])
    raw = np.where(np.abs(raw) <= MAX_READING, raw, np.nan)  # larger numbers are no valid readings
    scale, offset = np.ones(len(ids)), np.zeros(len(ids))
    clip = np.tile([-np.inf, np.inf], (len(ids), 1))
    groups: dict[str, tuple[int, ...]] = {}
    for place, channel in enumerate(request_values["channels"]):
        if channel is None:
            continue
        scale[place], offset[place] = channel["scale"], channel["offset"]
        if channel["clip"] is not None:
            clip[place] = channel["clip"]
        field = channel["field"].partition("[")[0]
        for name in (f"source {channel['source']}", f"{channel['source']}: {field}"):
            groups[name] = (*groups.get(name, ()), place)
    return Recording(
        ids, raw, actions, scale, offset, clip, starts, tuple(request_values["actuators"]), groups
    )


def convert_finding_to_json_values(
    finding: Finding,
    diagnosis: Diagnosis,
    recording: Recording,
    request_values: dict[str, Any],
    wiring: Wiring | None,
    model: Model,
) -> dict[str, Any]:
    """Convert a finding (a mistake in the wiring) to a mapping that can be written as JSON.

    Args:
        finding: The finding.
        diagnosis: The diagnosis that it belongs to.
        recording: The recording that was examined.
        request_values: The values by name that the node sent with the recording.
        wiring: The wiring in the file; None if the file cannot be read.
        model: The model.

    Returns:
        The values `kind`, `members`, `text`, `correction`, `log_odds` and `certainty` of `Finding`,
        and three more. `alternatives` lists other mistakes that explain the readings as well.
        `lines` lists the lines of the wiring file to change, each as (number, present text,
        corrected text). `conversions` has the corrected (scale, offset) by channel entry of the
        wiring, if a node can apply the correction while it runs.
    """
    configured = CandidateWiring.from_recording(recording)
    is_motor = finding.kind.startswith("motor")
    names = recording.actuators if is_motor else recording.ids
    members = [names.index(one) for one in finding.members]
    change = CHANGES.get(finding.kind)
    alone = configured
    if change is not None:
        alone = configured.with_values_from(diagnosis.corrected, change, members)
    lines: list[tuple[int, str, str]] = []
    if wiring is not None:
        with suppress(ValueError, OSError):  # the file has been changed since the node read it
            lines = list_wiring_lines_to_change(alone, recording, request_values, wiring, model)
    return {
        "kind": finding.kind,
        "members": list(finding.members),
        "text": finding.text,
        "correction": finding.correction,
        "log_odds": round(float(finding.log_odds), 1),
        "certainty": finding.certainty,
        "alternatives": list(diagnosis.alternatives),
        "lines": lines,
        "conversions": list_corrected_scales_and_offsets(finding, members, alone, request_values),
    }


def list_wiring_lines_to_change(
    candidate: CandidateWiring,
    recording: Recording,
    request_values: dict[str, Any],
    wiring: Wiring,
    model: Model,
) -> list[tuple[int, str, str]]:
    """Return the lines of the wiring file that must change to correct the wiring.

    Args:
        candidate: The corrected wiring.
        recording: The recording that was examined.
        request_values: The values by name that the node sent with the recording.
        wiring: The wiring in the file.
        model: The model.

    Returns:
        For each changed line its number from 1 on, its present text and its corrected text.
    """
    order = ActionCommandConverter(wiring, request_values["model"], model)
    places = None if order.places is None else order.places.tolist()
    repair = Repair(read_regular_file(Path(wiring.file)).decode(), wiring, recording, places)
    repair.write_corrections(candidate)
    before, after = repair.before.splitlines(), repair.text.splitlines()
    found = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            pairs = zip_longest(before[i:i_end], after[j:j_end], fillvalue="")
            found += [(i + n + 1, old.strip(), new.strip()) for n, (old, new) in enumerate(pairs)]
    return found


def list_corrected_scales_and_offsets(
    finding: Finding, members: list[int], candidate: CandidateWiring, request_values: dict[str, Any]
) -> dict[str, tuple[float, float]]:
    """Return the scales and offsets by which a node can correct a mistake while it runs.

    Args:
        finding: The mistake.
        members: Indices of the finding's channels or actuators.
        candidate: The wiring with only this mistake corrected.
        request_values: The values by name that the node sent with the recording.

    Returns:
        The corrected (scale, offset) by id of each wrong channel entry of the wiring. It is empty
        if the mistake is not a wrong sign, scale or offset, or if channels of one entry (such as
        ranges[*]) need different corrections.
    """
    if finding.kind not in CORRECTABLE:
        return {}
    channels = request_values["channels"]
    entries = {channels[place]["entry"] for place in members if channels[place] is not None}
    found: dict[str, tuple[float, float]] = {}
    for place, channel in enumerate(channels):
        if channel is None or channel["entry"] not in entries:
            continue
        values = float(candidate.scale[place]), float(candidate.offset[place])
        if not np.allclose(found.setdefault(channel["entry"], values), values):
            return {}
    return found


def read_request(stream: BinaryIO) -> bytes | None:
    """Read the next request from a stream: 8 bytes with its length, then its content.

    Args:
        stream: The stream to read from.

    Returns:
        The content, or None if the stream ends before the end of a request.
    """
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "little")
    request = stream.read(length)
    return request if len(request) == length else None


def main() -> int:
    """Read recordings from standard input until it ends; print the wiring mistakes in each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr, so that stdout has the answers only
    examiner = Examiner()
    while (request := read_request(sys.stdin.buffer)) is not None:
        print(json.dumps(examiner.find_wiring_mistakes(request)), file=answers, flush=True)
    return 0
