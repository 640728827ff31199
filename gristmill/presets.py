"""Presets: named, complete sets of decoding parameters. Nothing else may steer decoding."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from gristmill.errors import SetupError


@dataclass(frozen=True, slots=True)
class Preset:
    """One complete set of decoding parameters.

    `temperature` 0 means greedy decoding; `top_p` and `repetition_penalty` then have no effect on the choice
    among equals and must be 1. `max_new_tokens` is the budget of a first attempt.

    Raises:
        SetupError: a value lies outside its range.
    """

    name: str
    temperature: float
    top_p: float
    repetition_penalty: float
    max_new_tokens: int
    purpose: str

    def __post_init__(self) -> None:
        checks = (
            (0 <= self.temperature <= 2, "temperature", self.temperature, "0 (greedy) to 2"),
            (0 < self.top_p <= 1, "top_p", self.top_p, "above 0, at most 1"),
            (1 <= self.repetition_penalty <= 1.2, "repetition_penalty", self.repetition_penalty, "1 to 1.2"),
            (self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1"),
        )
        for holds, field, value, allowed in checks:
            if not holds:
                raise SetupError(f"preset {self.name!r}: {field}={value} would ruin structured output; use {allowed}")

    @property
    def do_sample(self) -> bool:
        """Whether tokens are drawn at random; otherwise the most probable one is taken."""
        return self.temperature > 0


PresetName = Literal["extract", "structured", "stable", "code", "math", "chat", "creative", "brainstorm"]
"""The keys of `PRESETS`, as a type."""

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("extract", 0.0, 1.0, 1.0, 256, "extraction, classification, translation"),
        Preset("structured", 0.2, 0.8, 1.1, 256, "forms"),
        Preset("stable", 0.3, 0.5, 1.0, 256, "intents, format conversion"),
        Preset("code", 0.3, 0.9, 1.1, 512, "code fields"),
        Preset("math", 0.3, 0.8, 1.05, 512, "derivations"),
        Preset("chat", 0.7, 0.9, 1.05, 256, "general text"),
        Preset("creative", 1.0, 0.8, 1.0, 256, "copy, stories"),
        Preset("brainstorm", 1.3, 0.7, 1.0, 256, "ideas"),
    )
}


def get_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        SetupError: there is none; the message names the nearest.
    """
    if name in PRESETS:
        return PRESETS[name]
    raise SetupError(f"no preset {name!r}; {nearest(name, PRESETS)}")


def nearest(name: str, known: dict[str, object] | dict[str, Preset] | list[str]) -> str:
    """A phrase that helps after a typo: the nearest known name, or all of them."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"
