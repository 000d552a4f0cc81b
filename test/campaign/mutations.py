"""Byte-mutated wiring and model files: each is refused with a reason, or is sound."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from an_control.load import load_policy
from an_control.policy import ModelError
from an_control.system.share import find_share_path
from an_control.wiring import WiringError, load_wiring
from campaign.outcome import Outcome

SLOWEST_S = 5.0


def mutated(content: bytes, random_: random.Random) -> bytes:
    """`content` with a few bytes changed, cut out, doubled or put in."""
    data = bytearray(content)
    for _ in range(random_.choice((1, 1, 2, 4, 16, 64))):
        start = random_.randrange(len(data) + 1)
        stop = min(len(data), start + random_.choice((1, 1, 2, 8, 64, 512)))
        match random_.randrange(5):
            case 0:
                data[start:stop] = random_.randbytes(stop - start)
            case 1:
                del data[start:stop]
            case 2:
                data[start:start] = data[start:stop]
            case 3:
                data[start:start] = random_.randbytes(random_.randrange(1, 9))
            case _ if start < len(data):
                data[start] ^= 1 << random_.randrange(8)
    return bytes(data)


def read_wiring(path: Path) -> None:
    """WiringError, or a wiring."""
    load_wiring(path)


def read_policy(path: Path) -> None:
    """ModelError, or a policy whose action is finite."""
    policy = load_policy(path, engine="numpy")
    ids = policy.nominal_ids or ("a",)
    action = policy.step_array(np.ones(len(ids)), ids)
    if not (np.abs(action) <= 1.0).all():
        raise AssertionError(f"an action of {action}")


def run_mutations(folder: Path, count: int, seed: int = 0) -> list[Outcome]:
    """Read `count` mutated wirings and as many models, drawn from `seed`."""
    if not count:
        return []
    wiring, model = find_share_path("config/ant.yaml"), find_share_path("models/ant.safetensors")
    return [
        _run("mutated wiring files", wiring, read_wiring, folder, count, seed),
        _run("mutated model files", model, read_policy, folder, count, seed),
    ]


def _run(
    name: str, source: Path, read: Callable[[Path], None], folder: Path, count: int, seed: int
) -> Outcome:
    outcome, content = Outcome(name), source.read_bytes()
    path = folder / f"mutated{source.suffix}"
    begin_mb = 0.0
    for number in range(count):
        path.write_bytes(mutated(content, random.Random(f"{seed} {number}")))
        begin_s, complaint = time.perf_counter(), ""
        try:
            read(path)
        except (WiringError, ModelError) as error:
            complaint = "" if str(path) in str(error) else f"{number}: does not name the file"
        except BaseException as error:
            complaint = f"{number}: {error!r}"
        took_s = time.perf_counter() - begin_s
        outcome.tried += 1
        outcome.safe_s = max(outcome.safe_s, took_s)
        if took_s > SLOWEST_S:
            complaint = f"{number}: took {took_s:.1f} s"
        outcome.survived += not complaint
        outcome.complaints += [complaint] if complaint else []
        if number == count // 10:
            begin_mb = _peak_mb()
    outcome.memory_mb = _peak_mb() - begin_mb
    return outcome


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
