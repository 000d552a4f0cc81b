"""Options for the optional parts of a policy: encoder, pooling and recurrence.

They are options of `evolve` and of `distill`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from an_control.learning.command_line import format_flag
from an_control.policy.sizes import AttentionSizes, ConvolutionSizes, Encoder, RecurrenceSizes

TRANSFORMERS = ("trxl", "trxl-i", "gtrxl")
DEFAULTS = {
    "inducing": 16,
    "heads": 1,
    "learned_queries": 0,
    "pma": 0,
    "units": 32,
    "layers": 1,
    "recurrent_heads": 1,
    "window": 32,
}
"""Values for those options that neither the user nor a recipe sets, by name."""


@dataclass(frozen=True)
class PolicyParts:
    """Options for the optional parts of a policy's network: encoder, pooling and recurrence.

    An option that is None takes the value of the recipe (a file of settings). If there is no
    recipe, the part is left out.
    """

    encoder: Encoder | None = None
    """Let the channels' neurons attend to each other before the message (Set Transformer): all to
    all (sab), through `--inducing` points (isab), or not at all (none)."""
    inducing: int | None = None
    """Number of inducing points (isab); by default the recipe's, else 16."""
    heads: int | None = None
    """Number of attention heads of the encoder and of `--pma`; by default the recipe's, else 1."""
    learned_queries: int | None = None
    """Number of learned queries, instead of the fixed queries of the paper."""
    pma: int | None = None
    """Number of seed vectors that pool the neurons' outputs by attention (Set Transformer, PMA),
    instead of the attention that multiplies the readings."""
    recurrence: Literal["none", "lstm", "gru", "trxl", "trxl-i", "gtrxl"] | None = None
    """A recurrent part after the attention: an LSTM, a GRU, or a transformer (Parisotto et al.
    2019)."""
    units: int | None = None
    """Units of the recurrence; by default 32."""
    layers: int | None = None
    """Layers of a recurrent transformer; by default 1."""
    recurrent_heads: int | None = None
    """Attention heads of a recurrent transformer; by default 1."""
    window: int | None = None
    """Number of ticks that each layer of a recurrent transformer attends to; by default 32."""

    def collect_student_size_overrides(self) -> dict[str, Any]:
        """Return the kinds and sizes that the user has set, such as {"encoder": "sab", "heads": 4}.

        The keys are fields of `StudentSizes`. The caller replaces a recipe's values by these.

        Raises:
            ValueError: A number is out of bounds, or an option would be ignored.
        """
        self._check_options_have_effect("units", "layers", "recurrent_heads", "window")
        numbers = "inducing", "heads", "learned_queries", "pma"
        given = [name for name in numbers if name in self.chosen_option_names]
        changes: dict[str, Any] = {name: self._get_number_option(name) for name in given}
        if self.encoder is not None:
            changes["encoder"] = self.encoder
        if self.recurrence is not None:
            changes["recurrence"] = self._make_recurrence_sizes()
        return changes

    @property
    def chosen_option_names(self) -> list[str]:
        """Return the names of the options that the user has set: those that are not None."""
        return [one.name for one in fields(self) if getattr(self, one.name) is not None]

    def collect_paper_policy_sizes(self) -> dict[str, Any]:
        """Return the sizes of encoder and recurrence as keyword arguments of `make_paper_sizes`.

        That function makes the sizes of the policy of Tang & Ha 2021.

        Raises:
            ValueError: A number is out of bounds, or an option would be ignored.
        """
        self._check_options_have_effect(*self.chosen_option_names)
        encoder = self.encoder or "none"
        compares = encoder != "none" or self._get_number_option("pma")
        return {
            "encoder": encoder,
            "inducing": self._get_number_option("inducing") if encoder == "isab" else 0,
            "heads": self._get_number_option("heads") if compares else 1,
            "recurrence": self._make_recurrence_sizes(),
        }

    def apply_to_vision_sizes(self, sizes: ConvolutionSizes) -> ConvolutionSizes:
        """Return the sizes of a policy for image patches, changed by the options that are set.

        Args:
            sizes: The sizes before the options are applied.

        Raises:
            ValueError: A part is not available for image patches, or a number is out of bounds.
        """
        changes = self.collect_student_size_overrides()
        for name in ("learned_queries", "recurrence"):
            if changes.pop(name, None) is not None:
                raise ValueError(f"{format_flag(name)}: not for image patches")
        pma = changes.pop("pma", None)
        if pma == 0 and sizes.attention == "pma":
            raise ValueError("--pma 0: the recipe's head needs PMA seeds; use another --recipe")
        if pma:
            grid = math.isqrt(pma)
            if grid**2 != pma:
                raise ValueError(
                    f"--pma {pma}: must be a square number for image patches, since the head"
                    " gets the seeds as an image"
                )
            changes |= {"attention": "pma", "grid": grid}
        encoder = changes.get("encoder", sizes.encoder)
        points = changes.get("inducing") or sizes.inducing or self._get_number_option("inducing")
        sizes = replace(sizes, **{**changes, "inducing": points if encoder == "isab" else 0})
        sizes.check_consistency()
        return sizes

    def apply_pooling_to_sizes(self, sizes: AttentionSizes) -> AttentionSizes:
        """Apply the options `pma` and `learned_queries` to the sizes of a policy and return them.

        With `pma`, an attention layer pools the outputs of all channels. With `learned_queries`,
        learned queries replace the fixed ones of the paper. Without either, nothing changes.

        Args:
            sizes: The sizes before the options are applied.

        Raises:
            ValueError: The two options are set together, or a number is out of bounds.
        """
        seeds = self._get_number_option("pma")
        queries = self._get_number_option("learned_queries")
        if seeds:
            if queries:
                raise ValueError(
                    "--learned-queries: not with --pma, which has seeds instead of queries"
                )
            sizes = replace(sizes, queries=seeds, key=sizes.neuron, attention="pma")
        elif queries:
            sizes = replace(sizes, queries=queries, key=sizes.neuron)
        sizes.check_consistency()
        return sizes

    def _check_options_have_effect(self, *names: str) -> None:
        """Raise ValueError if one of the named options is set although it has no effect.

        For example, `inducing` has an effect only with the encoder isab.
        """
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
        for name in names:
            there, what = needs.get(name, (True, ""))
            if name in self.chosen_option_names and not there:
                raise ValueError(f"{format_flag(name)} {getattr(self, name)}: only with {what}")

    def _get_number_option(self, name: str) -> int:
        """Return the value of a number option, or its default if the option is not set."""
        given: int | None = getattr(self, name)
        value, minimum = DEFAULTS[name] if given is None else given, min(DEFAULTS[name], 1)
        if value < minimum:
            raise ValueError(f"{format_flag(name)} {value}: must be {minimum} or more")
        return value

    def _make_recurrence_sizes(self) -> RecurrenceSizes | None:
        """Return the sizes of the recurrent part that the options choose; None for no such part."""
        if self.recurrence in (None, "none"):
            return None
        header: dict[str, Any] = {
            "kind": self.recurrence,
            "units": self._get_number_option("units"),
        }
        if self.recurrence in TRANSFORMERS:
            header |= {name: self._get_number_option(name) for name in ("layers", "window")}
            header["heads"] = self._get_number_option("recurrent_heads")
        return RecurrenceSizes.from_header(header)
