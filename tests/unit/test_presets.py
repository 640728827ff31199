"""Presets: the table of the design, and refusal of what would ruin structured output."""

import pytest

from gristmill.errors import SetupError
from gristmill.presets import PRESETS, Preset, get_preset


def test_the_table() -> None:
    """The presets are those that are documented."""
    table = {p.name: (p.temperature, p.top_p, p.repetition_penalty, p.max_new_tokens) for p in PRESETS.values()}
    assert table == {
        "extract": (0.0, 1.0, 1.0, 256),
        "structured": (0.2, 0.8, 1.1, 256),
        "stable": (0.3, 0.5, 1.0, 256),
        "code": (0.3, 0.9, 1.1, 512),
        "math": (0.3, 0.8, 1.05, 512),
        "chat": (0.7, 0.9, 1.05, 256),
        "creative": (1.0, 0.8, 1.0, 256),
        "brainstorm": (1.3, 0.7, 1.0, 256),
    }


def test_zero_temperature_is_greedy() -> None:
    """Temperature 0 means no sampling, not a tiny number."""
    assert not PRESETS["extract"].do_sample
    assert PRESETS["stable"].do_sample


def test_a_heavy_repetition_penalty_is_refused() -> None:
    """A penalty that breaks quotes and keys can't become a preset."""
    with pytest.raises(SetupError, match=r"repetition_penalty=1.3 would ruin structured output; use 1 to 1.2"):
        Preset("mine", 0.2, 0.9, 1.3, 256, "")


def test_a_typo_gets_a_suggestion() -> None:
    """An unknown name is answered with the nearest."""
    with pytest.raises(SetupError, match="no preset 'extrct'; did you mean 'extract'"):
        get_preset("extrct")
