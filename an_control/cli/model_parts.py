"""Options for the parts of a policy that is to be learned: encoder, pooling, recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import tyro

from an_control.cli.common import option
from an_control.policy.sizes import AttentionSizes, ConvolutionSizes, Encoder, RecurrenceSizes

TRANSFORMERS = ("trxl", "trxl-i", "gtrxl")
UNSET = tyro.conf.arg(help_behavior_hint="")
"""An option without a value by default."""


@dataclass(frozen=True)
class Parts:
    """What `train` and `distill` both know; where not given, the recipe's or none."""

    encoder: Annotated[Encoder | None, UNSET] = None
    """What lets the channels' neurons attend to each other first (Set Transformer): all to all
    (sab), by way of `--inducing` points (isab), or none."""
    inducing: int = 16
    """Number of inducing points (isab)."""
    heads: int = 1
    """Number of attention heads of the encoder and of `--pma`."""
    learned_queries: int = 0
    """Number of learned queries in place of the fixed ones of the paper's form."""
    pma: int = 0
    """Number of seed vectors that pool the neurons' outputs by attention (Set Transformer, PMA), in
    place of the attention that multiplies the readings."""
    recurrence: Annotated[
        Literal["none", "lstm", "gru", "trxl", "trxl-i", "gtrxl"] | None, UNSET
    ] = None
    """A recurrent part after the attention: an LSTM, a GRU, or a transformer (Parisotto et al.
    2019)."""
    units: int = 32
    """Units of the recurrence."""
    layers: int = 1
    """Layers of a recurrent transformer."""
    recurrent_heads: int = 1
    """Attention heads of a recurrent transformer."""
    window: int = 32
    """Number of ticks that a layer of a recurrent transformer sees."""

    def student(self) -> dict[str, Any]:
        """What is asked for, by the names of `StudentSizes`; ValueError where it cannot be."""
        numbers = {"inducing": 16, "heads": 1, "learned_queries": 0, "pma": 0}
        asked = {name: self._number(name, min(usual, 1)) for name, usual in numbers.items()}
        changes: dict[str, Any] = {k: v for k, v in asked.items() if v != numbers[k]}
        if self.encoder is not None:
            changes["encoder"] = self.encoder
        if self.recurrence is not None:
            changes["recurrence"] = self._recurrence()
        return changes

    @property
    def asked(self) -> list[str]:
        """The names of the options that are not as by default."""
        return [one.name for one in fields(self) if getattr(self, one.name) != one.default]

    def paper(self) -> dict[str, Any]:
        """The same for `paper_sizes`; ValueError also for an option that no part would read."""
        self._check_read()
        encoder = self.encoder or "none"
        compares = encoder != "none" or self.pma
        return {
            "encoder": encoder,
            "inducing": self._number("inducing", 1) if encoder == "isab" else 0,
            "heads": self._number("heads", 1) if compares else 1,
            "recurrence": self._recurrence(),
        }

    def patches(self, sizes: ConvolutionSizes) -> ConvolutionSizes:
        """These sizes of a policy for image patches with the parts that are asked for."""
        changes = self.student()
        for name in ("learned_queries", "recurrence"):
            if changes.pop(name, None) is not None:
                raise ValueError(f"--{name.replace('_', '-')}: not for image patches")
        if pma := changes.pop("pma", 0):
            grid = math.isqrt(pma)
            if grid**2 != pma:
                raise ValueError(
                    f"--pma {pma}: must be a square number for image patches, since the head sees"
                    " the seeds as an image"
                )
            changes |= {"attention": "pma", "grid": grid}
        encoder = changes.get("encoder", sizes.encoder)
        points = self._number("inducing", 1) if encoder == "isab" else 0
        sizes = replace(sizes, **{**changes, "inducing": points})
        sizes.check()
        return sizes

    def pooled(self, sizes: AttentionSizes) -> AttentionSizes:
        """These sizes with seeds that pool, or learned queries, where they are asked for."""
        if self._number("pma", 0):
            if self.learned_queries:
                raise ValueError("--learned-queries: --pma pools by seeds of its own")
            sizes = replace(sizes, queries=self.pma, key=sizes.neuron, attention="pma")
        elif self._number("learned_queries", 0):
            sizes = replace(sizes, queries=self.learned_queries, key=sizes.neuron)
        sizes.check()
        return sizes

    def _check_read(self) -> None:
        encoder, recurrence = self.encoder or "none", self.recurrence or "none"
        transformer = recurrence in TRANSFORMERS, "--recurrence trxl, trxl-i or gtrxl"
        needs = {
            "inducing": (encoder == "isab", "--encoder isab"),
            "heads": (encoder != "none" or self.pma, "--encoder sab or isab, or --pma"),
            "units": (recurrence != "none", "--recurrence"),
            "layers": transformer,
            "recurrent_heads": transformer,
            "window": transformer,
        }
        for name in self.asked:
            there, what = needs.get(name, (True, ""))
            if not there:
                raise ValueError(f"{option(name)} {getattr(self, name)}: only with {what}")

    def _number(self, name: str, least: int) -> int:
        value: int = getattr(self, name)
        if value < least:
            raise ValueError(f"--{name.replace('_', '-')} {value}: must be {least} or more")
        return value

    def _recurrence(self) -> RecurrenceSizes | None:
        if self.recurrence in (None, "none"):
            return None
        header: dict[str, Any] = {"kind": self.recurrence, "units": self.units}
        if self.recurrence in TRANSFORMERS:
            header |= {"layers": self.layers, "heads": self.recurrent_heads, "window": self.window}
        return RecurrenceSizes.read(header)


PartOptions = Annotated[Parts, tyro.conf.arg(name="")]
