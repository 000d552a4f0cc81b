"""What goes over the web socket: strict, both ways."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("msgspec")
from an_control.view import schema

GOOD = [
    {"do": "connect", "id": 1, "signal": "a", "slot": "b", "announced": True},
    {"do": "cut", "id": 2, "slot": "b"},
    {"do": "noise", "id": 3, "slot": "b"},
    {"do": "copy", "id": 4, "signal": "a", "slot": "b"},
    {"do": "shuffle", "id": 5, "announced": False},
    {"do": "restore", "id": 6},
    {"do": "undo", "id": 7},
    {"do": "set", "id": 8, "name": "missing", "value": 0.5},
    {"do": "restart", "id": 9},
    {"do": "estop", "id": 10},
    {"do": "resetestop", "id": 11},
    {"do": "seek", "id": 12, "seconds": 1.5},
    {"do": "jump", "id": 13, "forward": False},
    {"do": "play", "id": 14, "on": True, "speed": 2.0},
    {"do": "correct", "id": 15, "on": True},
]


@pytest.mark.parametrize("message", GOOD, ids=lambda one: one["do"])
def test_every_command_is_read(message):
    assert schema.decode_command(json.dumps(message)).id == message["id"]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ('{"do": "cut", "id": 1, "slot": "b", "more": 1}', "more"),
        ('{"do": "cut", "id": "1", "slot": "b"}', "int"),
        ('{"do": "cut", "id": 1}', "slot"),
        ('{"do": "cut", "id": -1, "slot": "b"}', ">= 0"),
        ('{"do": "cut", "id": 1, "slot": 3}', "str"),
        ('{"do": "set", "id": 1, "name": "missing", "value": NaN}', "JSON"),
        ('{"do": "set", "id": 1, "name": "missing", "value": 1e999}', "range"),
        ('{"do": "set", "id": 1, "name": "missing", "value": -1}', ">= 0"),
        ('{"do": "set", "id": 1, "name": "model", "value": 1}', "enum"),
        ('{"do": "seek", "id": 1, "seconds": -1}', ">= 0"),
        ('{"do": "play", "id": 1, "on": true, "speed": 0}', ">= 0.1"),
        ('{"do": "fly", "id": 1}', "fly"),
        ('{"id": 1}', "do"),
        ('{"do": "cut", "id": 1, "slot": "' + 201 * "b" + '"}', "200"),
        ('{"do": "cut", "id": 1, "slot": "' + 5000 * "b" + '"}', "4096 bytes"),
        ("[]", "object"),
        ("", ""),
        (b"\x00\x01", "text"),
    ],
)
def test_what_is_not_a_command_is_refused_with_the_reason(message, named):
    with pytest.raises(ValueError) as refused:
        schema.decode_command(message)
    assert named in str(refused.value)


ODD = ("", "\0", '"', "{", "é", "1e999", "\ud800", "NaN", "[[")


def mutated(rng: random.Random) -> str:
    """A good command with some characters changed, left out or doubled."""
    text = list(json.dumps(rng.choice(GOOD)))
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(text))
        text[place : place + rng.randint(0, 3)] = rng.choice(ODD)
    return "".join(text)


def test_ten_thousand_broken_messages_are_read_or_refused_and_nothing_else():
    rng, refused = random.Random(0), 0
    for _ in range(10_000):
        try:
            assert schema.decode_command(mutated(rng)).id >= 0
        except ValueError:
            refused += 1
    assert refused > 9_000


def test_updates_are_json_without_what_json_has_not():
    update = schema.ScoreUpdate([[1.0, None, float("nan"), 2.0]], fresh=True)
    assert json.loads(schema.encode_update(update)) == {
        "is": "score", "rows": [[1.0, None, None, 2.0]], "fresh": True,
    }  # fmt: skip
